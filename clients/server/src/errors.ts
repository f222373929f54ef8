// Errors of the package, in one tree:
//
// GreendotError
// ├── InvalidArgument      the call itself is wrong; no request was sent
// ├── BadWebhook           a request that Greendot did not send, or did not send recently
// └── ServerError
//     ├── Unreachable      no answer: the request may or may not have been carried out
//     ├── BadAnswer        an answer that this version cannot read
//     └── Problem          a refusal of the server (RFC 9457)
//         ├── BadRequest   400, 413     ├── NotFound     404
//         ├── BadKey       401          ├── Conflict     409
//         ├── Forbidden    403          ├── RateLimited  429
//         └── Unavailable  502, 503, 504
//
// No error contains an API key, a secret or a token. The `detail` of a Problem is a text from the server. This text can
// quote parts of the request, such as an id or a wrong value.

import type { WireCode } from "./api.js";

/** Code of an error: one of the server (docs/protocol.md, Errors), or one of the package. */
export type ErrorCode =
  | WireCode
  | "invalid_argument"
  | "bad_webhook"
  | "unreachable"
  | "bad_answer"
  | "bad_request"
  | "bad_key"
  | "not_found"
  | "conflict"
  | "problem"
  | (string & {});

/** Root of all errors of the package. */
export class GreendotError extends Error {
  override name = "GreendotError";

  constructor(
    readonly code: ErrorCode,
    message: string,
    /** HTTP status of the answer; null without an answer. */
    readonly status: number | null = null,
    /** Seconds to wait before the next attempt, if the server gave them; else null. */
    readonly retryAfter: number | null = null,
  ) {
    super(message);
  }
}

/** Wrong argument. No request was sent; correct the call. */
export class InvalidArgument extends GreendotError {
  override name = "InvalidArgument";

  constructor(message: string) {
    super("invalid_argument", message);
  }
}

/** Request that Greendot did not send, or did not send recently. Answer it with status 400. */
export class BadWebhook extends GreendotError {
  override name = "BadWebhook";

  constructor(message: string) {
    super("bad_webhook", message);
  }
}

/** Root of the errors between a backend and its Greendot server. */
export class ServerError extends GreendotError {
  override name = "ServerError";
}

/** Failure of every attempt without an answer. The request may have been carried out; send it again with the same key. */
export class Unreachable extends ServerError {
  override name = "Unreachable";

  constructor(message: string) {
    super("unreachable", message);
  }
}

/** Answer that this version cannot read: from another version, or not from Greendot. */
export class BadAnswer extends ServerError {
  override name = "BadAnswer";

  constructor(message: string, status: number) {
    super("bad_answer", message, status);
  }
}

/** Refusal of the server. `detail` names the reason and the remedy. */
export class Problem extends ServerError {
  override name = "Problem";
  declare readonly status: number;

  constructor(
    status: number,
    readonly title: string,
    readonly detail: string,
    code: ErrorCode,
    retryAfter: number | null = null,
  ) {
    super(code, `${status} ${title}${detail && `: ${detail}`}`, status, retryAfter);
  }
}

/** Wrong request. A retry would be refused again. */
export class BadRequest extends Problem {
  override name = "BadRequest";
}

/** API key that is missing, unknown or expired. */
export class BadKey extends Problem {
  override name = "BadKey";
}

/** API key without the scope that `detail` names. */
export class Forbidden extends Problem {
  override name = "Forbidden";
}

/** Room, message, session or path that does not exist. */
export class NotFound extends Problem {
  override name = "NotFound";
}

/** Room that cannot be created yet, because a deleted room of this name is being removed. Call again later. */
export class Conflict extends Problem {
  override name = "Conflict";
}

/** Request over a rate limit. The server did nothing of it. */
export class RateLimited extends Problem {
  override name = "RateLimited";
}

/** Server that cannot carry out the request now. Send it again with the same key. */
export class Unavailable extends Problem {
  override name = "Unavailable";
}

const KINDS: Record<number, [typeof Problem, ErrorCode]> = {
  400: [BadRequest, "bad_request"],
  401: [BadKey, "bad_key"],
  403: [Forbidden, "forbidden"],
  404: [NotFound, "not_found"],
  409: [Conflict, "conflict"],
  413: [BadRequest, "bad_request"],
  429: [RateLimited, "rate_limited"],
  502: [Unavailable, "unavailable"],
  503: [Unavailable, "unavailable"],
  504: [Unavailable, "unavailable"],
};

/** Return the error for a refusal. If the server gave no code, the error has the code of its class. */
export function problem(status: number, title: string, detail: string, code: string | undefined, retryAfter: number | null): Problem {
  const [Kind, own] = KINDS[status] ?? [Problem, "problem"];
  return new Kind(status, title, detail, code ?? own, retryAfter);
}
