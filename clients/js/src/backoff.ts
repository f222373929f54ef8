// How long to wait before the next attempt.

export interface Backoff {
  baseMs: number;
  capMs: number;
}

export const BACKOFF: Backoff = { baseMs: 500, capMs: 30_000 };

// A server's wish is honoured up to here: a wrong one must not send a client away for a day.
const LONGEST_HINT_MS = 300_000;

/**
 * Full jitter, anywhere between nothing and the bound, so that a crowd never returns as one. `failures` counts those in
 * a row, 0 if the connection had been good. `hintMs`, where the server gave it, is the least; the jitter comes on top.
 */
export function backoff(failures: number, hintMs: number | null, random: () => number, { baseMs, capMs } = BACKOFF): number {
  if (hintMs !== null) return Math.min(Math.max(hintMs, 0), LONGEST_HINT_MS) + random() * baseMs;
  return random() * Math.min(capMs, baseMs * 2 ** failures);
}
