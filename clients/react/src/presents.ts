// Who is in a room, by id.

import type { Room } from "@greendot/client";

const LISTED = 100; // above, the server tells how many there are, and not who comes and goes
const PAGE = 300; // the most a server gives at once

export class Presents {
  #room: Room<any, any>;
  #changed: (present: readonly string[]) => void;
  #users = new Set<string>();
  #moves: [user: string, isIn: boolean][] = []; // while the list is on its way
  #asking = 0; // the number of the question under way; 0 if none is
  #asked = 0;

  constructor(room: Room<any, any>, changed: (present: readonly string[]) => void) {
    this.#room = room;
    this.#changed = changed;
  }

  /** Ask who is there. */
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

  /** How many are there has changed. Whoever it was is told right after; if not, the room became a large one, or small. */
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
    const page = await this.#room.present({ limit: PAGE }).catch(() => null); // asked again at the next join
    if (ask !== this.#asking) return;
    this.#asking = 0;
    if (!page) return;
    const users = new Set(page.users);
    // Whatever happened while the list was made: the last that is known of somebody holds.
    for (const [user, isIn] of this.#moves) isIn ? users.add(user) : users.delete(user);
    this.#become([...users]);
  }

  #become(users: string[]): void {
    const isSame = users.length === this.#users.size && users.every((user) => this.#users.has(user));
    this.#users = new Set(users);
    if (!isSame) this.#changed(users.sort());
  }
}
