"""Who is in a room, on Redis: a hash for each room."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from greendot.engine.redis import keys
from greendot.engine.redis.presence import Verbs
from greendot.presence.model import Ref


class RedisRooms:
    """See `engine.base.RoomEngine`."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs

    async def enter(self, tenant: str, room: str, user: str, ref: Ref, *, restoring: bool = False) -> None:
        await self._verbs.on_room("enter", tenant, room, *ref, user, "r" if restoring else "1")

    async def exit(self, tenant: str, room: str, user: str, ref: Ref) -> None:
        await self._verbs.on_room("exit", tenant, room, *ref, user)

    async def room_nodes(self, tenant: str, room: str) -> set[str]:
        return {node.decode() for node in await self._verbs.on_room("room_nodes", tenant, room)}

    async def seated(self, tenant: str, room: str, users: Sequence[str]) -> dict[str, set[str]]:
        key = keys.present_key(self._verbs.prefix, tenant, room)
        server = self._verbs.servers.of(keys.partition_of(tenant, room))
        found = await asyncio.gather(*(server.call("HGET", key, user) for user in users))  # sent together
        # Seats are `session`, or `session,node` for one that has moved.
        return {
            user: {seat.partition(",")[0] for seat in text.decode().split(";")}
            for user, text in zip(users, found, strict=True)
            if text
        }

    async def present(self, tenant: str, room: str) -> list[str]:
        partition = keys.partition_of(tenant, room)
        present = self._verbs.on_room("present", tenant, room)
        users, _ = await asyncio.gather(present, self._verbs.compare_epoch(partition))
        return sorted(user.decode() for user in users)
