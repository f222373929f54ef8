"""Tokens: signed claims that say who a client is. HS256 with one shared secret, so far."""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from sys import intern
from typing import Annotated, Any

import jwt
import msgspec
from msgspec import Meta, Struct

from greendot.core.grants import Grants
from greendot.errors import TokenError
from greendot.ids import ID_PATTERN

Id = Annotated[str, Meta(pattern=ID_PATTERN)]
Pattern = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.@=+*-]{1,128}\Z")]
Patterns = Annotated[tuple[Pattern, ...], Meta(max_length=100)]
Name = Annotated[str, Meta(max_length=200, pattern=r"^[^\ud800-\udfff]*\Z")]  # half a surrogate pair cannot be sent
Seconds = Annotated[float, Meta(ge=0, le=1e11)]  # since 1970; JSON as Python reads it knows Infinity too


class _Claims(Struct):
    """What we read of a token. Anything else in it is the app's own."""

    sub: Id
    exp: Seconds
    tenant: Id = "default"
    name: Name | None = None
    rooms: Patterns = ()
    watch: Patterns | None = None
    send: bool = True
    iat: Seconds | None = None
    nbf: Seconds | None = None
    jti: Annotated[str, Meta(max_length=200)] | None = None


_MOST_HEADS = 16


class Tokens:
    """Makes and reads tokens of one secret.

    PyJWT decides what a token is. Most are made by the same code as the one before and need only a look at what
    differs: their header is one that PyJWT has accepted, and what it does with that depends on nothing else.
    """

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._key = secret.encode()
        self._heads: set[bytes] = (
            set()
        )  # encoded headers of tokens that PyJWT accepted: only who has the secret adds any

    def read(self, token: str, now_ms: int) -> Grants:
        """What the token grants. TokenError says what is wrong with it, without repeating it."""
        if not token:
            raise TokenError("a token is needed")
        # Our own clock decides about the time, so that tests can move it.
        claims = self._quickly(token) or self._carefully(token)
        if claims.exp * 1000 <= now_ms:
            raise TokenError("the token has expired", expired=True)
        if claims.nbf is not None and claims.nbf * 1000 > now_ms:
            raise TokenError("the token is not valid yet")
        return Grants(
            tenant=intern(claims.tenant),  # of which there are few: kept once, and not with each user
            user=claims.sub,
            expires_at=round(claims.exp * 1000),
            name=claims.name,
            rooms=claims.rooms,
            watch=claims.watch,
            send=claims.send,
            issued_at=None if claims.iat is None else round(claims.iat * 1000),
            token_id=claims.jti,
        )

    def _quickly(self, token: str) -> _Claims | None:
        """The claims of a token that is valid beyond doubt; None for any other, which is not wrong for that."""
        if not token.isascii():
            return None
        signed, _, signature = token.encode().rpartition(b".")
        head, _, body = signed.partition(b".")
        if head not in self._heads:
            return None
        if not hmac.compare_digest(_base64(hmac.digest(self._key, signed, "sha256")), signature):
            return None
        try:
            payload = urlsafe_b64decode(body + b"==")
            # Decoding skips what is not base64, and there is more than one way to write the last character.
            return msgspec.convert(msgspec.json.decode(payload), _Claims) if _base64(payload) == body else None
        except (ValueError, msgspec.MsgspecError, RecursionError):
            return None

    def _carefully(self, token: str) -> _Claims:
        lax = {"verify_exp": False, "verify_nbf": False, "verify_iat": False, "verify_sub": False, "verify_aud": False}
        try:
            payload = jwt.decode(token, self._secret, algorithms=["HS256"], options=lax)  # type: ignore[arg-type]
            claims = msgspec.convert(payload, _Claims)
        except jwt.InvalidSignatureError:
            raise TokenError("the token's signature is not ours: it was signed with another secret") from None
        except (jwt.InvalidTokenError, UnicodeError, RecursionError) as error:
            raise TokenError(f"not a valid token: {error}") from None
        except msgspec.ValidationError as error:
            raise TokenError(f"a claim of the token is wrong: {error}".replace("`$.", "`")) from None
        if len(self._heads) < _MOST_HEADS:
            self._heads.add(token.encode().partition(b".")[0])
        return claims

    def make(self, user: str, now_ms: int, ttl_s: float, **claims: Any) -> str:
        """A token for `user`, valid for `ttl_s`. Further claims as in docs/protocol.md; None leaves one out."""
        body = {"sub": user, "iat": now_ms // 1000, "exp": round(now_ms / 1000 + ttl_s)}
        return jwt.encode(body | {k: v for k, v in claims.items() if v is not None}, self._secret, algorithm="HS256")


def _base64(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")
