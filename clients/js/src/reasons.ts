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
  /** The close code, or a word: `unreachable`, `offline`, `no_token`, `closed`, or the code of an error. */
  readonly code: number | string;
  /** A sentence to show. */
  readonly text: string;
  readonly action: Action;
  /** How long until the next attempt, measured when this was told; null where there will be none. */
  readonly retryInMs: number | null;
  /** What the server said, for logs. */
  readonly detail: string;
}

/** Code → what to show and what there is to do. Others are `refused` from 4500 to 4999, else `lost`. */
export const REASONS: Readonly<Record<number | string, readonly [text: string, action: Action]>> = {
  unreachable: ["The server cannot be reached.", "wait"],
  lost: ["The connection was lost.", "wait"],
  offline: ["This device is offline.", "check-network"],
  no_token: ["Your sign-in could not be checked.", "wait"],
  signed_out: ["You are not signed in.", "sign-in"],
  refused: ["The server did not let this page in.", "reload"],
  closed: ["Disconnected.", "none"],
  4000: ["The server is restarting.", "wait"],
  4001: ["The connection was too slow.", "wait"],
  4003: ["The server is very busy.", "wait"],
  4004: ["Catching up with what was missed.", "wait"],
  4005: ["Your sign-in is being renewed.", "wait"],
  4500: ["Your sign-in is not valid.", "sign-in"],
  4501: ["You were signed out.", "sign-in"],
  4502: ["This page does not understand the server.", "reload"],
  4503: ["You were disconnected by the operator.", "ask"],
  4504: ["This page is out of date.", "reload"],
  4505: ["You are connected in another window.", "use-here"],
};

/** Whether a socket closed with `code` is not to come back. Everything else says nothing against it. */
export function isFinal(code: number): boolean {
  return code >= 4500 && code <= 4999;
}

export function reasonFor(code: number | string, detail = "", retryInMs: number | null = null): Reason {
  const other = typeof code === "number" && !isFinal(code) ? "lost" : "refused";
  const [text, action] = REASONS[code] ?? REASONS[other]!;
  return { code, text, action, retryInMs, detail };
}
