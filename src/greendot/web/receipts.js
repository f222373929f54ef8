// Read receipts of one room: how far other users have read.

const MOST = 300; // receipts in one reply of the server

export class Receipts {
  #room;
  #fetches = 0; // replies to earlier fetches are dropped
  #listed = []; // the last reply
  #later = new Map(); // user → seq of receipts since the fetch
  #onChange;

  constructor(room, onChange) {
    this.#room = room;
    this.#onChange = onChange;
    room.on("joined", () => this.#fetch()); // receipts are not delivered to devices that are away
    room.on("receipt", ({ user, seq }) => {
      this.#later.set(user, seq);
      onChange();
    });
  }

  /** Return how far users have read: user → seq. */
  get read() {
    const read = new Map(this.#listed.map(({ user, seq }) => [user, seq]));
    for (const [user, seq] of this.#later) read.set(user, Math.max(seq, read.get(user) ?? 0));
    return read;
  }

  async #fetch() {
    const number = ++this.#fetches;
    this.#later.clear();
    const page = await this.#room.receipts({ limit: MOST }).catch(() => null); // a room without receipts, or a large one
    if (number !== this.#fetches) return;
    this.#listed = page?.receipts ?? [];
    this.#onChange();
  }
}

/** Return the last message that another user than its author has read, and these users; null if there is none. */
export function lastSeen(messages, read, me) {
  const readersOf = ({ seq, user: author }) =>
    [...read].filter(([user, to]) => to >= seq && user !== me && user !== author).map(([user]) => user);
  const message = messages.findLast((one) => readersOf(one).length > 0);
  return message ? { seq: message.seq, users: readersOf(message) } : null;
}
