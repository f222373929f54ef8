// Reasons why a client is not online, with a text to show and an action for the user.

/**
 * Action for the user:
 * - `wait`: no action; the client reconnects by itself
 * - `check-network`: this device has no network
 * - `sign-in`: let the user sign in again, then call `connect()`
 * - `reload`: load the page again, because the server does not accept this version
 * - `use-here`: another page has taken over the session; `connect()` takes it back
 * - `ask`: an operator disconnected the user; ask the operator
 * - `none`: the program closed the client
 */
export type Action = "wait" | "check-network" | "sign-in" | "reload" | "use-here" | "ask" | "none";

export interface Reason {
  /** The close code, `unreachable`, `offline`, `no_token`, `closed`, or the code of an error. */
  readonly code: number | string;
  /** Sentence to show to the user. */
  readonly text: string;
  readonly action: Action;
  /** Time until the next attempt, counted from the event; null if there will be none. */
  readonly retryInMs: number | null;
  /** Details for logs, for example the server's close reason. */
  readonly detail: string;
}

/** Text and action by code. Other codes are `refused` from 4500 to 4999, else `lost`. */
export const REASONS: Readonly<Record<number | string, readonly [text: string, action: Action]>> = {
  unreachable: ["The server cannot be reached.", "wait"],
  lost: ["The connection was lost.", "wait"],
  offline: ["This device is offline.", "check-network"],
  no_token: ["Your sign-in could not be checked.", "wait"],
  signed_out: ["You are not signed in.", "sign-in"],
  refused: ["The server refused this page.", "reload"],
  closed: ["Disconnected.", "none"],
  4000: ["The server is restarting.", "wait"],
  4001: ["The connection was too slow.", "wait"],
  4003: ["The server is very busy.", "wait"],
  4004: ["Missed updates are being loaded.", "wait"],
  4005: ["Your sign-in is being renewed.", "wait"],
  4500: ["Your sign-in is not valid.", "sign-in"],
  4501: ["You were signed out.", "sign-in"],
  4502: ["A protocol error occurred.", "reload"],
  4503: ["You were disconnected by the operator.", "ask"],
  4504: ["This page is out of date.", "reload"],
  4505: ["You are connected in another window.", "use-here"],
};

/** Return whether the close code forbids a reconnect. All other codes allow it. */
export function isFinal(code: number): boolean {
  return code >= 4500 && code <= 4999;
}

export function reasonFor(code: number | string, detail = "", retryInMs: number | null = null): Reason {
  const other = typeof code === "number" && !isFinal(code) ? "lost" : "refused";
  const [text, action] = REASONS[code] ?? REASONS[other]!;
  return { code, text, action, retryInMs, detail };
}
