// Users in a room, by id, with their names and info.

import type { Profile, Room, UserProfile } from "../index.js";

type Profiles = ReadonlyMap<string, Profile>;

// Highest number of users to list. By default (setting `typing.large_room`), this is also the number of users above which the server
// sends only the number of users, and no entries and exits.
const LISTED = 100;
const PAGE = 300; // the server's maximum per page

export class Presents {
  #room: Room<any, any>;
  #changed: (present: readonly string[], profiles: Profiles) => void;
  #users = new Set<string>();
  #profiles: Profiles = new Map();
  #moves: [user: string, isIn: boolean, profile: Profile][] = []; // entries and exits during a fetch
  #asking = 0; // number of the current fetch; 0 if there is none
  #asked = 0;

  constructor(room: Room<any, any>, changed: (present: readonly string[], profiles: Profiles) => void) {
    this.#room = room;
    this.#changed = changed;
  }

  /** Fetch the users in the room. */
  list(): void {
    if ((this.#room.count ?? 0) > LISTED) {
      this.#asking = 0;
      this.#become([], new Map());
    } else void this.#ask();
  }

  moved({ user, name = null, info }: { user: string } & Partial<Profile>, isIn: boolean): void {
    const profile = info ? { name, info } : { name };
    if (this.#asking) this.#moves.push([user, isIn, profile]);
    const users = new Set(this.#users);
    const profiles = new Map(this.#profiles);
    isIn ? users.add(user) && profiles.set(user, profile) : users.delete(user) && profiles.delete(user);
    this.#become([...users], profiles);
  }

  /** Take over the changed name or info of a user in the room. */
  changed(changed: UserProfile): void {
    if (this.#users.has(changed.user)) this.moved(changed, true);
  }

  /**
   * Process a new number of users. Fetch the list if no entry or exit follows at once: the server then sends only numbers, or
   * has just begun to send entries and exits again.
   */
  counted(): void {
    queueMicrotask(() => {
      if (!this.#asking && this.#room.joined && this.#room.count !== this.#users.size) this.list();
    });
  }

  end(): void {
    this.#asking = 0;
    this.#users = new Set();
    this.#profiles = new Map();
  }

  async #ask(): Promise<void> {
    const ask = (this.#asking = ++this.#asked);
    this.#moves = [];
    const page = await this.#room.present({ limit: PAGE }).catch(() => null); // fetched again at the next join
    if (ask !== this.#asking) return;
    this.#asking = 0;
    if (!page) return;
    const users = new Set(page.users);
    const profiles = new Map(Object.entries(page.profiles ?? {}));
    // Entries and exits during the fetch override the list.
    for (const [user, isIn, profile] of this.#moves) {
      isIn ? users.add(user) && profiles.set(user, profile) : users.delete(user) && profiles.delete(user);
    }
    this.#become([...users], profiles);
  }

  #become(users: string[], profiles: Profiles): void {
    const isSame = users.length === this.#users.size && users.every((user) => this.#users.has(user));
    const isNamed = JSON.stringify([...profiles].sort()) === JSON.stringify([...this.#profiles].sort());
    this.#users = new Set(users);
    this.#profiles = isNamed ? this.#profiles : profiles;
    if (!isSame || !isNamed) this.#changed(users.sort(), this.#profiles);
  }
}
