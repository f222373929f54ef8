// Users in a room, by id.

import type { Room } from "@greendot/client";

const LISTED = 100; // in larger rooms the server sends the count only, and no entries and exits
const PAGE = 300; // the server's maximum per page

export class Presents {
  #room: Room<any, any>;
  #changed: (present: readonly string[]) => void;
  #users = new Set<string>();
  #moves: [user: string, isIn: boolean][] = []; // entries and exits during a fetch
  #asking = 0; // number of the current fetch; 0 if there is none
  #asked = 0;

  constructor(room: Room<any, any>, changed: (present: readonly string[]) => void) {
    this.#room = room;
    this.#changed = changed;
  }

  /** Fetch the users in the room. */
  list(): void {
    if ((this.#room.count ?? 0) > LISTED) {
      this.#asking = 0;
      this.#become([]);
    } else void this.#ask();
  }

  moved(user: string, isIn: boolean): void {
    if (this.#asking) this.#moves.push([user, isIn]);
    if (isIn === this.#users.has(user)) return;
    this.#become(isIn ? [...this.#users, user] : [...this.#users].filter((other) => other !== user));
  }

  /** Process a new count. If no entry or exit follows at once, the room became large or small: fetch the list. */
  counted(): void {
    queueMicrotask(() => {
      if (!this.#asking && this.#room.joined && this.#room.count !== this.#users.size) this.list();
    });
  }

  end(): void {
    this.#asking = 0;
    this.#users.clear();
  }

  async #ask(): Promise<void> {
    const ask = (this.#asking = ++this.#asked);
    this.#moves = [];
    const page = await this.#room.present({ limit: PAGE }).catch(() => null); // fetched again at the next join
    if (ask !== this.#asking) return;
    this.#asking = 0;
    if (!page) return;
    const users = new Set(page.users);
    // Entries and exits during the fetch override the list.
    for (const [user, isIn] of this.#moves) isIn ? users.add(user) : users.delete(user);
    this.#become([...users]);
  }

  #become(users: string[]): void {
    const isSame = users.length === this.#users.size && users.every((user) => this.#users.has(user));
    this.#users = new Set(users);
    if (!isSame) this.#changed(users.sort());
  }
}
