"""Rules for the claims of a token whose signature is verified."""

from __future__ import annotations

from sys import intern

from msgspec import UNSET, Struct

from greendot.auth.keyring import VerificationKey
from greendot.auth.model import Grants
from greendot.errors import TokenError
from greendot.ids import APP_USER
from greendot.protocol.tokens import Claims, info_in


class TokenRules(Struct, frozen=True):
    """Requirements of every token, whatever key signed it."""

    algorithms: frozenset[str] | None = None  # None: those of the keys
    audience: str = ""  # empty: any
    issuer: str = ""
    leeway_ms: int = 0  # allowed difference between the clocks of the app and of this server

    def grants(self, claims: Claims, key: VerificationKey, now_ms: int, *, is_subscription: bool = False) -> Grants:
        """Return what the claims, signed by `key`, grant now. Raise TokenError if they grant nothing.

        A token for one channel opens no session: apps give such tokens to clients that may read the channel only.
        """
        if claims.channel is not None and not is_subscription:
            raise TokenError("this token is for a subscription (claim `channel`); send a token without this claim")
        if claims.sub == APP_USER:  # else the user could send what clients take for events of the app
            raise TokenError(f"the user id {APP_USER!r} (`sub`) stands for the app; use another id")
        # The node's clock decides about the time, so that tests can move it.
        expires_at = round(claims.exp * 1000)
        if key.not_after is not None:
            expires_at = min(expires_at, key.not_after)
        if expires_at + self.leeway_ms <= now_ms:
            raise TokenError("the token has expired; get a new token", expired=True)
        if claims.nbf is not None and claims.nbf * 1000 - self.leeway_ms > now_ms:
            raise TokenError("the token is not valid yet (`nbf`); check the clocks of the app and the server")
        if self.audience and self.audience not in (claims.aud if isinstance(claims.aud, list) else (claims.aud,)):
            raise TokenError("the token's audience (`aud`) does not match auth.audience")
        if self.issuer and claims.iss != self.issuer:
            raise TokenError("the token's issuer (`iss`) does not match auth.issuer")
        tenant = claims.tenant
        if tenant is UNSET:
            tenant = key.tenant or "default"
        elif key.tenant is not None and tenant != key.tenant:
            raise TokenError("the token's signing key belongs to another tenant than its claim `tenant`")
        return Grants(
            tenant=intern(tenant),  # tenants are few: the text is kept once, not with each user
            user=claims.sub,
            expires_at=expires_at,
            name=claims.name or None,
            rooms=claims.rooms,
            watch=claims.watch,
            send=claims.send,
            issued_at=None if claims.iat is None else round(claims.iat * 1000),
            token_id=claims.jti,
            info=info_in(claims),
        )
