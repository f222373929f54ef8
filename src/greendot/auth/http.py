"""Routes for tokens: revocation before they expire."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta, Struct
from starlette.requests import Request

from greendot.auth.api_keys import ApiKeys
from greendot.auth.model import Revocation, RevocationKind
from greendot.auth.revocation import RevocationService
from greendot.clock import Clock
from greendot.http.operation import operation
from greendot.http.problem import Problem
from greendot.http.schema import having, never
from greendot.ids import TEXT_PATTERN
from greendot.protocol.commands import Id

AHEAD_MS = 60_000  # the app's clock may be ahead of the server's by so much
LEEWAY_MS = 600_000  # a token may be valid for so much longer than its `exp` (auth.leeway_s)
TokenId = Annotated[str, Meta(min_length=1, max_length=200, pattern=TEXT_PATTERN)]


class PostRevoke(Struct, forbid_unknown_fields=True):
    """The body of POST /v1/tokens/revoke: one of `jti`, `session`, `user` and `all`. Beside `jti`, `user` says whose it
    is."""

    RULE: ClassVar = {"anyOf": [having("jti"), having("session"), having("user"), having("all")]} | never(
        having("all", "jti"),
        having("all", "session"),
        having("all", "user"),
        having("session", "jti"),
        having("session", "user"),
        having("before", "jti"),
        having("before", "session"),
        having("expires_at") | never(having("jti")),
    )

    jti: TokenId | None = None
    session: Id | None = None
    user: Id | None = None
    all: Annotated[bool, Meta(extra_json_schema={"const": True})] | None = None  # every token of the tenant
    before: int | None = None  # with `user` alone, or `all`: tokens issued before; now, unless it is given
    expires_at: int | None = None  # with `jti`: when the token expires by itself


class Revoked(Struct):
    """What came of it: sockets that were closed, on all nodes, and until when it is remembered."""

    closed: int
    expires_at: int


class TokenRoutes:
    """Routes of `/v1/tokens`."""

    def __init__(
        self,
        keys: ApiKeys,
        clock: Clock,
        revocation_service: RevocationService,
    ) -> None:
        self._keys = keys
        self._clock = clock
        self._revocation_service = revocation_service

    @operation("POST /v1/tokens/revoke")
    async def revoke(self, request: Request, body: PostRevoke) -> Revoked:
        """Take back a token, a session, all a user was given, or all tokens of the tenant.

        When this is answered nothing more is written to what was revoked. 503: it is not known of some; do it again.
        """
        revocation = self._revocation(self._keys.tenant(request), body)
        return Revoked(await self._revocation_service.revoke(revocation, body.user), revocation.expires_at)

    def _revocation(self, tenant: str, body: PostRevoke) -> Revocation:
        now, revocation_service = self._clock.now_ms(), self._revocation_service
        kind, value = _what(body, tenant)
        if body.before is not None and kind not in ("user", "tenant"):
            raise _bad("`before` is allowed only with `user` alone or with `all`")
        if body.expires_at is not None and kind != "jti":
            raise _bad("`expires_at` is allowed only with `jti`")
        if kind in ("user", "tenant"):
            before = now if body.before is None else body.before
            if before > now + AHEAD_MS:
                raise _bad("`before` is in the future; give milliseconds UTC, or omit `before` to use the current time")
            if (expires_at := revocation_service.expires_at(before)) <= now:
                raise _bad(
                    "`before` is more than the longest token lifetime ago (auth.longest_token_s); give a later time"
                )
            return Revocation(tenant, kind, value, expires_at, before)
        if body.expires_at is not None and body.expires_at <= now:
            raise _bad("`expires_at` is in the past; the token has already expired")
        latest = revocation_service.expires_at(now)
        given = latest if body.expires_at is None else body.expires_at + LEEWAY_MS
        return Revocation(tenant, kind, value, min(latest, given))


def _what(body: PostRevoke, tenant: str) -> tuple[RevocationKind, str]:
    named = (body.jti, body.session, body.user)
    if body.all and named == (None, None, None):
        return "tenant", tenant
    if body.all is not None:
        raise _bad("`all` must be true, and excludes `jti`, `session` and `user`")
    if body.jti is not None and body.session is None:
        return "jti", body.jti
    if body.session is not None and body.jti is None and body.user is None:
        return "session", body.session
    if body.user is not None and body.session is None:
        return "user", body.user
    raise _bad("give exactly one of `jti`, `session`, `user` and `all`; with `jti`, `user` may name the token's user")


def _bad(why: str) -> Problem:
    return Problem(400, why, code="bad_field")
