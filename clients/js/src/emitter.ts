// Listeners by event type. A listener that throws does not affect other listeners.

import { GreendotError } from "./errors.js";
import type { Undo } from "./options.js";

type Listener = (event: any) => void;

export class Emitter<Events> {
  #listeners: Map<unknown, Set<{ call: Listener }>>;
  #failed: (error: unknown, type: unknown) => void;

  /** `failed` is called with the error of a listener and with the event type. The keys of `known` are the event types. */
  constructor(failed: (error: unknown, type: unknown) => void, known: Record<keyof Events, 1>) {
    this.#failed = failed;
    this.#listeners = new Map(Object.keys(known).map((type) => [type, new Set()]));
  }

  on<Type extends keyof Events>(type: Type, call: (event: Events[Type]) => void): Undo {
    const entry = { call }; // a separate object, because the same function may listen twice
    const listeners = this.#listeners.get(type);
    if (!listeners) throw new GreendotError("bad_field", unknown(String(type), [...this.#listeners.keys()] as string[]));
    listeners.add(entry);
    return () => void listeners.delete(entry);
  }

  emit<Type extends keyof Events>(type: Type, event: Events[Type]): void {
    const listeners = this.#listeners.get(type)!;
    // A copy: a listener may add another listener, which must not receive this event.
    for (const entry of [...listeners]) {
      // An earlier listener of this loop may have removed this one.
      if (listeners.has(entry)) attempt(entry.call, event, (error) => this.#failed(error, type));
    }
  }
}

/** Return the sentence about an unknown event, with the known one that has the most pairs of letters in common. */
function unknown(type: string, known: string[]): string {
  const pairs = (name: string) => [...name.slice(1)].filter((letter, at) => type.includes(name[at]! + letter)).length;
  const [nearest] = known.sort((a, b) => pairs(b) - pairs(a));
  return `unknown event "${type}"; ` + (pairs(nearest!) ? `did you mean "${nearest}"?` : `use one of ${known.join(", ")}`);
}

/** Call `call`. If it throws, call `failed` with the error. */
export function attempt<T>(call: (argument: T) => void, argument: T, failed: (error: unknown) => void): void {
  try {
    call(argument);
  } catch (error) {
    failed(error);
  }
}
