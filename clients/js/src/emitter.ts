// Listeners by the type of event. One that throws harms no other.

import type { Undo } from "./options.js";

type Listener = (event: any) => void;

export class Emitter<Events> {
  #listeners = new Map<keyof Events, Set<{ call: Listener }>>();
  #failed: (error: unknown, type: unknown) => void;

  /** `failed` is told what a listener threw, and of which type of event. */
  constructor(failed: (error: unknown, type: unknown) => void) {
    this.#failed = failed;
  }

  on<Type extends keyof Events>(type: Type, call: (event: Events[Type]) => void): Undo {
    const entry = { call }; // of its own: the same function may listen twice
    const listeners = this.#listeners.get(type) ?? new Set();
    this.#listeners.set(type, listeners.add(entry));
    return () => void listeners.delete(entry);
  }

  emit<Type extends keyof Events>(type: Type, event: Events[Type]): void {
    // A copy: a listener may add another, which is not to hear of this one.
    for (const entry of [...(this.#listeners.get(type) ?? [])]) {
      // Undone by one before it in this very round: it must not be called any more.
      if (this.#listeners.get(type)!.has(entry)) attempt(entry.call, event, (error) => this.#failed(error, type));
    }
  }
}

/** Call `call`, and `failed` with what it throws. */
export function attempt<T>(call: (argument: T) => void, argument: T, failed: (error: unknown) => void): void {
  try {
    call(argument);
  } catch (error) {
    failed(error);
  }
}
