// A room's messages or the inbox's notifications: told once and in order; what the server left out is fetched.

import type { GreendotError } from "./errors.js";
import { Line } from "./line.js";
import type { Gap } from "./options.js";

const MOST_FETCHED = 1_000; // whoever is further behind is told so instead: nobody may want to read all that
export const PAGE = 300; // the most a server gives at once

/** Where records are fetched, and where they are told. */
export interface Ends<Rec> {
  /** The number of the newest record. */
  head(): Promise<number>;
  /** The oldest after a number, ascending. */
  page(after: number): Promise<Rec[]>;
  tell(record: Rec): void;
  /** These are not told. */
  gap(gap: Gap): void;
  /** They cannot be fetched. */
  failed(error: GreendotError): void;
  /** `last` is another one. */
  moved(): void;
}

export class Stream<Rec extends { seq: number }> {
  #ends: Ends<Rec>;
  #line: Line<Rec> | null = null; // another one with each connection, so that a fetch knows that it is not wanted any more
  #fetching: Line<Rec> | null = null;

  constructor(ends: Ends<Rec>) {
    this.#ends = ends;
  }

  /** The number told last; null where nothing is followed. */
  get last(): number | null {
    return this.#line?.last ?? null;
  }

  /** Tell what comes after `last`. A stream that is followed already goes on where it is. */
  follow(last: number): void {
    if (this.#line) return;
    this.#line = new Line(last);
    this.#ends.moved();
  }

  forget(): void {
    this.#line = null;
    this.#ends.moved();
  }

  /** The connection is lost: the next one brings what is behind the last record told, so nothing else is kept. */
  restart(): void {
    if (this.#line) this.#line = new Line(this.#line.last);
  }

  /** A record came. */
  offer(record: Rec): void {
    if (this.#line?.offer(record)) this.#tell(record);
    else this.#look();
  }

  /** The server has left something out. */
  miss(): void {
    this.#line?.miss();
    this.#look();
  }

  /**
   * The newest record is `head`, and what lies before it was not sent: it is fetched, unless it is too much.
   *
   * `since` is `last` at the time the head was asked for. An answer may be older than records that came before it; only
   * a head behind `since` shows that the server lost records and numbers again from there. Held against the old cursor
   * every new one would be dropped as seen.
   */
  reach(head: number, since: number | null = this.last): void {
    this.follow(head);
    const line = this.#line!;
    if (head < (since ?? 0) || head > line.last + MOST_FETCHED) {
      const after = line.last;
      line.last = head;
      this.#ends.moved();
      this.#ends.gap({ after, head });
    } else if (head > line.last) line.behind = true;
    this.#look();
  }

  #tell(record: Rec): void {
    this.#ends.moved();
    this.#ends.tell(record);
  }

  #look(): void {
    const line = this.#line;
    if (!line?.behind || this.#fetching === line) return;
    this.#fetching = line;
    void this.#catchUp(line);
  }

  async #catchUp(line: Line<Rec>): Promise<void> {
    while (line === this.#line && line.behind) {
      try {
        await this.#fetch(line);
      } catch (error) {
        if (line !== this.#line) return;
        if ((error as GreendotError).code === "disconnected") break; // the next connection begins where this one was
        this.#ends.failed(error as GreendotError);
        line.skip(line.target(line.last));
        this.#settle(line);
      }
    }
    if (this.#fetching === line) this.#fetching = null;
  }

  /** Tell what is missing, then what came meanwhile. */
  async #fetch(line: Line<Rec>): Promise<void> {
    const head = line.target(await this.#ends.head());
    if (line !== this.#line) return;
    this.reach(head);
    while (line.last < head) {
      const page = await this.#ends.page(line.last);
      if (line !== this.#line) return;
      for (const record of page) if (line.fetched(record)) this.#tell(record);
      if (!page.length) line.skip(head); // archived, or too old to be kept
    }
    this.#settle(line);
  }

  #settle(line: Line<Rec>): void {
    let record;
    while ((record = line.next())) this.#tell(record);
    line.settle();
    this.#ends.moved();
  }
}
