// Where cursors are kept: how far each room and the inbox were told, and this device's name.

import type { Clock } from "./clock.js";
import { because, type GreendotError } from "./errors.js";
import { MOST_ROOMS, SAVE_MS } from "./limits.js";
import type { Store, Undo } from "./options.js";

/** Keeps strings as long as the page is there. */
export function memoryStore(): Store {
  const kept = new Map<string, string>();
  return { get: (key) => kept.get(key) ?? null, set: (key, value) => void kept.set(key, value) };
}

/** Keeps strings in localStorage (or what is given), under names that begin with `prefix`. */
export function localStore(prefix = "greendot:", storage: Pick<Storage, "getItem" | "setItem"> = localStorage): Store {
  return { get: (key) => storage.getItem(prefix + key), set: (key, value) => storage.setItem(prefix + key, value) };
}

export class Cursors {
  #store: Store;
  #clock: Clock;
  #failed: (error: GreendotError) => void;
  #owner: string | null = null;
  #rooms = new Map<string, number>();
  #inbox: number | null = null;
  #saving: Undo | null = null;

  constructor(store: Store, clock: Clock, failed: (error: GreendotError) => void) {
    this.#store = store;
    this.#clock = clock;
    this.#failed = failed;
  }

  get inbox(): number | null {
    return this.#inbox;
  }

  room(name: string): number | null {
    return this.#rooms.get(name) ?? null;
  }

  /** Make room for another user: what moves until `load` is nobody's. False if it is the same one. */
  leave(owner: string): boolean {
    if (owner === this.#owner) return false;
    this.save();
    this.#owner = null;
    return true;
  }

  /** What was kept for this user. */
  async load(owner: string): Promise<void> {
    const kept = await this.#guarded(async () => JSON.parse((await this.#store.get(`cursors:${owner}`)) ?? "{}"));
    this.#owner = owner;
    this.#rooms = new Map(Object.entries<number>(kept?.rooms ?? {}).filter(([, seq]) => Number.isSafeInteger(seq)));
    this.#inbox = Number.isSafeInteger(kept?.inbox) ? kept.inbox : null;
  }

  /** Null forgets. */
  moveRoom(name: string, seq: number | null): void {
    this.#rooms.delete(name); // moved to the end: used last
    if (seq !== null) this.#rooms.set(name, seq);
    const [oldest] = this.#rooms.keys();
    if (this.#rooms.size > MOST_ROOMS) this.#rooms.delete(oldest!);
    this.#later();
  }

  moveInbox(seq: number | null): void {
    this.#inbox = seq;
    this.#later();
  }

  save(): void {
    if (!this.#saving) return;
    this.#saving();
    this.#saving = null;
    const kept = JSON.stringify({ rooms: Object.fromEntries(this.#rooms), inbox: this.#inbox });
    const owner = this.#owner;
    void this.#guarded(async () => this.#store.set(`cursors:${owner}`, kept));
  }

  /** This device's name: the same as long as the storage keeps it. */
  async device(make: () => string): Promise<string> {
    const kept = await this.#guarded(async () => this.#store.get("device"));
    if (kept) return kept;
    const made = make();
    await this.#guarded(async () => this.#store.set("device", made));
    return made;
  }

  #later(): void {
    if (this.#owner !== null) this.#saving ??= this.#clock.after(SAVE_MS, () => this.save());
  }

  async #guarded<T>(work: () => Promise<T>): Promise<T | null> {
    try {
      return await work();
    } catch (error) {
      this.#failed(because("storage", "the storage failed", error));
      return null;
    }
  }
}
