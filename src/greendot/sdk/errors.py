"""Errors of the backend SDK.

GreendotError
├── ServerError
│   ├── Unreachable          no response: the request may or may not have been carried out
│   ├── BadAnswer            response that this version cannot decode
│   └── Problem              refusal with an RFC 9457 document
│       ├── BadRequest       400, 413: the request is wrong; `detail` names the reason
│       ├── BadKey           401: the API key is missing, unknown or expired
│       ├── Forbidden        403: the key lacks the scope that `detail` names
│       ├── NotFound         404: there is no such room, message or session
│       ├── Conflict         409: a deleted room of this name is being removed; retry later
│       ├── RateLimited      429: too many requests; nothing was done. `retry_after_s`: seconds to wait
│       └── Unavailable      502, 503, 504: not now; retry with the same key
└── BadWebhook               request that Greendot did not send, or did not send recently

No error contains the API key, a secret or a token. The `detail` of a Problem is a text from the server. This text can
quote parts of the request, such as an id or a wrong value.
"""

from __future__ import annotations

from greendot.errors import GreendotError


class ServerError(GreendotError):
    """Root of the errors between an app and its Greendot server."""


class Unreachable(ServerError):
    """Failure of every attempt without a response. The request may have been carried out; retry with the same key."""


class BadAnswer(ServerError):
    """Response that this version cannot decode: from another release, or not from Greendot."""


class Problem(ServerError):
    """Refusal. `status`, `title` and `detail` as in RFC 9457; `code` is one of the wire's error codes, or None."""

    def __init__(
        self, status: int, title: str, detail: str, *, code: str | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(f"{status} {title}: {detail}" if detail else f"{status} {title}")
        self.status = status
        self.title = title
        self.detail = detail
        self.code = code
        self.retry_after_s = retry_after_s  # delay that the server asks for, if any


class BadRequest(Problem):
    """Wrong request; `detail` names the reason. A retry would be refused again."""


class BadKey(Problem):
    """API key that is missing, unknown or expired."""


class Forbidden(Problem):
    """API key without the required scope, which `detail` names."""


class NotFound(Problem):
    """Room, session or path that does not exist."""


class Conflict(Problem):
    """Room that cannot be created yet, because a deleted room of this name is being removed. Retry later."""


class RateLimited(Problem):
    """Request over a rate limit. The server did nothing of it."""


class Unavailable(Problem):
    """Server that cannot carry out the request now. Retry with the same key."""


_KINDS: dict[int, type[Problem]] = {
    400: BadRequest,
    401: BadKey,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: BadRequest,
    429: RateLimited,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


def problem_kind(status: int) -> type[Problem]:
    return _KINDS.get(status, Problem)
