"""API keys of the settings and the store, and their scopes."""

from __future__ import annotations

import hashlib
import hmac

from msgspec import structs
from starlette.requests import Request

from greendot.auth.model import Caller, KeyScope, ShownKey, hash_of, parse
from greendot.clock import Clock
from greendot.errors import StoreUnavailable
from greendot.http.problem import Problem
from greendot.protocol.codes import Err
from greendot.store.api_keys import OPERATOR, ApiKey, KeyStore, Secret
from greendot.store.read_cache import ReadCache

USED_EVERY_MS = 3_600_000  # shortest time between two writes of a secret's last use
# The key of the settings belongs to the operators, who could read everything anyway.
FIRST = Caller("default", frozenset({"admin", "operator"}))


class ApiKeys:
    """Known API keys: the one of the settings, and those of the store, each read at most every ten seconds."""

    def __init__(self, given: str, store: KeyStore, clock: Clock) -> None:
        self._given = _hash(given) if given else None
        self._store = store
        self._clock = clock
        self._known: ReadCache[str, tuple[ApiKey, Secret] | None] = ReadCache(store.key_of_secret, clock)

    async def admit(self, request: Request, scope: KeyScope) -> None:
        """Raise Problem unless the request's API key has the scope (see `Guard`). Set the request's caller."""
        caller = await self._caller(request)
        if not caller.may(scope):
            raise Problem(403, _lacks(caller, scope), code=Err.FORBIDDEN)
        request.state.caller = caller

    def tenant(self, request: Request) -> str:
        """Return the tenant of the request's API key. Raise Problem for an operator's key."""
        return _tenant(self.caller(request))

    def caller(self, request: Request) -> Caller:
        """Return the caller that `admit` has set."""
        caller: Caller = request.state.caller
        return caller

    async def _caller(self, request: Request) -> Caller:
        scheme, _, text = request.headers.get("authorization", "").partition(" ")
        text = text.strip()
        if scheme.lower() != "bearer" or not text:
            raise Problem(401, "the request has no API key; send the header Authorization: Bearer KEY")
        return await self._bearer(text)

    async def known(self, text: str) -> Caller | None:
        """Return the caller of a key; None if the key is unknown or has ended.

        Raise StoreUnavailable if the store cannot be read.
        """
        try:
            return await self._bearer(text)
        except Problem:
            return None

    async def _bearer(self, text: str) -> Caller:
        if self._given is not None and hmac.compare_digest(self._given, _hash(text)):
            return FIRST
        shown = parse(text)
        found = None if shown is None else await self._find(shown)
        if found is None:
            raise Problem(401, "unknown API key; check it, or create one with greendot keys create NAME")
        key, secret = found
        if secret.expires_at is not None and secret.expires_at <= self._clock.now_ms():
            raise Problem(401, f"this secret of the API key {key.name!r} has expired; use its current secret")
        await self._note(key, secret)
        return Caller(key.tenant if key.tenant != OPERATOR else None, frozenset(key.scopes), key.name)

    async def _find(self, shown: ShownKey) -> tuple[ApiKey, Secret] | None:
        found = await self._known.get(shown.id)
        return found if found is not None and hmac.compare_digest(found[1].hash, hash_of(shown.secret)) else None

    async def _note(self, key: ApiKey, secret: Secret) -> None:
        """Record that the secret is used, so that operators who rotate keys see whether the old one is still in use."""
        now = self._clock.now_ms()
        if secret.used_at is not None and now - secret.used_at < USED_EVERY_MS:
            return
        self._known.put(secret.id, (key, structs.replace(secret, used_at=now)))
        try:
            await self._store.key_used(secret.id, now)
        except StoreUnavailable:
            pass  # recorded again an hour later


def _lacks(caller: Caller, scope: KeyScope) -> str:
    if scope == "operator":
        return "this route needs an operator's key; create one with greendot keys create NAME --operator"
    if caller.tenant is None:
        return "an operator's key belongs to no tenant; use an API key of the tenant"
    return f"this API key lacks the scope `{scope}`; create a key with greendot keys create NAME --scope {scope}"


def _tenant(caller: Caller) -> str:
    if caller.tenant is None:
        raise Problem(403, _lacks(caller, "admin"), code=Err.FORBIDDEN)
    return caller.tenant


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
