"""The API keys that are known here, and what each lets its bearer do."""

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

USED_EVERY_MS = 3_600_000  # that a secret is in use is written down no more often
# The key in the settings is of those who run the server: they could read everything anyhow.
FIRST = Caller("default", frozenset({"admin", "operator"}))


class ApiKeys:
    """The one of the settings, and those in the store, which are asked for at most every ten seconds."""

    def __init__(self, given: str, store: KeyStore, clock: Clock) -> None:
        self._given = _hash(given) if given else None
        self._store = store
        self._clock = clock
        self._known: ReadCache[str, tuple[ApiKey, Secret] | None] = ReadCache(store.key_of_secret, clock)

    async def admit(self, request: Request, scope: KeyScope) -> None:
        """See `Guard`. From here on the request knows who asks."""
        caller = await self._caller(request)
        if not caller.may(scope):
            raise Problem(403, _lacks(caller, scope), code=Err.FORBIDDEN)
        request.state.caller = caller

    def tenant(self, request: Request) -> str:
        """The tenant whose key the request carries."""
        return _tenant(self.caller(request))

    def caller(self, request: Request) -> Caller:
        """Who asks, as `admit` found out."""
        caller: Caller = request.state.caller
        return caller

    async def _caller(self, request: Request) -> Caller:
        scheme, _, text = request.headers.get("authorization", "").partition(" ")
        text = text.strip()
        if scheme.lower() != "bearer" or not text:
            raise Problem(401, "send an API key: Authorization: Bearer KEY")
        return await self._bearer(text)

    async def known(self, text: str) -> Caller | None:
        """Who shows this key; None if it is not known here, or has ended. StoreUnavailable if that cannot be said."""
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
            raise Problem(401, "this API key is not known here")
        key, secret = found
        if secret.expires_at is not None and secret.expires_at <= self._clock.now_ms():
            raise Problem(401, f"this secret of the API key {key.name!r} has ended: use the one that replaced it")
        await self._note(key, secret)
        return Caller(key.tenant if key.tenant != OPERATOR else None, frozenset(key.scopes), key.name)

    async def _find(self, shown: ShownKey) -> tuple[ApiKey, Secret] | None:
        found = await self._known.get(shown.id)
        return found if found is not None and hmac.compare_digest(found[1].hash, hash_of(shown.secret)) else None

    async def _note(self, key: ApiKey, secret: Secret) -> None:
        """Those who rotate keys want to know whether the old secret is still used."""
        now = self._clock.now_ms()
        if secret.used_at is not None and now - secret.used_at < USED_EVERY_MS:
            return
        self._known.put(secret.id, (key, structs.replace(secret, used_at=now)))
        try:
            await self._store.key_used(secret.id, now)
        except StoreUnavailable:
            pass  # it is said again with the next hour


def _lacks(caller: Caller, scope: KeyScope) -> str:
    if scope == "operator":
        return "this needs an operator's key: greendot keys create NAME --operator"
    if caller.tenant is None:
        return "an operator's key belongs to no tenant: use one of the tenant's own"
    return f"this API key lacks the scope `{scope}`: give it to a key with greendot keys create NAME --scope {scope}"


def _tenant(caller: Caller) -> str:
    if caller.tenant is None:
        raise Problem(403, _lacks(caller, "admin"), code=Err.FORBIDDEN)
    return caller.tenant


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
