// Delay before the next connection attempt.

import { LONGEST_HINT_MS } from "./limits.js";

export interface Backoff {
  baseMs: number;
  capMs: number;
}

export const BACKOFF: Backoff = { baseMs: 500, capMs: 30_000 };

/**
 * Return a delay with full jitter: a random time from 0 to the bound, so that many clients do not return together.
 * `failures` is the number of failed attempts in a row, 0 after a good connection. `hintMs` is the server's minimum
 * delay, or null. The jitter is added to it.
 */
export function backoff(failures: number, hintMs: number | null, random: () => number, { baseMs, capMs } = BACKOFF): number {
  if (hintMs !== null) return Math.min(Math.max(hintMs, 0), LONGEST_HINT_MS) + random() * baseMs;
  return random() * Math.min(capMs, baseMs * 2 ** failures);
}
