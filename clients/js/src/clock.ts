// Clock and timers as a parameter, so that tests do not wait.

import { LONGEST_MS, RETRY_MS } from "./limits.js";

export interface Clock {
  /** Milliseconds since 1970. */
  now(): number;
  /** Call `call` after `ms` milliseconds. Returns a function that cancels the call. */
  after(ms: number, call: () => void): () => void;
}

/** Wait before a command is sent again: the server's delay, or the default. */
export function pause(clock: Clock, retryInMs: number | null): Promise<void> {
  return new Promise((resolve) => clock.after(retryInMs ?? RETRY_MS, resolve));
}

export const systemClock: Clock = {
  now: () => Date.now(),
  after(ms, call) {
    const timer = setTimeout(call, Math.min(ms, LONGEST_MS));
    return () => clearTimeout(timer);
  },
};
