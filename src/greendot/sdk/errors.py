"""Every error of the server-side SDK.

GreendotError
├── ServerError
│   ├── Unreachable          no answer: it may or may not have been done
│   ├── BadAnswer            an answer this version cannot read
│   └── Problem              refused, with the RFC 9457 document
│       ├── BadRequest       400, 413: something in it is wrong; `detail` says what
│       ├── BadKey           401: the API key is unknown, or has ended
│       ├── Forbidden        403: the key lacks the scope `detail` names
│       ├── NotFound         404: there is no such room or session
│       ├── RateLimited      429: too much; nothing was done. `retry_after_s` says how long to wait
│       └── Unavailable      502, 503, 504: not now; again with the same key
└── BadWebhook               a request is not what Greendot sent

None of them carries the key, a token or what was sent.
"""

from __future__ import annotations

from greendot.errors import GreendotError


class ServerError(GreendotError):
    """The root of what can go wrong between an app and its Greendot server."""


class Unreachable(ServerError):
    """No try got an answer. What was asked for may have been done: with the same key it can be asked for again."""


class BadAnswer(ServerError):
    """An answer came that this version cannot read: another release, or something that is not Greendot."""


class Problem(ServerError):
    """A refusal. `status`, `title` and `detail` as in RFC 9457; `code` is one of the wire's error codes, or None."""

    def __init__(
        self, status: int, title: str, detail: str, *, code: str | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(f"{status} {title}: {detail}" if detail else f"{status} {title}")
        self.status = status
        self.title = title
        self.detail = detail
        self.code = code
        self.retry_after_s = retry_after_s  # the server's wish, where it has one


class BadRequest(Problem):
    """Something in the request is wrong; `detail` names it. Asked again, it is refused again."""


class BadKey(Problem):
    """No key, an unknown one, or one that has ended."""


class Forbidden(Problem):
    """The key has not the scope this needs; `detail` names it."""


class NotFound(Problem):
    """There is no such room, session or path."""


class RateLimited(Problem):
    """Too much at once. Nothing of it was done."""


class Unavailable(Problem):
    """The server cannot do it now. With the same key it can be asked for again."""


_KINDS: dict[int, type[Problem]] = {
    400: BadRequest,
    401: BadKey,
    403: Forbidden,
    404: NotFound,
    413: BadRequest,
    429: RateLimited,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


def problem_kind(status: int) -> type[Problem]:
    return _KINDS.get(status, Problem)
