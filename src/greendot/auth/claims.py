"""What a token says, once it is known who signed it."""

from __future__ import annotations

from sys import intern
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from greendot.auth.keyring import Key
from greendot.auth.model import Grants
from greendot.errors import TokenError
from greendot.ids import ID_PATTERN, TEXT_PATTERN

Id = Annotated[str, Meta(pattern=ID_PATTERN)]
Pattern = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.@=+*-]{1,128}\Z")]
Patterns = Annotated[tuple[Pattern, ...], Meta(max_length=100)]
Text = Annotated[str, Meta(max_length=200, pattern=TEXT_PATTERN)]
Seconds = Annotated[float, Meta(ge=0, le=1e11)]  # since 1970; JSON as Python reads it knows Infinity too


class Claims(Struct):
    """What we read of a token. Anything else in it is the app's own."""

    sub: Id
    exp: Seconds
    tenant: Id | UnsetType = UNSET
    name: Text | None = None
    rooms: Patterns = ()
    watch: Patterns | None = None
    send: bool = True
    iat: Seconds | None = None
    nbf: Seconds | None = None
    jti: Text | None = None
    aud: Any = None  # these two are the app's own too, unless the rules ask for them
    iss: Any = None


class TokenRules(Struct, frozen=True):
    """What is asked of every token, whoever signed it."""

    algorithms: frozenset[str] | None = None  # None: those of the keys
    audience: str = ""  # empty: whatever it is
    issuer: str = ""
    leeway_ms: int = 0  # by how much the clocks of the app and of this server may differ

    def grants(self, claims: Claims, key: Key, now_ms: int) -> Grants:
        """What the claims grant now, signed by `key`. TokenError if nothing."""
        # Our own clock decides about the time, so that tests can move it.
        expires_at = round(claims.exp * 1000)
        if key.not_after is not None:
            expires_at = min(expires_at, key.not_after)
        if expires_at + self.leeway_ms <= now_ms:
            raise TokenError("the token has expired", expired=True)
        if claims.nbf is not None and claims.nbf * 1000 - self.leeway_ms > now_ms:
            raise TokenError("the token is not valid yet")
        if self.audience and self.audience not in (claims.aud if isinstance(claims.aud, list) else (claims.aud,)):
            raise TokenError("the token is meant for another audience (`aud`)")
        if self.issuer and claims.iss != self.issuer:
            raise TokenError("the token is of another issuer (`iss`)")
        tenant = claims.tenant
        if tenant is UNSET:
            tenant = key.tenant or "default"
        elif key.tenant is not None and tenant != key.tenant:
            raise TokenError("the token's key is not its tenant's")
        return Grants(
            tenant=intern(tenant),  # of which there are few: kept once, and not with each user
            user=claims.sub,
            expires_at=expires_at,
            name=claims.name,
            rooms=claims.rooms,
            watch=claims.watch,
            send=claims.send,
            issued_at=None if claims.iat is None else round(claims.iat * 1000),
            token_id=claims.jti,
        )


def claims_in(payload: Any) -> Claims:
    """TokenError names a claim that makes no sense, and does not repeat it."""
    try:
        return msgspec.convert(payload, Claims)
    except msgspec.ValidationError as error:
        raise TokenError(f"a claim of the token is wrong: {error}".replace("`$.", "`")) from None
