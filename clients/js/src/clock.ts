// Time as an argument, so that tests need not wait for it.

export interface Clock {
  /** Milliseconds since 1970. */
  now(): number;
  /** Call `call` after `ms`; the answer takes that back. */
  after(ms: number, call: () => void): () => void;
}

const LONGEST_MS = 0x7fffffff; // setTimeout takes longer ones for none at all

export const systemClock: Clock = {
  now: () => Date.now(),
  after(ms, call) {
    const timer = setTimeout(call, Math.min(ms, LONGEST_MS));
    return () => clearTimeout(timer);
  },
};
