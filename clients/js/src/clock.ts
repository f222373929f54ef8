// Clock and timers as a parameter, so that tests do not wait.

export interface Clock {
  /** Milliseconds since 1970. */
  now(): number;
  /** Call `call` after `ms` milliseconds. Returns a function that cancels the call. */
  after(ms: number, call: () => void): () => void;
}

const LONGEST_MS = 0x7fffffff; // setTimeout fires at once for longer delays

export const systemClock: Clock = {
  now: () => Date.now(),
  after(ms, call) {
    const timer = setTimeout(call, Math.min(ms, LONGEST_MS));
    return () => clearTimeout(timer);
  },
};
