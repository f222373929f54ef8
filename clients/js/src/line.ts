// Position in a stream of records: delivers every record once and in order. Pure.

import { MOST_EARLY } from "./limits.js";

export class Line<Rec extends { seq: number }> {
  /** Number of the record delivered last. */
  last: number;
  /** Whether records are missing. Nothing is delivered until they are fetched. */
  _behind = false;
  #again = false; // more records were missed during the fetch
  #early = new Map<number, Rec>();

  constructor(last: number) {
    this.last = last;
  }

  /** Return whether to deliver `record` now. A record that is not next in order is held. */
  _offer(record: Rec): boolean {
    if (record.seq <= this.last) return false;
    if (this._behind || record.seq !== this.last + 1) {
      this._behind = true;
      if (this.#early.size < MOST_EARLY) this.#early.set(record.seq, record);
      else this.#again = true;
      return false;
    }
    this.last = record.seq;
    return true;
  }

  /** Note that the server left records out. */
  _miss(): void {
    this.#again = this._behind;
    this._behind = true;
  }

  /** Return the number up to which to fetch, if the newest record is `head`. A held record proves that earlier ones exist. */
  _target(head: number): number {
    return this.#early.size ? Math.max(head, Math.min(...this.#early.keys()) - 1) : head;
  }

  /** Return whether to deliver `record`, which was fetched. Numbers that are left out belong to deleted records. */
  _fetched(record: Rec): boolean {
    if (record.seq <= this.last) return false;
    this.last = record.seq;
    return true;
  }

  /** Return the held record that is next in order, if any, and advance to it. */
  next(): Rec | undefined {
    const record = this.#early.get(this.last + 1);
    if (record) this.last = record.seq;
    return record;
  }

  /** Advance to `head`: earlier records were delivered or no longer exist. */
  _skip(head: number): void {
    this.last = Math.max(this.last, head);
  }

  /** End a fetch. The line is still behind if more records were missed meanwhile. */
  _settle(): void {
    for (const seq of this.#early.keys()) if (seq <= this.last) this.#early.delete(seq);
    this._behind = this.#again || this.#early.size > 0;
    this.#again = false;
  }
}
