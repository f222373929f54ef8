// Listeners by event type. A listener that throws does not affect other listeners.

import type { Undo } from "./options.js";

type Listener = (event: any) => void;

export class Emitter<Events> {
  #listeners = new Map<keyof Events, Set<{ call: Listener }>>();
  #failed: (error: unknown, type: unknown) => void;

  /** `failed` is called with the error of a listener and with the event type. */
  constructor(failed: (error: unknown, type: unknown) => void) {
    this.#failed = failed;
  }

  on<Type extends keyof Events>(type: Type, call: (event: Events[Type]) => void): Undo {
    const entry = { call }; // a separate object, because the same function may listen twice
    const listeners = this.#listeners.get(type) ?? new Set();
    this.#listeners.set(type, listeners.add(entry));
    return () => void listeners.delete(entry);
  }

  emit<Type extends keyof Events>(type: Type, event: Events[Type]): void {
    // A copy: a listener may add another listener, which must not receive this event.
    for (const entry of [...(this.#listeners.get(type) ?? [])]) {
      // An earlier listener of this loop may have removed this one.
      if (this.#listeners.get(type)!.has(entry)) attempt(entry.call, event, (error) => this.#failed(error, type));
    }
  }
}

/** Call `call`. If it throws, call `failed` with the error. */
export function attempt<T>(call: (argument: T) => void, argument: T, failed: (error: unknown) => void): void {
  try {
    call(argument);
  } catch (error) {
    failed(error);
  }
}
