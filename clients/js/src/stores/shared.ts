// Stores shared by components: started by the first component and stopped after the last.

import type { Greendot, Undo } from "../index.js";

/**
 * Value that changes with time, such as the presence of users. An adapter for a UI framework turns a source into the state
 * of that framework, such as a hook in React or a ref in Vue.
 */
export interface Source<Value> {
  /** Value during server rendering, and during the first render of a server-rendered page in the browser (hydration). */
  readonly empty: Value;
  /** Return the current value. If the value has not changed, this is the same object as before. */
  get(): Value;
  /**
   * Call `changed` after each change. Returns a function that ends the subscription. While the source has a subscriber, the
   * client keeps the value up to date.
   */
  subscribe(changed: () => void): Undo;
}

/** Store of a value that components show. */
export abstract class Shared<Value> {
  #value: Value;
  #listeners = new Set<{ call: () => void }>();
  #undo: Undo[] = [];

  constructor(value: Value) {
    this.#value = value;
  }

  get value(): Value {
    return this.#value;
  }

  get isUsed(): boolean {
    return this.#listeners.size > 0;
  }

  /** Subscribe to the client. The returned functions are called when no component uses the store. */
  protected abstract follow(): Undo[];

  start(): void {
    this.#undo = this.follow();
  }

  stop(): void {
    for (const undo of this.#undo.splice(0)) undo();
  }

  listen(call: () => void): Undo {
    const entry = { call };
    this.#listeners.add(entry);
    return () => void this.#listeners.delete(entry);
  }

  protected become(value: Value): void {
    if (Object.is(value, this.#value)) return;
    this.#value = value;
    for (const { call } of [...this.#listeners]) call();
  }
}

/** The stores of one client, by name. */
class Shelf {
  #stores = new Map<string, Shared<any>>();

  get all(): Iterable<Shared<any>> {
    return this.#stores.values();
  }

  find(name: string): Shared<any> | undefined {
    return this.#stores.get(name);
  }

  follow(name: string, make: () => Shared<any>, changed: () => void): Undo {
    const store = this.#stores.get(name) ?? this.#begin(name, make());
    const undo = store.listen(changed);
    return () => {
      undo();
      // Deferred: StrictMode, or a component that replaces another, uses the store again in the same turn.
      queueMicrotask(() => this.#endUnused(name, store));
    };
  }

  #begin(name: string, store: Shared<any>): Shared<any> {
    this.#stores.set(name, store);
    store.start();
    return store;
  }

  #endUnused(name: string, store: Shared<any>): void {
    if (store.isUsed || this.#stores.get(name) !== store) return;
    this.#stores.delete(name);
    store.stop();
  }
}

const shelves = new WeakMap<Greendot, Shelf>();

export function shelfOf(client: Greendot): Shelf {
  const shelf = shelves.get(client) ?? new Shelf();
  shelves.set(client, shelf);
  return shelf;
}

/**
 * Return the source of the store `name`, which `make` creates for the first subscriber. Rendering starts nothing, so a
 * component that is never mounted leaves nothing behind. Values that `make` uses must be part of `name`. Otherwise the values
 * of the first subscriber apply to all subscribers.
 */
export function sharedSource<Value>(client: Greendot, name: string, make: () => Shared<Value>, empty: Value): Source<Value> {
  const shelf = shelfOf(client);
  return {
    empty,
    get: () => (shelf.find(name)?.value as Value | undefined) ?? empty,
    subscribe: (changed) => shelf.follow(name, make, changed),
  };
}

/**
 * Return the same promise. If the caller ignores the promise, as in `onClick={() => void markRead()}`, an error causes no
 * unhandled rejection.
 */
export function ignorable<Value>(promise: Promise<Value>): Promise<Value> {
  promise.catch(() => {});
  return promise;
}
