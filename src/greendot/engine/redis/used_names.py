"""Used names on Redis: a string for each name, which expires by itself."""

from __future__ import annotations

from greendot.engine.redis import keys
from greendot.engine.redis.presence import Verbs
from greendot.engine.used_names_model import UsedNames
from greendot.errors import EngineUnavailable


class RedisUsedNames:
    """Used names on Redis (see `engine.port.UsedNamesEngine`).

    A node also remembers the names that it has seen itself, so that Redis may be away or lose its data.
    """

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs
        self._names_used = UsedNames()

    async def use(self, tenant: str, name: str, keep_ms: int) -> int:
        verbs = self._verbs
        now = verbs.time.now()
        here = self._names_used.use(tenant, name, now, keep_ms)
        partition, key = keys.used_key(verbs.prefix, tenant, name)
        try:
            first = await verbs.servers.of(partition).call("SET", key, now, "NX", "GET", "PX", keep_ms)
        except EngineUnavailable:
            return here
        return here if first is None else max(here, now - int(first))
