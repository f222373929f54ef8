"""Verification and creation of tokens."""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable
from typing import Any

import jwt
import msgspec

from greendot.auth.claims import TokenRules
from greendot.auth.jwks import RemoteKeys
from greendot.auth.keyring import HASHES, Keyring, VerificationKey
from greendot.auth.model import Grants
from greendot.errors import TokenError
from greendot.protocol.decoding import decoder
from greendot.protocol.tokens import MOST_CHARACTERS, Claims, claims_in

# From the alphabet of tokens to the usual one of base64, whose other characters become invalid.
_FROM_URL = bytes.maketrans(b"-_+/=", b"+/!!!")
_claims_of = decoder(Claims)
_MOST_HEADS = 16
_LONGEST_KID = 256
_LAX = {"verify_exp": False, "verify_nbf": False, "verify_iat": False, "verify_sub": False, "verify_aud": False}


class UnknownKey(TokenError):
    """Token whose key is unknown. It may be valid: its key may be newer than the last fetch of keys."""

    def __init__(self, kid: str | None) -> None:
        super().__init__("the token's signing key is not known to this server; check `kid` and the server's keys")
        self.kid = kid


class Tokens:
    """Tokens of the given keys. New tokens are signed with the first secret among them.

    PyJWT decides what a valid token is. Most tokens have the same header as an earlier token. A header that PyJWT has
    accepted needs no second check, because PyJWT's treatment of it depends on nothing else.
    """

    def __init__(
        self,
        secret: str = "",
        keys: Iterable[VerificationKey] = (),
        rules: TokenRules | None = None,
        remote: RemoteKeys | None = None,
    ) -> None:
        rules = rules or TokenRules()
        own = [VerificationKey("HS256", secret.encode())] if secret else []
        allowed = rules.algorithms
        self._own = [key for key in (*own, *keys) if allowed is None or key.alg in allowed]
        self._rules = rules
        self.remote = remote
        # Encoded headers of tokens that PyJWT accepted, with the key. Only holders of a key can add any.
        self._heads: dict[bytes, VerificationKey] = {}
        self._ring = Keyring(self._own)
        if remote is not None:
            remote.listeners.append(self._collect)

    def _collect(self) -> None:
        """Take over changed remote keys."""
        theirs = self.remote.keys if self.remote is not None else []
        allowed = self._rules.algorithms
        self._ring = Keyring([*self._own, *(key for key in theirs if allowed is None or key.alg in allowed)])
        self._heads.clear()

    # --- reading ---

    async def verify(self, token: str, now_ms: int) -> Grants:
        """Return what the token grants. An unknown key is looked for among the remote keys.

        Raise TokenError with the reason if the token is not valid, KeysUnavailable if that cannot be decided now.
        """
        try:
            return self.read(token, now_ms)
        except UnknownKey as unknown:
            if self.remote is None:
                raise
            await self.remote.find(unknown.kid)
        return self.read(token, now_ms)

    async def verify_claims(self, token: str, now_ms: int, **defaults: Any) -> tuple[Grants, dict[str, Any]]:
        """Return what a subscription token grants, and all its claims. `defaults` are claims that it may leave out.

        Raise what `verify` raises.
        """
        try:
            payload, key = self._payload(token)
        except UnknownKey as unknown:
            if self.remote is None:
                raise
            await self.remote.find(unknown.kid)
            payload, key = self._payload(token)
        claims = defaults | payload
        return self._rules.grants(_claims(claims), key, now_ms, is_subscription=True), claims

    def read(self, token: str, now_ms: int) -> Grants:
        """Return what the token grants, by the known keys.

        Raise TokenError with the reason if it is not valid. The message never repeats the token.
        """
        _check_length(token)
        claims, key = self._quickly(token) or self._carefully(token)
        return self._rules.grants(claims, key, now_ms)

    def _quickly(self, token: str) -> tuple[Claims, VerificationKey] | None:
        """Return the claims of a token with a known header and a valid signature.

        None for any other token, which may be valid too.
        """
        if not token.isascii():
            return None
        signed, _, signature = token.encode().rpartition(b".")
        head, _, body = signed.partition(b".")
        key = self._heads.get(head)
        try:
            if key is None or not key.verifies(signed, _exactly(signature)):
                return None
            return _claims_of(_exactly(body).decode()), key  # as text, because msgspec accepts bytes that are not UTF-8
        except (ValueError, msgspec.MsgspecError):
            return None

    def _carefully(self, token: str) -> tuple[Claims, VerificationKey]:
        payload, key = self._payload(token)
        claims = _claims(payload)
        if len(self._heads) < _MOST_HEADS:
            self._heads[token.encode().partition(b".")[0]] = key
        return claims, key

    def _payload(self, token: str) -> tuple[dict[str, Any], VerificationKey]:
        """Return all claims of a token with a valid signature, and its key. Raise TokenError if it has none."""
        _check_length(token)
        try:
            header = jwt.get_unverified_header(token)
            for key in self._fitting(header):
                try:
                    payload = jwt.decode(token, key.material, algorithms=[key.alg], options=_LAX)  # type: ignore[arg-type]
                except jwt.InvalidSignatureError:
                    continue
                if key.retired:
                    raise TokenError("the token was signed with a retired key; get a new token")
                return payload, key
        except (jwt.InvalidTokenError, UnicodeError, RecursionError) as error:
            raise TokenError(f"not a valid token: {error}") from None
        raise TokenError("the token's signature does not match: the token was changed or signed with another key")

    def _fitting(self, header: dict[str, Any]) -> list[VerificationKey]:
        """Return the keys that may have signed a token with this header."""
        alg, kid = header.get("alg"), header.get("kid")
        if not isinstance(alg, str) or not self._takes(alg):
            raise TokenError("not a valid token: this server does not accept its algorithm")
        if kid is not None and len(kid) > _LONGEST_KID:
            raise TokenError("not a valid token: the name of its key (`kid`) is too long")
        keys = self._ring.fitting(kid, alg)
        if not keys and self._ring.knows(kid):
            raise TokenError("not a valid token: its key is for another algorithm")
        if not keys:
            raise UnknownKey(kid)
        return keys

    def _takes(self, alg: str) -> bool:
        if alg in self._ring.algorithms:
            return True
        allowed = self._rules.algorithms
        return self.remote is not None and alg in self.remote.ALGORITHMS and (allowed is None or alg in allowed)

    # --- making ---

    @property
    def can_make(self) -> bool:
        return self._signer() is not None

    def make(self, user: str, now_ms: int, ttl_s: float, **claims: Any) -> str:
        """Return a token for `user`, valid for `ttl_s`. Further claims as in docs/protocol.md; None leaves one out.

        `iat` has milliseconds, so that a revocation does not cover a token that was issued later in the same second.
        """
        key = self._signer()
        assert key is not None, "there is no secret to sign with"
        body = {"sub": user, "iat": now_ms / 1000, "exp": round(now_ms / 1000 + ttl_s)}
        body |= {"aud": self._rules.audience or None, "iss": self._rules.issuer or None, "tenant": key.tenant} | claims
        headers = None if key.kid is None else {"kid": key.kid}
        return jwt.encode({k: v for k, v in body.items() if v is not None}, key.material, key.alg, headers)

    def _signer(self) -> VerificationKey | None:
        secrets = (key for key in self._own if key.alg in HASHES and not key.retired and key.not_after is None)
        return next(secrets, None)


def _check_length(token: str) -> None:
    """Raise TokenError if a token is missing or too long."""
    if not token:
        raise TokenError("the token is missing; send one")
    if len(token) > MOST_CHARACTERS:
        raise TokenError(f"the token is longer than {MOST_CHARACTERS} characters; issue tokens with fewer claims")


def _claims(payload: dict[str, Any]) -> Claims:
    """Return the claims that the server reads. Raise TokenError if one is wrong, or nested too deeply."""
    try:
        return claims_in(payload)
    except (UnicodeError, RecursionError) as error:
        raise TokenError(f"not a valid token: {error}") from None


def _exactly(text: bytes) -> bytes:
    """Decode base64. Raise ValueError unless `text` is the canonical encoding.

    The decoder skips characters outside of base64, and the last character can be written in several ways.
    """
    plain = text.translate(_FROM_URL) + b"=" * (-len(text) % 4)
    data = a2b_base64(plain)
    if b2a_base64(data, newline=False) != plain:
        raise ValueError
    return data
