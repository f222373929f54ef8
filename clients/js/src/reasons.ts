// Why a client is not online, in words a person can be shown, and what they can do about it.

/**
 * What there is to do:
 * - `wait`: nothing; the client returns by itself
 * - `check-network`: this device has no network
 * - `sign-in`: the person has to sign in again, then `connect()`
 * - `reload`: the page is older than the server takes: load it again
 * - `use-here`: another page has taken the session over; `connect()` takes it back
 * - `ask`: somebody at the other end decided so
 * - `none`: it was wanted
 */
export type Action = "wait" | "check-network" | "sign-in" | "reload" | "use-here" | "ask" | "none";

export interface Reason {
  /** The close code, or a word: `offline`, `no_token`, `unreachable`, `closed`, or the code of an error. */
  readonly code: number | string;
  /** A sentence to show. */
  readonly text: string;
  readonly action: Action;
  /** How long until the next attempt, measured when this was told; null where there will be none. */
  readonly retryInMs: number | null;
  /** What the server said, for logs. */
  readonly detail: string;
}
