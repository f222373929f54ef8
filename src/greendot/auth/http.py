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
from greendot.http.request import Body
from greendot.http.schema import having, never
from greendot.ids import TEXT_PATTERN
from greendot.protocol.commands import Id
from greendot.protocol.fields import about

AHEAD_MS = 60_000  # longest time that the app's clock may be ahead of the server's clock
LEEWAY_MS = 600_000  # longest time that a token may stay valid after its `exp` (auth.leeway_s)
TokenId = Annotated[str, Meta(min_length=1, max_length=200, pattern=TEXT_PATTERN)]


class PostRevoke(Body):
    """Tokens or session to revoke: exactly one of `jti`, `session`, `user` and `all`.

    With `jti`, `user` may name the user of the token.
    """

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

    jti: Annotated[TokenId | None, about("Revoke the token with this claim `jti`.")] = None
    session: Annotated[Id | None, about("Revoke this session, and its token if the token has a `jti`.")] = None
    user: Annotated[Id | None, about("Revoke the tokens of this user. With `jti`: the user of that token.")] = None
    all: Annotated[
        Annotated[bool, Meta(extra_json_schema={"const": True})] | None,
        about("Revoke the tokens of all users of the tenant. Must be true."),
    ] = None
    before: Annotated[
        int | None,
        about(
            "Revoke tokens issued before this time, in milliseconds UTC; null: now. "
            "Only with `user` alone or with `all`."
        ),
    ] = None
    expires_at: Annotated[
        int | None,
        about(
            "Time when the token expires by itself, in milliseconds UTC. The server keeps the revocation until then. "
            "Only with `jti`."
        ),
    ] = None


class Revoked(Struct):
    """Result of a revocation."""

    closed: Annotated[int, about("Number of connections that were closed, on all nodes.")]
    expires_at: Annotated[int, about("Time until which the server keeps the revocation, in milliseconds UTC.")]


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
        """Revoke a token, a session, all tokens of a user, or all tokens of the tenant.

        After the answer, the server writes nothing more to the revoked connections. A 503 means that a node has not
        confirmed the revocation; send the request again.
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
