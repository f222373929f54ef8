"""Typing and room occupancy on Redis.

While a room's server is away, typing continues among this node's own subscribers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from greendot.engine.messages import Topic, Typing
from greendot.engine.redis import keys
from greendot.engine.redis.link import Argument
from greendot.engine.redis.presence import Verbs
from greendot.engine.redis.record_codec import escape, unescape
from greendot.engine.redis.scripts import SCRIPTS
from greendot.presence.model import SessionEpoch
from greendot.rooms.typing_model import TypingUsers, Typist

MOST_ROOMS = 10_000  # rooms kept in memory while the engine is away


class RedisTyping:
    """Typing on Redis (see `engine.port.TypingEngine`): a sorted set per room.

    `here` delivers to this node's own subscribers.
    """

    def __init__(self, verbs: Verbs, ttl_ms: int, throttle_ms: int, here: Callable[[Topic, Typing], None]) -> None:
        self._verbs = verbs
        self._ttl_ms = ttl_ms
        self._throttle_ms = throttle_ms
        self._here = here
        self._local: dict[Topic, TypingUsers] = {}  # only while a server is away

    def typing_start(self, tenant: str, room: str, user: str, name: str | None) -> None:
        if self._post("typing_start", tenant, room, user, escape(name), self._ttl_ms, self._throttle_ms):
            return
        topic = Topic("room", tenant, room)
        if len(self._local) >= MOST_ROOMS:
            self._local.clear()  # at worst, some users are throttled less than they should be
        typists = self._local.setdefault(topic, TypingUsers(self._ttl_ms, self._throttle_ms))
        if typists.start(user, name, self._verbs.time.now()):
            self._here(topic, Typing(user, name, self._ttl_ms))

    def typing_stop(self, tenant: str, room: str, user: str) -> None:
        if self._post("typing_stop", tenant, room, user, self._ttl_ms):
            return
        topic = Topic("room", tenant, room)
        typists = self._local.get(topic)
        if typists is not None:
            typists.stop(user, self._verbs.time.now())
        self._here(topic, Typing(user, None, 0))  # typing may have started before the engine went away

    def _post(self, verb: str, tenant: str, room: str, *arguments: Argument) -> bool:
        verbs, partition = self._verbs, keys.partition_of(tenant, room)
        server = verbs.servers.of(partition)
        if not server.up:
            return False
        self._local.pop(Topic("room", tenant, room), None)
        server.post(
            "EVALSHA",
            SCRIPTS[verb].sha,
            2,
            keys.typing_key(verbs.prefix, tenant, room),
            keys.nodes_key(verbs.prefix, partition),
            verbs.time.text(),
            keys.channel(verbs.prefix, Topic("room", tenant, room)),
            verbs.publish,
            verbs.messages.script_key,
            *arguments,
        )
        return True

    async def typers(self, tenant: str, room: str) -> list[Typist]:
        verbs, partition = self._verbs, keys.partition_of(tenant, room)
        names = keys.typing_key(verbs.prefix, tenant, room), keys.nodes_key(verbs.prefix, partition)
        answer = await verbs.servers.run(partition, "typers", names, verbs.time.text(), self._ttl_ms)
        found = []
        for member, remaining in zip(answer[::2], answer[1::2], strict=True):
            user, _, name = member.decode().partition("|")
            found.append(Typist(user, unescape(name), int(remaining)))
        return found


class RedisRooms:
    """Room occupancy on Redis; see `engine.port.RoomEngine`."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs

    async def enter(self, tenant: str, room: str, user: str, ref: SessionEpoch, *, restoring: bool = False) -> None:
        await self._verbs.on_room("enter", tenant, room, *ref, user, "r" if restoring else "1")
        self._verbs.restored += restoring

    async def exit(self, tenant: str, room: str, user: str, ref: SessionEpoch) -> None:
        await self._verbs.on_room("exit", tenant, room, *ref, user)

    async def room_nodes(self, tenant: str, room: str) -> set[str]:
        return {node.decode() for node in await self._verbs.on_room("room_nodes", tenant, room)}

    async def sessions_in_room(self, tenant: str, room: str, users: Sequence[str]) -> dict[str, set[str]]:
        key = keys.present_key(self._verbs.prefix, tenant, room)
        server = self._verbs.servers.of(keys.partition_of(tenant, room))
        found = await asyncio.gather(*(server.call("HGET", key, user) for user in users))  # one round trip
        # Entries are `session`, or `session,node` for a session that has moved.
        return {
            user: {entry.partition(",")[0] for entry in text.decode().split(";")}
            for user, text in zip(users, found, strict=True)
            if text
        }

    async def present(self, tenant: str, room: str) -> list[str]:
        partition = keys.partition_of(tenant, room)
        present = self._verbs.on_room("present", tenant, room)
        users, _ = await asyncio.gather(present, self._verbs.compare_epoch(partition))
        return sorted(user.decode() for user in users)
