"""Typing and room occupancy on Redis.

While a room's server is away, typing continues among this node's own subscribers.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from heapq import merge

from greendot.engine.messages import Topic, Typing
from greendot.engine.redis import keys
from greendot.engine.redis.link import Argument, RedisError
from greendot.engine.redis.nodes import HOME
from greendot.engine.redis.presence import Verbs
from greendot.engine.redis.record_codec import escape, unescape
from greendot.engine.redis.scripts import SCRIPTS
from greendot.engine.results import OccupantPage
from greendot.ids import new_incarnation
from greendot.presence.model import SessionEpoch
from greendot.rooms.typing_model import TypingUsers, Typist

MOST_ROOMS = 10_000  # rooms kept in memory while the engine is away
AT_ONCE = 250  # users whose sessions are read in one script: about a millisecond
PAGE = 1_000  # users in a page of the index: less than a millisecond
CLAIM_MS = 5_000  # time in which only one node removes the users of dead nodes from a room
WAIT_S = 0.1  # wait for another node that does so
ATTEMPTS = 100  # reads of a page while this lasts, nodes die or the index ends


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
        found: dict[str, Typist] = {}  # in the order of their last starts; devices of a user may have different names
        for member, remaining in zip(answer[::2], answer[1::2], strict=True):
            user, _, name = member.decode().partition("|")
            found.pop(user, None)
            found[user] = Typist(user, unescape(name), int(remaining))
        return [*found.values()]


class RedisRooms:
    """Room occupancy on Redis; see `engine.port.RoomEngine`."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs

    async def enter(
        self,
        tenant: str,
        room: str,
        user: str,
        ref: SessionEpoch,
        name: str | None = None,
        *,
        restoring: bool = False,
    ) -> None:
        mode, shown = ("r", "") if restoring else ("1", escape(name))
        await self._verbs.on_room("enter", tenant, room, *ref, user, mode, shown)
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

    # --- occupants ---

    async def present(self, tenant: str, room: str) -> list[str]:
        found: list[str] = []
        while True:
            page = await self._find(tenant, room, found[-1] if found else None, PAGE)
            if isinstance(page, list):
                return page
            found += page.users
            if len(page.users) < PAGE:
                return found

    async def present_page(
        self, tenant: str, room: str, after: str | None, limit: int, look_for: str | None = None
    ) -> OccupantPage:
        found = await self._find(tenant, room, after, limit, look_for)
        return _cut(found, after, limit, look_for) if isinstance(found, list) else found

    async def _find(
        self, tenant: str, room: str, after: str | None, limit: int, look_for: str | None = None
    ) -> OccupantPage | list[str]:
        """Return a page; or all occupants, sorted, where a page costs no less."""
        found = self._read(tenant, room, (after or "", limit, look_for or ""))
        answer, _ = await asyncio.gather(found, self._verbs.compare_epoch(keys.partition_of(tenant, room)))
        return answer

    async def _read(self, tenant: str, room: str, what: tuple[str, int, str]) -> OccupantPage | list[str]:
        for _ in range(ATTEMPTS):
            answer = await self._verbs.on_room("occupants", tenant, room, *what)
            match answer[0]:
                case b"all":
                    return sorted(user.decode() for user in answer[1:])
                case b"dead":
                    await self._prune(tenant, room, answer[1:])
                case b"build":
                    if not await self._build(tenant, room):
                        break
                case b"old":
                    break
                case total:
                    return OccupantPage([user.decode() for user in answer[2:]], total, bool(answer[1]))
        return await self._scan(tenant, room)

    async def _prune(self, tenant: str, room: str, marks: Sequence[bytes]) -> None:
        """Remove the users of dead nodes from the index, some in each command; or wait for the node that does it.

        All nodes with listeners in the room come here after a death, and one pass is enough.
        """
        home, claim = self._verbs.servers.of(HOME), keys.claim_key(self._verbs.prefix, f"{tenant}/{room}")
        try:
            if not await home.call("SET", claim, "1", "NX", "PX", CLAIM_MS):
                await asyncio.sleep(WAIT_S)
                return
        except RedisError as error:
            if error.code != "OOM":  # removals free memory, so they need no claim then
                raise
        try:
            after, is_begun = "", False
            while after or not is_begun:
                answer = await self._verbs.on_room("prune", tenant, room, after, AT_ONCE, *marks)
                after, is_begun = answer.decode(), True
        finally:
            await home.call("DEL", claim)

    async def _build(self, tenant: str, room: str) -> bool:
        """Build the index of a large room, some users in each command. Return False if Redis is out of memory."""
        cursor, token, is_begun = b"0", new_incarnation(), False
        try:
            while cursor != b"0" or not is_begun:
                cursor, is_begun = await self._verbs.on_room("index", tenant, room, cursor, AT_ONCE, token), True
        except RedisError as error:
            if error.code != "OOM":
                raise
            return False
        return True

    async def _scan(self, tenant: str, room: str) -> list[str]:
        """Return all occupants from the hash, some in each command, while the index lacks some."""
        cursor, parts = b"0", list[list[str]]()
        while cursor != b"0" or not parts:
            cursor, *users = await self._verbs.on_room("present", tenant, room, cursor, AT_ONCE)
            parts.append(sorted(user.decode() for user in users))
        found: list[str] = []
        for number, user in enumerate(merge(*parts)):
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)  # a room may be large
            if not found or found[-1] != user:
                found.append(user)
        return found


def _cut(users: Sequence[str], after: str | None, limit: int, look_for: str | None) -> OccupantPage:
    """Return a page of all occupants, who are sorted."""
    first = 0 if after is None else bisect_right(users, after)
    at = bisect_left(users, look_for) if look_for is not None else len(users)
    return OccupantPage([*users[first : first + limit]], len(users), at < len(users) and users[at] == look_for)
