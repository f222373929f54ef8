// The client's error class. Its `code` identifies the failure.

/** Error codes of the server (docs/protocol.md, Errors) and of the client. */
export type ErrorCode =
  | "bad_frame"
  | "unknown_type"
  | "bad_field"
  | "not_a_member"
  | "no_such_room"
  | "forbidden"
  /** The app has muted the user: the user can only read. */
  | "muted"
  /** The app has banned the user from the room, or from the tenant. */
  | "banned"
  /** The room is in slow mode: send again after `retryInMs`. */
  | "slow_mode"
  /** The app refused the message before it was published. */
  | "rejected"
  | "rate_limited"
  | "too_many"
  | "unavailable"
  | "internal"
  /** There is no connection, or it was lost before the answer. */
  | "disconnected"
  /** The program or the server closed the client. */
  | "closed"
  /** The commands that wait exceed the option `queue`. */
  | "queue_full"
  /** The command exceeds the server's frame limit. */
  | "too_large"
  /** `getToken` failed. */
  | "no_token"
  /** The storage failed. */
  | "storage"
  /** A listener threw; see `cause`. */
  | "listener"
  | (string & {});

/** Wrap an error of a callback, a listener or a storage in a GreendotError. */
export function because(code: ErrorCode, what: string, cause: unknown): GreendotError {
  return new GreendotError(code, `${what}: ${(cause as Error)?.message ?? cause}`, true, null, cause);
}

export class GreendotError extends Error {
  override name = "GreendotError";

  constructor(
    readonly code: ErrorCode,
    message: string,
    /** Whether the same call may succeed later without change. */
    readonly retry = false,
    /** Delay before a retry that the server gave, or null. */
    readonly retryInMs: number | null = null,
    cause?: unknown,
  ) {
    super(message, cause === undefined ? undefined : { cause });
  }
}
