// Records of a room or an inbox, delivered once and in order. Missing records are fetched.

import type { GreendotError } from "./errors.js";
import { MOST_FETCHED } from "./limits.js";
import { Line } from "./line.js";
import type { Gap } from "./options.js";

/** Callbacks to fetch and deliver records. */
export interface Ends<Rec> {
  /** Fetch the number of the newest record. */
  head(): Promise<number>;
  /** Fetch the oldest records after a number, in ascending order. */
  page(after: number): Promise<Rec[]>;
  _deliver(record: Rec): void;
  /** Report records that are not delivered. */
  gap(gap: Gap): void;
  /** Report that records cannot be fetched. */
  _failed(error: GreendotError): void;
  /** `last` has changed. */
  _moved(): void;
}

export class Stream<Rec extends { seq: number }> {
  #ends: Ends<Rec>;
  #line: Line<Rec> | null = null; // a new one for each connection, so that an old fetch notices that it is obsolete
  #fetching: Line<Rec> | null = null;

  constructor(ends: Ends<Rec>) {
    this.#ends = ends;
  }

  /** Number of the record delivered last; null if the stream is not followed. */
  get last(): number | null {
    return this.#line?.last ?? null;
  }

  /** Deliver records after `last`. A stream that is already followed continues at its position. */
  _follow(last: number): void {
    if (this.#line) return;
    this.#line = new Line(last);
    this.#ends._moved();
  }

  _forget(): void {
    this.#line = null;
    this.#ends._moved();
  }

  /** Drop held records after a lost connection. The next connection delivers the records after the last one. */
  _restart(): void {
    if (this.#line) this.#line = new Line(this.#line.last);
  }

  /** Process a record of an event. */
  _offer(record: Rec): void {
    if (this.#line?._offer(record)) this.#deliver(record);
    else this.#look();
  }

  /** Fetch records that the server left out. */
  _miss(): void {
    this.#line?._miss();
    this.#look();
  }

  /**
   * Advance to the newest record `head`: fetch the records before it, or report a gap if there are too many.
   *
   * `since` is `last` at the time of the request for the head. An answer may be older than records that came before it.
   * Only a head below `since` shows that the server lost records and continues numbering from there. The old cursor would
   * then drop every new record as already delivered.
   */
  _reach(head: number, since: number | null = this.last): void {
    this._follow(head);
    const line = this.#line!;
    if (head < (since ?? 0) || head > line.last + MOST_FETCHED) {
      const after = line.last;
      line.last = head;
      this.#ends._moved();
      this.#ends.gap({ after, head });
    } else if (head > line.last) line._behind = true;
    this.#look();
  }

  #deliver(record: Rec): void {
    this.#ends._moved();
    this.#ends._deliver(record);
  }

  #look(): void {
    const line = this.#line;
    if (!line?._behind || this.#fetching === line) return;
    this.#fetching = line;
    void this.#catchUp(line);
  }

  async #catchUp(line: Line<Rec>): Promise<void> {
    while (line === this.#line && line._behind) {
      try {
        await this.#fetch(line);
      } catch (error) {
        if (line !== this.#line) return;
        if ((error as GreendotError).code === "disconnected") break; // the next connection continues at this position
        this.#ends._failed(error as GreendotError);
        line._skip(line._target(line.last));
        this.#settle(line);
      }
    }
    if (this.#fetching === line) this.#fetching = null;
  }

  /** Fetch and deliver missing records, then the records that came meanwhile. */
  async #fetch(line: Line<Rec>): Promise<void> {
    const head = line._target(await this.#ends.head());
    if (line !== this.#line) return;
    this._reach(head);
    while (line.last < head) {
      const page = await this.#ends.page(line.last);
      if (line !== this.#line) return;
      for (const record of page) if (line._fetched(record)) this.#deliver(record);
      if (!page.length) line._skip(head); // the records are archived or past their retention
    }
    this.#settle(line);
  }

  #settle(line: Line<Rec>): void {
    let record;
    while ((record = line.next())) this.#deliver(record);
    line._settle();
    this.#ends._moved();
  }
}
