"""Looking at presence without being a node: for what runs beside the servers."""

from __future__ import annotations

from collections.abc import Sequence

from greendot.clock import Clock
from greendot.core.presence import Snapshot
from greendot.engine.answers import SeatInfo
from greendot.engine.redis.engine import RedisEngine

LOOK_S = 1.0  # as often as nodes look at each other


class Observer:
    """An engine that observes. Nodes see by themselves who of them lives; this looks for it before it is asked."""

    def __init__(self, engine: RedisEngine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._look_at = 0.0  # monotonic seconds

    async def read(self, tenant: str, users: Sequence[str]) -> list[Snapshot]:
        if (now := self._clock.monotonic()) >= self._look_at:
            await self._engine.look_at_nodes()
            self._look_at = now + LOOK_S
        return await self._engine.read(tenant, users)

    async def sessions(self, tenant: str, user: str) -> list[SeatInfo]:
        return await self._engine.sessions(tenant, user)

    async def seated(self, tenant: str, room: str, users: Sequence[str]) -> dict[str, set[str]]:
        return await self._engine.seated(tenant, room, users)
