"""Keys that another server publishes (`jwks_url`): fetched periodically, and when a token names an unknown key.

While a fetch fails, the last good keys stay. A client that names a key that does not exist can cause a fetch, but only
once in AGAIN_S.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import jwt
import msgspec
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from msgspec import Struct

from greendot.auth.keyring import PUBLIC, BadKey, VerificationKey, checked
from greendot.errors import KeysUnavailable
from greendot.protocol.decoding import decode
from greendot.telemetry import log_events
from greendot.telemetry.log import log

MOST_KEYS = 100
# By key type and curve: algorithm, reader of the key, and members of the key. Private members are never read.
_KINDS: dict[tuple[str, str], tuple[str, Any, tuple[str, ...]]] = {
    ("RSA", ""): ("RS256", RSAAlgorithm, ("n", "e")),
    ("EC", "P-256"): ("ES256", ECAlgorithm, ("crv", "x", "y")),
    ("OKP", "Ed25519"): ("EdDSA", OKPAlgorithm, ("crv", "x")),
}


class _Document(Struct):
    keys: list[Any]


def read_keys(document: bytes) -> list[VerificationKey]:
    """Return the keys that verify tokens; other keys of the provider are left out. Raise ValueError if none is left."""
    try:
        found = decode(document, _Document).keys
    except msgspec.DecodeError:
        raise ValueError('the answer is not a set of keys ({"keys": [...]})') from None
    if len(found) > MOST_KEYS:
        raise ValueError(f"the set has more than {MOST_KEYS} keys")
    keys = [key for jwk in found if isinstance(jwk, dict) and (key := _key(jwk)) is not None]
    if not keys:
        raise ValueError("the set has no key for RS256, ES256 or EdDSA")
    return keys


def _key(jwk: dict[str, Any]) -> VerificationKey | None:
    kid, curve = jwk.get("kid"), jwk.get("crv", "") if jwk.get("kty") != "RSA" else ""
    if not isinstance(curve, str) or not isinstance(kid, str | None) or not _is_for_signatures(jwk):
        return None
    alg, reader, members = _KINDS.get((str(jwk.get("kty")), curve), ("", None, ()))
    if not alg or jwk.get("alg", alg) != alg:
        return None
    try:
        public = {"kty": jwk["kty"]} | {member: jwk[member] for member in members}
        return VerificationKey(alg, checked(alg, reader.from_jwk(public)), kid)
    except (BadKey, jwt.InvalidKeyError, ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None


def _is_for_signatures(jwk: dict[str, Any]) -> bool:
    operations = jwk.get("key_ops", ["verify"])
    return jwk.get("use", "sig") == "sig" and isinstance(operations, list) and "verify" in operations


AGAIN_S = 10.0  # shortest time between two fetches
BUSY_S = 2.0  # time until clients return that cannot wait
_MOST_WAITING = 64  # hellos that wait for one fetch: each takes the place of another
_MOST_ASKED = 1_000  # names of keys that are remembered between fetches


class FetchFailed(Exception):
    """Failed fetch of the keys, with the reason."""


class RemoteKeys:
    """Keys of one URL. `listeners` are called when they have changed."""

    ALGORITHMS = PUBLIC  # a secret that can be fetched is no secret

    def __init__(self, fetch: Callable[[], Awaitable[bytes]], now: Callable[[], float]) -> None:
        self._fetch = fetch
        self._now = now  # monotonic seconds
        self.listeners: list[Callable[[], None]] = []
        self.keys: list[VerificationKey] = []
        self.away = True  # the last fetch failed, or none was made
        self._outage_logged = False  # the failure was logged
        self._document = b""  # document that the keys were read from
        self._tried_at = float("-inf")
        self._under_way: asyncio.Task[None] | None = None
        self._waiting = 0  # callers that wait for the fetch under way
        self._asked: set[str | None] = set()  # names asked for since the last fetch began
        self._absent: set[str | None] = (
            set()
        )  # names asked for before the last fetch: those that are still unknown do not exist

    async def find(self, kid: str | None) -> None:
        """Wait until it is known whether the key exists. Raise KeysUnavailable if that cannot be known now."""
        if self._under_way is None:
            wait_s = self._tried_at + AGAIN_S - self._now()
            if wait_s > 0:
                if kid in self._absent and not self.away:
                    return
                self._note(kid)
                raise KeysUnavailable(retry_in_ms=round(wait_s * 1000))
        self._note(kid)
        if self._waiting >= _MOST_WAITING:
            raise KeysUnavailable(retry_in_ms=round(BUSY_S * 1000))
        self._waiting += 1
        try:
            await self.refresh()
        finally:
            self._waiting -= 1
        if self.away:
            raise KeysUnavailable(retry_in_ms=round(AGAIN_S * 1000))

    def _note(self, kid: str | None) -> None:
        if len(self._asked) < _MOST_ASKED:
            self._asked.add(kid)

    async def refresh(self) -> None:
        """Fetch the keys, once for all callers that wait. If the fetch fails, the keys stay as they are."""
        if self._under_way is None:
            self._under_way = asyncio.get_running_loop().create_task(self._refresh())
        await asyncio.shield(self._under_way)

    async def _refresh(self) -> None:
        self._tried_at = self._now()
        try:
            document = await self._fetch()
            if document != self._document:
                self._replace(read_keys(document))
                self._document = document
        except (FetchFailed, ValueError) as error:
            self.away = True
            if not self._outage_logged:
                self._outage_logged = True
                log(log_events.KEYS_AWAY, reason=error)
        else:
            if self._outage_logged:
                log(log_events.KEYS_BACK)
            self.away = self._outage_logged = False
            kept = self._absent if len(self._absent) < _MOST_ASKED else set()
            self._absent, self._asked = kept | self._asked, set()
        finally:
            self._under_way = None

    def _replace(self, keys: list[VerificationKey]) -> None:
        withdrawn = {key.kid for key in self.keys}.difference(key.kid for key in keys)
        self._asked |= withdrawn  # withdrawn keys count as asked for, so a token of theirs causes no fetch
        self.keys = keys
        for listener in self.listeners:
            listener()

    async def close(self) -> None:
        if self._under_way is not None:
            self._under_way.cancel()
            await asyncio.gather(self._under_way, return_exceptions=True)
