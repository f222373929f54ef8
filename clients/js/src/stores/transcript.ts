// The fetched messages of a room.

import { type GreendotError, type Room, type RoomMessage, showMessages, type ShownMessage } from "../index.js";

const MOST_EDITS = 5_000; // edits kept for messages that may be fetched later
const MOST_REACTIONS = 500; // reactions kept for a page that arrives later, but that the server has read earlier

export interface TranscriptState<Body> {
  messages: readonly ShownMessage<Body>[];
  hasOlder: boolean;
  loading: boolean;
  error: GreendotError | null;
}

export class Transcript<Body> {
  #room: Room<Body>;
  #user: () => string | null;
  #pageSize: number;
  #keep: number;
  #put: (part: Partial<TranscriptState<Body>>) => void;
  #shown: readonly ShownMessage<Body>[] = [];
  #oldest = Infinity; // lowest number of a fetched record
  #hasNewest = false; // whether the newest page was fetched
  #loading = 0; // number of the current fetch; 0 if there is none
  #loads = 0;
  // Edits and deletions, by number. The changed messages may be older than the shown messages, and fetched later.
  #edits = new Map<number, RoomMessage<Body>>();
  #reactions = new Map<number, RoomMessage<Body>>(); // newest reactions, by number

  constructor(room: Room<Body>, user: () => string | null, pageSize: number, keep: number, put: (part: Partial<TranscriptState<Body>>) => void) {
    this.#room = room;
    this.#user = user;
    this.#pageSize = pageSize;
    this.#keep = Math.max(keep, pageSize);
    this.#put = put;
  }

  /**
   * After the first join, show the newest page: `page`, the messages of the reply to the join, or a fetched page. After a
   * reconnect, do nothing, because events deliver the newer messages.
   */
  begin(page?: readonly RoomMessage<Body>[]): void {
    if (this.#hasNewest) return;
    if (!page) return void this.#load();
    this.#loading = 0;
    this.#shows(page, this.#room.head < 1);
  }

  /** Fetch the newest page again, because too many messages were missed. The shown messages stay until the page arrives. */
  reload(): void {
    this.#forget();
    void this.#load();
  }

  end(): void {
    this.#forget();
    this.#loading = 0;
  }

  async loadOlder(): Promise<void> {
    if (this.#loading || this.#oldest <= 1) return;
    if (!this.#hasNewest) return this.#load(); // the first fetch failed
    this.#keep = Math.max(this.#keep, this.#shown.length + this.#pageSize);
    await this.#load(this.#oldest);
  }

  told(message: RoomMessage<Body>): void {
    this.#take([message], []);
    // During the first fetch, do not show a message alone: the page replaces it a moment later.
    if (this.#hasNewest || !this.#loading) this.#show();
  }

  #forget(): void {
    this.#shown = [];
    this.#oldest = Infinity;
    this.#hasNewest = false;
    this.#edits.clear();
    this.#reactions.clear();
  }

  async #load(before?: number): Promise<void> {
    const load = (this.#loading = ++this.#loads);
    this.#put({ loading: true, error: null });
    try {
      const page = await this.#room.history({ limit: this.#pageSize, ...(before !== undefined && { before }) });
      if (load !== this.#loading) return; // a newer fetch has started
      this.#loading = 0;
      // A page may be shorter than requested. Only an empty page is the last one.
      this.#shows(page, !page.length);
    } catch (error) {
      if (load !== this.#loading) return;
      this.#loading = 0;
      // After a lost connection, the next join fetches again.
      const isLost = (error as GreendotError).code === "disconnected";
      this.#put({ loading: false, error: isLost ? null : (error as GreendotError) });
      if (!isLost) this.#show();
    }
  }

  #shows(page: readonly RoomMessage<Body>[], isLast: boolean): void {
    this.#hasNewest = true;
    this.#take(page, [...this.#edits.values(), ...this.#reactions.values()]);
    if (isLast) this.#oldest = Math.min(this.#oldest, 1);
    this.#show();
    this.#put({ loading: false });
  }

  #take(records: readonly RoomMessage<Body>[], edits: Iterable<RoomMessage<Body>>): void {
    for (const record of records) {
      const isReaction = record.op?.endsWith("react");
      if (record.ref !== null) keepNewest(isReaction ? this.#reactions : this.#edits, record, isReaction ? MOST_REACTIONS : MOST_EDITS);
      this.#oldest = Math.min(this.#oldest, record.seq);
    }
    const all = showMessages(this.#shown, [...records, ...edits], Infinity, this.#user());
    this.#shown = all.length > this.#keep ? all.slice(-this.#keep) : all;
    if (this.#shown !== all) this.#oldest = this.#shown[0]!.seq; // dropped messages can be fetched again
  }

  #show(): void {
    this.#put({ messages: this.#shown, hasOlder: this.#oldest > 1 });
  }
}

/** Add a record to `kept`. If `kept` then has more than `most` records, drop the record that was added first. */
function keepNewest<Rec extends { seq: number }>(kept: Map<number, Rec>, record: Rec, most: number): void {
  kept.set(record.seq, record);
  const [first] = kept.keys();
  if (kept.size > most) kept.delete(first!);
}
