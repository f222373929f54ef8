// A room's messages as far back as they were fetched.

import { type GreendotError, type Room, type RoomMessage, showMessages, type ShownMessage } from "@greendot/client";

const MOST_EDITS = 5_000; // kept for messages that may still be fetched

export interface TranscriptState<Body> {
  messages: readonly ShownMessage<Body>[];
  hasOlder: boolean;
  loading: boolean;
  error: GreendotError | null;
}

export class Transcript<Body> {
  #room: Room<Body>;
  #pageSize: number;
  #keep: number;
  #put: (part: Partial<TranscriptState<Body>>) => void;
  #shown: readonly ShownMessage<Body>[] = [];
  #oldest = Infinity; // the number of the first record we have
  #hasNewest = false; // whether the newest page was fetched
  #loading = 0; // the number of the fetch under way; 0 if none is
  #loads = 0;
  // Edits and deletions, by number: what they are about may be older than what is shown, and fetched later.
  #edits = new Map<number, RoomMessage<Body>>();

  constructor(room: Room<Body>, pageSize: number, keep: number, put: (part: Partial<TranscriptState<Body>>) => void) {
    this.#room = room;
    this.#pageSize = pageSize;
    this.#keep = Math.max(keep, pageSize);
    this.#put = put;
  }

  /** We are in the room, perhaps again: fetch the newest page unless that was done; what came since was told. */
  begin(): void {
    if (!this.#hasNewest) void this.#load();
  }

  /** More was missed than was told. What is shown stays until what is new is here. */
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
    if (!this.#hasNewest) return this.#load(); // failed before
    this.#keep = Math.max(this.#keep, this.#shown.length + this.#pageSize);
    await this.#load(this.#oldest);
  }

  told(message: RoomMessage<Body>): void {
    this.#take([message], []);
    // Not before the page it belongs to: alone it would flicker.
    if (this.#hasNewest || !this.#loading) this.#show();
  }

  #forget(): void {
    this.#shown = [];
    this.#oldest = Infinity;
    this.#hasNewest = false;
    this.#edits.clear();
  }

  async #load(before?: number): Promise<void> {
    const load = (this.#loading = ++this.#loads);
    this.#put({ loading: true, error: null });
    try {
      const page = await this.#room.history({ limit: this.#pageSize, ...(before !== undefined && { before }) });
      if (load !== this.#loading) return; // begun anew meanwhile
      this.#loading = 0;
      this.#hasNewest = true;
      this.#take(page, this.#edits.values());
      // A page may be shorter than asked for; only one with nothing in it is the last.
      if (!page.length) this.#oldest = Math.min(this.#oldest, 1);
      this.#show();
      this.#put({ loading: false });
    } catch (error) {
      if (load !== this.#loading) return;
      this.#loading = 0;
      // Without a connection: the next one begins once more.
      const isLost = (error as GreendotError).code === "disconnected";
      this.#put({ loading: false, error: isLost ? null : (error as GreendotError) });
      if (!isLost) this.#show();
    }
  }

  #take(records: readonly RoomMessage<Body>[], edits: Iterable<RoomMessage<Body>>): void {
    for (const record of records) {
      if (record.ref !== null) this.#edits.set(record.seq, record);
      this.#oldest = Math.min(this.#oldest, record.seq);
    }
    for (const seq of this.#edits.keys()) {
      if (this.#edits.size <= MOST_EDITS) break;
      this.#edits.delete(seq);
    }
    const all = showMessages(this.#shown, [...records, ...edits]);
    this.#shown = all.length > this.#keep ? all.slice(-this.#keep) : all;
    if (this.#shown !== all) this.#oldest = this.#shown[0]!.seq; // the others can be fetched again
  }

  #show(): void {
    this.#put({ messages: this.#shown, hasOlder: this.#oldest > 1 });
  }
}
