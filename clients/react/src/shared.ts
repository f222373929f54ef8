// What several components show: held once for all of them, begun with the first and ended with the last.

import type { Greendot, Undo } from "@greendot/client";
import { useCallback, useSyncExternalStore } from "react";
import { useGreendot } from "./provider.js";

/** A value that components show, another object after each change. */
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

  /** Begin to follow what is shown. What it returns is called when nobody shows it any more. */
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

/** What the components under one client show, by name. */
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
      // Not yet: in StrictMode, and where one component takes the place of another, it is wanted again this very turn.
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
 * The value of the store `name`, which `make` makes where nobody shows it yet; `empty` before, and on a server. Rendering
 * begins nothing: a component that is never mounted leaves nothing behind.
 */
export function useShared<Value>(name: string, make: (client: Greendot) => Shared<Value>, empty: Value): Value {
  const client = useGreendot();
  const shelf = shelfOf(client);
  const subscribe = useCallback(
    (changed: () => void) => shelf.follow(name, () => make(client), changed),
    // What `make` closes over is in the name, or counts only for the first to show it.
    [shelf, client, name],
  );
  const value = () => (shelf.find(name)?.value as Value | undefined) ?? empty;
  return useSyncExternalStore(subscribe, value, () => empty);
}

/** The same promise. Who ignores it, as `onClick={() => void markRead()}` does, causes no unhandled rejection. */
export function ignorable<Value>(promise: Promise<Value>): Promise<Value> {
  promise.catch(() => {});
  return promise;
}
