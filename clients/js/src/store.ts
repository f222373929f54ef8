// Storage of cursors (the last delivered number of each room and of the inbox) and of this device's name.

import type { Clock } from "./clock.js";
import { because, type GreendotError } from "./errors.js";
import { MOST_ROOMS, SAVE_MS } from "./limits.js";
import type { Store, Undo } from "./options.js";

/** Return a storage in memory, which lasts as long as the page. */
export function memoryStore(): Store {
  const kept = new Map<string, string>();
  return { get: (key) => kept.get(key) ?? null, set: (key, value) => void kept.set(key, value) };
}

/** Return a storage in `localStorage` or another Storage, under names that begin with `prefix`. */
export function localStore(prefix = "greendot:", storage: Pick<Storage, "getItem" | "setItem"> = localStorage): Store {
  return { get: (key) => storage.getItem(prefix + key), set: (key, value) => storage.setItem(prefix + key, value) };
}

export class Cursors {
  _inbox: number | null = null;
  #store: Store;
  #clock: Clock;
  #failed: (error: GreendotError) => void;
  #owner: string | null = null;
  #rooms = new Map<string, number>();
  #saving: Undo | null = null;

  constructor(store: Store, clock: Clock, failed: (error: GreendotError) => void) {
    this.#store = store;
    this.#clock = clock;
    this.#failed = failed;
  }

  room(name: string): number | null {
    return this.#rooms.get(name) ?? null;
  }

  /** Save and detach the previous user: moves until `load` are not saved. Returns false if the user is the same. */
  _leave(owner: string): boolean {
    if (owner === this.#owner) return false;
    this._save();
    this.#owner = null;
    return true;
  }

  /** Load the cursors of this user. */
  async _load(owner: string): Promise<void> {
    const kept = await this.#guarded(async () => JSON.parse((await this.#store.get(`cursors:${owner}`)) ?? "{}"));
    this.#owner = owner;
    this.#rooms = new Map(Object.entries<number>(kept?.rooms ?? {}).filter(([, seq]) => Number.isSafeInteger(seq)));
    this._inbox = Number.isSafeInteger(kept?.inbox) ? kept.inbox : null;
  }

  /** Move the cursor of a room. Null removes it. */
  _moveRoom(name: string, seq: number | null): void {
    this.#rooms.delete(name); // moved to the end, because it was used last
    if (seq !== null) this.#rooms.set(name, seq);
    const [oldest] = this.#rooms.keys();
    if (this.#rooms.size > MOST_ROOMS) this.#rooms.delete(oldest!);
    this.#later();
  }

  _moveInbox(seq: number | null): void {
    this._inbox = seq;
    this.#later();
  }

  _save(): void {
    if (!this.#saving) return;
    this.#saving();
    this.#saving = null;
    const kept = JSON.stringify({ rooms: Object.fromEntries(this.#rooms), inbox: this._inbox });
    const owner = this.#owner;
    void this.#guarded(async () => this.#store.set(`cursors:${owner}`, kept));
  }

  /** Return this device's name. It is the same as long as the storage keeps it. */
  async device(make: () => string): Promise<string> {
    const kept = await this.#guarded(async () => this.#store.get("device"));
    if (kept) return kept;
    const made = make();
    await this.#guarded(async () => this.#store.set("device", made));
    return made;
  }

  #later(): void {
    if (this.#owner !== null) this.#saving ??= this.#clock.after(SAVE_MS, () => this._save());
  }

  async #guarded<T>(work: () => Promise<T>): Promise<T | null> {
    try {
      return await work();
    } catch (error) {
      this.#failed(because("storage", "storage failed", error));
      return null;
    }
  }
}
