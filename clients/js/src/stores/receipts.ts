// Read receipts of a room.

import type { Greendot, ReaderCount, Receipt, Room, Undo } from "../index.js";
import { stay } from "./roompart.js";
import { Shared, sharedSource, type Source } from "./shared.js";

// Number of receipts to fetch. The source fetches one page, and a page of the server has at most 300.
const MOST = 300;

/**
 * Read receipts of a room. A receipt has the `seq` (number) of the last message that a user has read.
 *
 * For receipts, a room is large if it has more than 100 members, or if more than 100 users are in the room. The operator can
 * change this limit (setting `rooms.receipts_members`). A large room has `readers`, other rooms have `receipts`. After a room
 * has become large, `receipts` may keep its old list. After a large room has become small, `readers` may keep its old value.
 */
export interface ReceiptState {
  /**
   * Read receipts, ordered by user id. If the room was large already when the client joined, the list is empty, or has only
   * the user's own receipt. If the app has not turned on read receipts for the room, the list is empty. If the room has more
   * than 300 receipts, for example of former members, the list is incomplete: it has the first 300, and all receipts that
   * arrive later.
   */
  receipts: readonly Receipt[];
  /**
   * In a large room: `count` users have read the message `seq`. When users read messages, each node (server process) sends a
   * new pair of `seq` and `count`, at most one in a second for each room. `seq` is the highest number that any user has reached
   * since the node's previous pair. So a later pair can have a lower `seq`. `count` has all users who have read this message,
   * whenever they read it.
   *
   * Before the first pair, the value is null. With the visibility policies `contacts`,
   * `recent_contacts` and `ask`, the server sends no pair.
   */
  readers: ReaderCount | null;
}

const NONE: ReceiptState = Object.freeze({ receipts: Object.freeze([]), readers: null });

/**
 * Return a source of the read receipts of a room: for each user, the last message that the user has read. While the source has
 * a subscriber, the client is in the room.
 */
export function receiptsSource(client: Greendot, room: string): Source<ReceiptState> {
  return sharedSource(client, `receipts ${room}`, () => new Receipts(client, room), NONE);
}

/** Return the ids of the other users who have read the message `seq`. Pass the value of a `receiptsSource`. */
export function seenBy(client: Greendot, { receipts }: ReceiptState, seq: number): string[] {
  return receipts.filter((one) => one.seq >= seq && one.user !== client.user).map(({ user }) => user);
}

class Receipts extends Shared<ReceiptState> {
  #room: Room;
  #fetch = 0; // number of the last fetch; answers to older ones are ignored
  #told = new Map<string, number>(); // receipts that came since the start of the last fetch

  constructor(client: Greendot, name: string) {
    super(NONE);
    this.#room = client.room(name);
  }

  protected override follow(): Undo[] {
    const room = this.#room;
    if (room.joined) void this.#list();
    return [
      room.on("joined", () => void this.#list()),
      room.on("receipt", ({ user, seq }) => {
        this.#told.set(user, seq);
        this.#show(this.value.receipts);
      }),
      room.on("receipt_count", (readers) => this.become({ ...this.value, readers })),
      room.on("removed", () => this.#end()),
      stay(room),
      () => this.#end(),
    ];
  }

  async #list(): Promise<void> {
    const fetch = ++this.#fetch;
    this.#told.clear();
    // The call fails if receipts are off or the room is large.
    const page = await this.#room.receipts({ limit: MOST }).catch(() => null);
    if (fetch === this.#fetch) this.#show(page?.receipts ?? []);
  }

  #show(known: readonly Receipt[]): void {
    const all = new Map(known.map((one) => [one.user, one.seq]));
    for (const [user, seq] of this.#told) all.set(user, Math.max(seq, all.get(user) ?? 0));
    const receipts = [...all].map(([user, seq]) => ({ user, seq })).sort((a, b) => (a.user < b.user ? -1 : 1));
    this.become({ ...this.value, receipts });
  }

  #end(): void {
    this.#fetch += 1;
    this.#told.clear();
    this.become(NONE);
  }
}
