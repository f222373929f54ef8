"""Embedded engine: one process, nothing to install, no data kept over a restart.

This engine is a thin layer over the pure models of presence, typing and occupancy. Tests compare other engines with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Literal
from zlib import crc32

from msgspec import structs

from greendot.clock import Clock
from greendot.engine.messages import Entered, Left, Message, Part, Topic, Typing
from greendot.engine.port import Engine, Fenced, Host, PassThrottle, RecordsState, Transition
from greendot.engine.results import (
    Adopted,
    EngineSession,
    Known,
    NodeInfo,
    OccupantPage,
    Page,
    Swept,
    Touched,
    cursor,
    most_by_id,
    page_by_id,
    read_cursor,
)
from greendot.engine.used_names_model import UsedNames
from greendot.ids import Key, new_incarnation
from greendot.limits.overload_model import Level
from greendot.node.bucket_model import BucketDict
from greendot.presence.model import (
    NOBODY,
    Change,
    ManualStatus,
    NodeLife,
    RestoredState,
    SessionEpoch,
    Snapshot,
    UserPresence,
    VisibleState,
)
from greendot.rooms.occupancy_model import Occupants
from greendot.rooms.typing_model import TypingUsers, Typist
from greendot.telemetry.metrics_model import Histogram

AT_ONCE = 200  # users settled or compared before others are served
BUCKETS = 1_024  # buckets of a tenant's users
MOST_LOOKED_AT = 2_000  # users read for one page, even if most of them are invisible
_JUMP_MS = 1_000  # a larger difference means that the wall clock was set; smaller ones are gradual adjustments


class _Tenant:
    """Users of a tenant who have sessions, in buckets. A page of users is built from a few buckets at a time."""

    __slots__ = ("online", "users")

    def __init__(self) -> None:
        self.online = 0  # number of users whom others see as not offline
        self.users: dict[int, set[str]] = {}  # users by bucket

    def add(self, user: str) -> None:
        self.users.setdefault(_bucket(user), set()).add(user)

    def remove(self, user: str) -> None:
        bucket = _bucket(user)
        self.users[bucket].discard(user)
        if not self.users[bucket]:
            del self.users[bucket]


def _bucket(user: str) -> int:
    return crc32(user.encode()) % BUCKETS


class MemoryEngine:
    """Engine of a single node (see `Engine`). Published messages reach this node or no node."""

    def __init__(
        self,
        clock: Clock,
        *,
        grace_ms: int = 30_000,
        typing_ttl_ms: int = 5_000,
        typing_throttle_ms: int = 2_000,
        seen_retention_ms: int = 30 * 86_400_000,
    ) -> None:
        self._clock = clock
        # The engine's time advances with the monotonic clock. `_rebase` adjusts it when the wall clock is set.
        self._epoch_ms = clock.now_ms() - clock.monotonic() * 1000
        self._grace_ms = grace_ms
        self._typing_ttl_ms = typing_ttl_ms
        self._typing_throttle_ms = typing_throttle_ms
        self._seen_retention_ms = seen_retention_ms
        self._nodes: dict[str, NodeLife] = {}
        self._users: dict[Key, UserPresence] = {}  # users with sessions
        self._tenants: dict[str, _Tenant] = {}  # tenants that have users with sessions
        self._seen: dict[Key, tuple[VisibleState, str | None, int]] = {}  # without sessions; oldest departure first
        self._typing: dict[Key, TypingUsers] = {}
        self._typing_pruned = 0
        self._occupants: dict[Key, Occupants] = {}
        self._used = UsedNames()
        self._incarnation = ""
        self._host: Host | None = None
        self._topics = BucketDict[Topic, None]()
        self._published = 0  # number of messages
        self.turned: Callable[[Transition], None] | None = None

    # --- life ---

    trouble = None  # the engine is always available
    lag_s = 0.0  # messages are delivered while they are published
    level = Level.NORMAL

    async def start(self, host: Host) -> str:
        self._host, self._incarnation = host, new_incarnation()
        self._nodes[self._incarnation] = NodeLife()
        return self._incarnation

    async def close(self) -> None:
        now = self.now_ms()
        self._nodes[self._incarnation] = NodeLife(now, now + self._grace_ms)
        self._host = None
        self._topics.clear()

    async def nodes(self) -> list[NodeInfo]:
        now = self.now_ms()
        return [
            NodeInfo(
                node, "live" if life.ends is None else "dead", life.last_renewal or now, life.ends, self._level(node)
            )
            for node, life in self._nodes.items()
        ]

    def _level(self, node: str) -> str:
        return (self.level if node == self._incarnation else Level.NORMAL).name.lower()

    def refusing(self) -> frozenset[str]:
        return frozenset([self._incarnation]) if self.level is Level.REFUSING else frozenset()

    def live_nodes(self) -> Collection[str]:
        return [node for node, life in self._nodes.items() if life.ends is None]

    async def sweep(self) -> Swept:
        swept = Swept()
        for number, (key, record) in enumerate([*self._users.items()]):
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
            if self._users.get(key) is record:
                before = len(record.sessions)
                now = self.now_ms()
                self._settled(key, record, record.settle(now, self._nodes), now)
                swept = swept._replace(
                    sessions=swept.sessions + before - len(record.sessions), users=swept.users + record.empty
                )
        return swept

    def is_restoring(self, tenant: str, name: str) -> bool:
        return False  # the engine loses data only together with its node

    async def is_any_restoring(self) -> bool:
        return False

    def records_state(self, part: Part) -> RecordsState:
        return {}

    async def restored(self, part: Part, since: RecordsState) -> None:
        pass

    async def audit(
        self,
        holds: Callable[[SessionEpoch], bool],
        pace: PassThrottle | None = None,
        part: Part | None = None,
        silent_ms: Callable[[SessionEpoch], int] | None = None,
    ) -> int:
        ended = 0
        for number, ((tenant, user), record) in enumerate([*self._users.items()]):
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
            if self._users.get((tenant, user)) is not record or (part is not None and not part.covers(tenant, user)):
                continue
            for session, entry in [*record.sessions.items()]:
                ref = SessionEpoch(session, entry.incarnation, entry.conn)
                if entry.incarnation == self._incarnation and not holds(ref):
                    await self.linger(tenant, user, ref, 0, 0 if silent_ms is None else silent_ms(ref))
                    ended += 1
        return ended

    def counts(self) -> dict[str, float]:
        return {
            "realtime_pubsub_published_total": self._published,
            "realtime_pubsub_invalid_total": 0,  # there is no other sender
            "presence_users_online": len(self._users),
            "presence_nodes_live": 1,
        }

    def histograms(self) -> dict[str, Histogram]:
        return {}

    # --- presence ---

    async def touch(
        self, tenant: str, user: str, ref: SessionEpoch, device: str, idle: bool | None, name: str | None
    ) -> Touched:
        key, record = self._record(tenant, user, ref)
        if name is not None:
            record.name = name
        now = self.now_ms()
        resumed, change = record.touch(ref, device, idle, now, self._nodes)
        self._settled(key, record, change, now)
        return Touched(record.manual is not None, resumed)

    async def restore(self, tenant: str, user: str, ref: SessionEpoch, known: Known) -> None:
        key, record = self._record(tenant, user, ref)
        record.name = known.name or record.name
        if record.manual is None or known.manual.rev >= record.manual.rev:
            record.manual = known.manual
        now = self.now_ms()
        restored = RestoredState(now - known.age_ms, 0 if known.lost_ms is None else now - known.lost_ms)
        _, change = record.touch(ref, known.device, known.idle, now, self._nodes, restored=restored)
        if change is not None:
            change = structs.replace(change, restored=True)
        self._settled(key, record, change, now)

    async def adopt(self, tenant: str, user: str, session: str, ref: SessionEpoch) -> Adopted | None:
        self._check_life(ref)
        record = self._users.get((tenant, user))
        if record is None:
            return None
        now = self.now_ms()
        found, change = record.adopt(session, ref, now, self._nodes)
        self._settled((tenant, user), record, change, now)
        return Adopted(*found) if found else None

    def _check_life(self, ref: SessionEpoch) -> None:
        life = self._nodes.get(ref.incarnation)
        if life is None or life.ends is not None:
            raise Fenced(ref.incarnation)

    def _record(self, tenant: str, user: str, ref: SessionEpoch) -> tuple[Key, UserPresence]:
        self._check_life(ref)
        key = (tenant, user)
        record = self._users.get(key)
        if record is None:
            visible, name, _ = self._seen.pop(key, (NOBODY, None, 0))
            record = self._users[key] = UserPresence(visible, name)
            self._tenants.setdefault(tenant, _Tenant()).add(user)
        return key, record

    async def linger(self, tenant: str, user: str, ref: SessionEpoch, grace_ms: int, silent_ms: int) -> int | None:
        record = self._users.get((tenant, user))
        if record is None:
            return None
        now = self.now_ms()
        remaining, change = record.linger(ref, grace_ms, now - silent_ms, now, self._nodes)
        self._settled((tenant, user), record, change, now)
        return remaining

    async def leave(self, tenant: str, user: str, ref: SessionEpoch) -> int | None:
        record = self._users.get((tenant, user))
        if record is None:
            return None
        now = self.now_ms()
        remaining, change = record.leave(ref, now, self._nodes)
        self._settled((tenant, user), record, change, now)
        return remaining

    async def set_status(self, tenant: str, user: str, manual: ManualStatus) -> Snapshot:
        record = self._users.get((tenant, user))
        if record is not None:
            now = self.now_ms()
            self._settled((tenant, user), record, record.set_manual(manual, now, self._nodes), now)
        return self._snapshot((tenant, user))

    async def read(self, tenant: str, users: Sequence[str]) -> list[Snapshot]:
        now = self.now_ms()
        for user in users:
            record = self._users.get((tenant, user))
            if record is not None:
                self._settled((tenant, user), record, record.settle(now, self._nodes), now)
        return [self._snapshot((tenant, user)) for user in users]

    def order(self, tenant: str, users: Sequence[str]) -> Sequence[int]:
        return range(len(users))

    async def online(self, tenant: str, after: str | None, limit: int) -> Page:
        there = self._tenants.get(tenant)
        if there is None:
            return Page([], None, 0, 1)
        size = sum(map(len, there.users.values()))
        if there.online <= most_by_id(after) and size <= MOST_LOOKED_AT:
            users = [user for bucket in [*there.users.values()] for user in [*bucket]]
            shown = zip(users, await self.read(tenant, users), strict=True)
            return page_by_id([user for user, of in shown if of.visible.state != "offline"], after, limit, 1 + size)
        now, found, last, work = self.now_ms(), list[str](), "", 1
        first, past = (0, "") if after is None else read_cursor(after, _bucket)
        for number in range(first, BUCKETS):
            if work > MOST_LOOKED_AT:
                return Page(sorted(found), cursor(number), there.online, work)
            for user in sorted(there.users.get(number, ())):
                if number == first and user <= past:
                    continue
                if len(found) == limit:
                    return Page(sorted(found), last, there.online, work)
                key, last, work = (tenant, user), cursor(number, user), work + 1
                record = self._users[key]
                self._settled(key, record, record.settle(now, self._nodes), now)
                if record.visible.state != "offline":
                    found.append(user)
        return Page(sorted(found), None, there.online, work)

    async def sessions(self, tenant: str, user: str) -> list[EngineSession]:
        await self.read(tenant, [user])
        record, now = self._users.get((tenant, user)), self.now_ms()
        return [
            EngineSession(
                session,
                entry.device,
                entry.incarnation,
                "idle" if entry.idle else "online",
                None if entry.deadline is None else entry.deadline - now,
            )
            for session, entry in (record.sessions.items() if record else ())
        ]

    def _settled(self, key: Key, record: UserPresence, change: Change | None, now: int) -> None:
        turned = record.turned
        if turned is not None:
            self._tenants[key[0]].online += 1 if turned else -1
        if not record.sessions:
            del self._users[key]
            self._forget(key)
            self._seen[key] = (record.visible, record.name, now)
            self._forget_seen(now)
        if turned is not None and not (change is not None and change.restored):
            self._publish("user", key, turned)
        if change is not None:
            self.publish(Topic("watch", key[0], key[1]), change)

    def _forget(self, key: Key) -> None:
        """Remove a user without sessions from the pages."""
        of = self._tenants[key[0]]
        of.remove(key[1])
        if not of.users:
            del self._tenants[key[0]]

    def _publish(self, kind: Literal["user", "room"], key: Key, on: bool) -> None:
        if self.turned is not None:
            self.turned(Transition(kind, key[0], key[1], on))

    def _snapshot(self, key: Key) -> Snapshot:
        record = self._users.get(key)
        if record is not None:
            return record.snapshot()
        visible, name, _ = self._seen.get(key, (NOBODY, None, 0))
        return Snapshot(visible, visible, name, [])

    def _forget_seen(self, now: int) -> None:
        # Delete two at a time. Departures come one by one, so the backlog shrinks, and no verb takes long.
        horizon = now - self._seen_retention_ms
        for _ in range(2):
            oldest = next(iter(self._seen), None)
            if oldest is None or self._seen[oldest][2] > horizon:
                return
            del self._seen[oldest]

    # --- typing ---

    def typing_start(self, tenant: str, room: str, user: str, name: str | None) -> None:
        now = self.now_ms()
        self._prune_typing(now)
        typists = self._typing.get((tenant, room))
        if typists is None:
            typists = TypingUsers(self._typing_ttl_ms, self._typing_throttle_ms)
            self._typing[tenant, room] = typists
        if typists.start(user, name, now):
            self.publish(Topic("room", tenant, room), Typing(user, name, self._typing_ttl_ms))

    def typing_stop(self, tenant: str, room: str, user: str) -> None:
        typists = self._typing.get((tenant, room))
        if typists is not None and typists.stop(user, self.now_ms()):
            self.publish(Topic("room", tenant, room), Typing(user, None, 0))

    async def typers(self, tenant: str, room: str) -> list[Typist]:
        typists = self._typing.get((tenant, room))
        return [] if typists is None else typists.active(self.now_ms())

    def _prune_typing(self, now: int) -> None:
        """Drop rooms without typing users, at most once per two hold times, so that idle rooms use no memory."""
        if now - self._typing_pruned < 2 * self._typing_ttl_ms:
            return
        self._typing_pruned = now
        self._typing = {room: typists for room, typists in self._typing.items() if typists.prune(now)}

    # --- occupancy ---

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
        self._check_life(ref)
        occupants = self._occupants.get((tenant, room))
        if occupants is None:
            occupants = self._occupants[tenant, room] = Occupants()
            if not restoring:
                self._publish("room", (tenant, room), True)
        if occupants.enter(user, ref, self.now_ms(), self._nodes):
            self.publish(Topic("room", tenant, room), Entered(user, restoring, None if restoring else name or None))

    async def exit(self, tenant: str, room: str, user: str, ref: SessionEpoch) -> None:
        occupants = self._occupants.get((tenant, room))
        if occupants is None:
            return
        left = occupants.exit(user, ref.session, self.now_ms(), self._nodes)
        if occupants.empty:
            del self._occupants[tenant, room]
            self._publish("room", (tenant, room), False)
        if left:
            self.publish(Topic("room", tenant, room), Left(user))

    async def present(self, tenant: str, room: str) -> list[str]:
        occupants = self._occupants.get((tenant, room))
        return [] if occupants is None else occupants.users(self.now_ms(), self._nodes)

    async def present_page(
        self, tenant: str, room: str, after: str | None, limit: int, look_for: str | None = None
    ) -> OccupantPage:
        occupants = self._occupants.get((tenant, room))
        if occupants is None:
            return OccupantPage([], 0)
        now = self.now_ms()
        is_there = look_for is not None and bool(occupants.sessions(look_for, now, self._nodes))
        return OccupantPage(*occupants.page(after, limit, now, self._nodes), is_there)

    async def sessions_in_room(self, tenant: str, room: str, users: Sequence[str]) -> dict[str, set[str]]:
        occupants, now = self._occupants.get((tenant, room)), self.now_ms()
        if occupants is None:
            return {}
        found = {user: occupants.sessions(user, now, self._nodes) for user in users}
        return {user: sessions for user, sessions in found.items() if sessions}

    async def room_nodes(self, tenant: str, room: str) -> set[str]:
        occupants = self._occupants.get((tenant, room))
        return set() if occupants is None else {n for n in occupants.nodes() if self._nodes[n].ends is None}

    # --- used names ---

    async def use(self, tenant: str, name: str, keep_ms: int) -> int:
        return self._used.use(tenant, name, self.now_ms(), keep_ms)

    # --- bus ---

    def publish(self, topic: Topic, message: Message) -> None:
        self._published += 1
        if self._host is not None and (topic.kind in ("user", "node") or topic in self._topics):
            self._host.receive(topic, message)

    async def reach(self, node: str, message: Message) -> bool:
        if node == self._incarnation:
            self.publish(Topic("node", "", node), message)
        return node == self._incarnation

    def heard_at(self) -> float:
        return float("inf")  # messages are delivered while they are published

    async def subscribe(self, topics: Iterable[Topic]) -> None:
        for topic in topics:
            self._topics[topic] = None

    async def unsubscribe(self, topics: Iterable[Topic]) -> None:
        for topic in topics:
            self._topics.pop(topic)

    def now_ms(self) -> int:
        now = int(self._epoch_ms + self._clock.monotonic() * 1000 + 1e-3)  # never ahead of the wall clock
        jump = self._clock.now_ms() - now
        if not -_JUMP_MS <= jump <= _JUMP_MS:
            self._rebase(jump)
            now += jump
        return now

    def _rebase(self, jump: int) -> None:
        """Adjust to a wall clock that was set: timestamps follow the clock, but running durations keep their length."""
        self._epoch_ms += jump
        for node, life in self._nodes.items():
            if life.ends is not None:
                self._nodes[node] = life._replace(ends=life.ends + jump)
        for record in self._users.values():
            record.shift(jump)
        for typists in self._typing.values():
            typists.shift(jump)
        self._typing_pruned += jump


_: type[Engine] = MemoryEngine
