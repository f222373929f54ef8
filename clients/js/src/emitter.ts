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

/** Return the sentence about an unknown event: the nearest known one, or all of them. */
function unknown(type: string, known: string[]): string {
  const [nearest] = known.map((name) => ({ name, edits: distance(type.slice(0, 64), name) })).sort((a, b) => a.edits - b.edits);
  const isNear = nearest!.edits <= nearest!.name.length / 2;
  return `unknown event "${type}"; ${isNear ? `did you mean "${nearest!.name}"?` : `use one of ${known.join(", ")}`}`;
}

/** Return the number of letters to insert, remove or replace to get from `a` to `b`. */
function distance(a: string, b: string): number {
  let row = [...b, b].map((_, at) => at);
  for (const letter of a) {
    const next = [row[0]! + 1];
    for (let at = 0; at < b.length; at++) {
      next.push(Math.min(row[at]! + Number(letter !== b[at]), row[at + 1]! + 1, next[at]! + 1));
    }
    row = next;
  }
  return row[b.length]!;
}

/** Call `call`. If it throws, call `failed` with the error. */
export function attempt<T>(call: (argument: T) => void, argument: T, failed: (error: unknown) => void): void {
  try {
    call(argument);
  } catch (error) {
    failed(error);
  }
}
