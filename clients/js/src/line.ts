// How far a stream of records was told: every record once, in order. Pure.

const MOST_EARLY = 1_000; // records held while what comes before them is fetched; more are fetched, too

export class Line<Rec extends { seq: number }> {
  /** The number told last. */
  last: number;
  /** Something is missing, and nothing goes out before it is fetched. */
  behind = false;
  #again = false; // what is being fetched will not be all
  #early = new Map<number, Rec>();

  constructor(last: number) {
    this.last = last;
  }

  /** Whether `record` is to be told now. If its turn has not come it is held. */
  offer(record: Rec): boolean {
    if (record.seq <= this.last) return false;
    if (this.behind || record.seq !== this.last + 1) {
      this.behind = true;
      if (this.#early.size < MOST_EARLY) this.#early.set(record.seq, record);
      else this.#again = true;
      return false;
    }
    this.last = record.seq;
    return true;
  }

  /** The server has left something out. */
  miss(): void {
    this.#again = this.behind;
    this.behind = true;
  }

  /** Up to where to fetch, if the newest record is `head`. What is held proves that there was one before it. */
  target(head: number): number {
    return this.#early.size ? Math.max(head, Math.min(...this.#early.keys()) - 1) : head;
  }

  /** Whether `record`, which was fetched, is to be told. Numbers left out are of records that are gone. */
  fetched(record: Rec): boolean {
    if (record.seq <= this.last) return false;
    this.last = record.seq;
    return true;
  }

  /** What came early and is next, told one at a time. */
  next(): Rec | undefined {
    const record = this.#early.get(this.last + 1);
    if (record) this.last = record.seq;
    return record;
  }

  /** Everything up to `head` is told, or gone. */
  skip(head: number): void {
    this.last = Math.max(this.last, head);
  }

  /** All that was missing was told, and what was held behind it; unless more was missed meanwhile. */
  settle(): void {
    for (const seq of this.#early.keys()) if (seq <= this.last) this.#early.delete(seq);
    this.behind = this.#again || this.#early.size > 0;
    this.#again = false;
  }
}
