// Everything that can go wrong, as one class whose `code` says what.

/** The server's codes (docs/protocol.md, Errors), and the client's own. */
export type ErrorCode =
  | "bad_frame"
  | "unknown_type"
  | "bad_field"
  | "not_a_member"
  | "forbidden"
  | "rate_limited"
  | "too_many"
  | "unavailable"
  | "internal"
  /** Not connected, or no longer before the answer came. */
  | "disconnected"
  /** The client was closed, by the program or the server. */
  | "closed"
  /** More waits to be sent than `queue` allows. */
  | "queue_full"
  /** Longer than the server reads. */
  | "too_large"
  /** `getToken` failed. */
  | "no_token"
  /** The storage failed. */
  | "storage"
  /** A listener threw; see `cause`. */
  | "listener"
  | (string & {});

/** What somebody else's code threw, as ours. */
export function because(code: ErrorCode, what: string, cause: unknown): GreendotError {
  return new GreendotError(code, `${what}: ${(cause as Error)?.message ?? cause}`, true, null, cause);
}

export class GreendotError extends Error {
  override name = "GreendotError";

  constructor(
    readonly code: ErrorCode,
    message: string,
    /** Whether the same may succeed later, without change. */
    readonly retry = false,
    /** After how long, where the server said so. */
    readonly retryInMs: number | null = null,
    cause?: unknown,
  ) {
    super(message, cause === undefined ? undefined : { cause });
  }
}
