"""Presence on Redis: the verbs of `engine.port.PresenceEngine` as scripts on one user's bucket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal, cast

from greendot.engine.messages import Topic
from greendot.engine.port import Fenced, Transition
from greendot.engine.redis import keys
from greendot.engine.redis.bus_codec import BusCodec
from greendot.engine.redis.engine_time import EngineTime
from greendot.engine.redis.link import Argument, RedisError
from greendot.engine.redis.online_pages import OnlinePages
from greendot.engine.redis.partitions import Primaries
from greendot.engine.redis.record_codec import STATUS_LETTERS, escape, read_sessions, read_snapshot
from greendot.engine.results import Adopted, EngineSession, Known, Page, Touched
from greendot.errors import EngineUnavailable
from greendot.presence.model import ManualStatus, SessionEpoch, Snapshot

READ_BATCH = 250  # users in one script outside a cluster: about half a millisecond
MOST_MOVES = 50  # attempts of a verb whose partition keeps growing

# Attempts of a verb, by the code of its refusal. Two nodes that repair the time after a jump can replace each other's
# correction, so that the time is still off after one repair.
ATTEMPTS = {"UNKNOWN": 2, "CLOCK": 4}


class Verbs:
    """Runner of verbs: routing, the engine's time, publishing, and repair after a refusal."""

    def __init__(self, servers: Primaries, messages: BusCodec, time: EngineTime, prefix: str) -> None:
        self.servers = servers
        self.messages = messages
        self.time = time
        self.prefix = prefix
        self.publish = "SPUBLISH" if servers.sharded else "PUBLISH"
        self.alive: Collection[str] = ()  # live incarnations, as of the latest read
        self.restored = 0  # sessions and occupants that this node has restored
        self.crowded: Callable[[int], None] = lambda partition: None  # called if a partition needs another bucket
        self.turned: Callable[[Transition], None] | None = None
        self.restoring: Callable[[], Collection[int]] = lambda: ()  # partitions that may lack records after a loss
        self.answered: Callable[[int, str], None] = lambda partition, epoch: None  # called with a partition's epoch
        # Awaited when a verb was refused, with the error's code, the partition and the refused incarnation.
        self.repair: Callable[[str, int, str], Any] = lambda code, partition, refused: None

    async def on_user(self, name: str, tenant: str, user: str, *arguments: Argument) -> Any:
        """Run a verb on one user. Report a transition if the verb caused one."""
        where = keys.user_keys(self.prefix, tenant, user)
        for _ in range(MOST_MOVES):
            count = self.servers.bucket_counts[where.partition]
            presence, seen = where.buckets(count)
            names, about = (presence, where.nodes, seen), (where.field, where.channel)
            try:
                answer = await self._on(where.partition, name, names, about, (count, *arguments))
            except RedisError as error:
                if not self.servers.learn_count(where.partition, error):
                    raise
            else:
                return self._observed("user", tenant, user, answer)
        raise EngineUnavailable("the buckets of the user keep moving: try again")

    async def on_room(self, name: str, tenant: str, room: str, *arguments: Argument) -> Any:
        """Run a verb on the occupancy of one room. Report a transition if the verb caused one."""
        partition = keys.partition_of(tenant, room)
        names = (
            keys.present_key(self.prefix, tenant, room),
            keys.nodes_key(self.prefix, partition),
            keys.present_index_key(self.prefix, tenant, room),
        )
        channel = keys.channel(self.prefix, Topic("room", tenant, room))
        return self._observed("room", tenant, room, await self._on(partition, name, names, (channel,), arguments))

    def _observed(self, kind: Literal["user", "room"], tenant: str, name: str, answer: Any) -> Any:
        """Return the verb's own answer, and report the transition that may accompany it."""
        if not (isinstance(answer, list) and answer and answer[0] == b"!"):
            return answer
        _, turned, own, *crowded = answer
        if self.turned is not None and turned != b"":
            self.turned(Transition(kind, tenant, name, bool(turned)))
        if crowded:
            self.crowded(keys.partition_of(tenant, name))
        return own

    async def compare_epoch(self, partition: int) -> None:
        """Read the partition's epoch to detect a loss of its records.

        If this read comes after a verb, it also detects a loss before the verb.
        """
        await self._read(partition, [], [])

    async def read(self, users: Sequence[keys.UserKeys]) -> list[bytes]:
        """Return the records of some users. In a cluster, all users must be in one partition."""
        found, missing = [b""] * len(users), [*range(len(users))]
        while missing:
            names: list[str] = []
            arguments: list[Argument] = []
            for index in missing:
                one = users[index]
                count = self.servers.bucket_counts[one.partition]
                names += one.buckets(count)
                arguments += (one.field, count)
            answers = await self._read(users[missing[0]].partition, names, arguments)
            asked, missing = missing, []
            for index, answer in zip(asked, answers, strict=True):
                if isinstance(answer, bytes):
                    found[index] = answer
                else:
                    self.servers.bucket_counts[users[index].partition] = answer
                    missing.append(index)
        return found

    async def _read(self, partition: int, names: list[str], arguments: list[Argument]) -> list[bytes | int]:
        names.append(keys.nodes_key(self.prefix, partition))
        *records, epoch = await self.servers.run(partition, "read", names, *arguments)
        self.answered(partition, epoch.decode())
        found: list[bytes | int] = records
        return found

    async def _on(
        self, partition: int, name: str, names: Sequence[str], where: Sequence[str], arguments: Sequence[Argument]
    ) -> Any:
        """Run a verb. If the node is unknown in the partition or the time is off, repair and retry."""
        refusals: list[str] = []
        while True:
            fixed = (self.time.text(), *where, self.publish, self.messages.script_key)
            try:
                return await self.servers.run(partition, name, names, *fixed, *arguments)
            except RedisError as error:
                if error.code == "FENCED":
                    await self.repair("FENCED", partition, refused := _refused(error))
                    raise Fenced(refused) from None
                refusals.append(error.code)
                if refusals.count(error.code) >= ATTEMPTS.get(error.code, 0):
                    raise (Fenced(_refused(error)) if error.code == "UNKNOWN" else error) from None
                await self.repair(error.code, partition, "")


def _refused(error: RedisError) -> str:
    """Return the incarnation in an error of a verb that refuses a node."""
    return str(error).split()[1]


class RedisPresence:
    """Presence on Redis (see `engine.port.PresenceEngine`), and the callback for transitions of users and rooms."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs
        self._pages = OnlinePages(verbs.servers, verbs.prefix, self._read_record, self._settled)

    def now_ms(self) -> int:
        return self._verbs.time.now()

    @property
    def turned(self) -> Callable[[Transition], None] | None:
        return self._verbs.turned

    @turned.setter
    def turned(self, tell: Callable[[Transition], None] | None) -> None:
        self._verbs.turned = tell

    async def touch(
        self, tenant: str, user: str, ref: SessionEpoch, device: str, idle: bool | None, name: str | None
    ) -> Touched:
        letter = "" if idle is None else "i" if idle else "a"
        resumed, known = await self._verbs.on_user("touch", tenant, user, *ref, device, letter, escape(name))
        return Touched(bool(known), bool(resumed))

    async def restore(self, tenant: str, user: str, ref: SessionEpoch, known: Known) -> None:
        manual, letter = known.manual, "i" if known.idle else "a"
        lost = "" if known.lost_ms is None else known.lost_ms
        about = (known.device, letter, escape(known.name), known.age_ms, *_packed(manual), lost)
        await self._verbs.on_user("touch", tenant, user, *ref, *about)
        self._verbs.restored += 1

    async def adopt(self, tenant: str, user: str, session: str, ref: SessionEpoch) -> Adopted | None:
        answer = await self._verbs.on_user("adopt", tenant, user, *ref, session)
        if not answer:
            await self._verbs.compare_epoch(keys.partition_of(tenant, user))
        return Adopted(answer[0].decode(), answer[1] == b"i") if answer else None

    async def linger(self, tenant: str, user: str, ref: SessionEpoch, grace_ms: int, silent_ms: int) -> int | None:
        remaining = _remaining(await self._verbs.on_user("linger", tenant, user, *ref, grace_ms, silent_ms))
        if remaining is None:
            await self._verbs.compare_epoch(keys.partition_of(tenant, user))
        return remaining

    async def leave(self, tenant: str, user: str, ref: SessionEpoch) -> int | None:
        return _remaining(await self._verbs.on_user("leave", tenant, user, *ref))

    async def set_status(self, tenant: str, user: str, manual: ManualStatus) -> Snapshot:
        answer = await self._verbs.on_user("status", tenant, user, *_packed(manual))
        if not answer:
            await self._verbs.compare_epoch(keys.partition_of(tenant, user))
        snapshot = cast(Snapshot, read_snapshot(answer, _Everybody(), 0))
        return snapshot._replace(stale=self.is_restoring(tenant, user))

    # --- reading ---

    def is_restoring(self, tenant: str, name: str) -> bool:
        return keys.partition_of(tenant, name) in self._verbs.restoring()

    async def is_any_restoring(self) -> bool:
        servers = self._verbs.servers.all.values()
        await asyncio.gather(*(self._verbs.compare_epoch(min(s.partitions)) for s in servers if s.partitions))
        return bool(self._verbs.restoring())

    async def read(self, tenant: str, users: Sequence[str]) -> list[Snapshot]:
        where = [keys.user_keys(self._verbs.prefix, tenant, user) for user in users]
        shares, restoring = self._shares(where), {*self._verbs.restoring()}
        answers = await asyncio.gather(*(self._read_share(where, share) for share in shares))
        found: list[Snapshot | None] = [None] * len(users)
        for share, answer in zip(shares, answers, strict=True):
            for index, snapshot in zip(share, answer, strict=True):
                found[index] = snapshot
        due = [index for index, snapshot in enumerate(found) if snapshot is None]
        settled = await asyncio.gather(*(self._settled(tenant, users[index]) for index in due))
        for index, one in zip(due, settled, strict=True):
            found[index] = one
        snapshots = cast(list[Snapshot], found)
        if restoring := restoring.union(self._verbs.restoring()):
            return [s._replace(stale=w.partition in restoring) for s, w in zip(snapshots, where, strict=True)]
        return snapshots

    def order(self, tenant: str, users: Sequence[str]) -> Sequence[int]:
        if not self._verbs.servers.sharded:
            return range(len(users))
        return sorted(range(len(users)), key=[keys.partition_of(tenant, user) for user in users].__getitem__)

    def _shares(self, where: Sequence[keys.UserKeys]) -> list[list[int]]:
        """Return groups of users to read in one script each.

        In a cluster, a group has the users of one partition. Otherwise a group has at most `READ_BATCH` users.
        """
        if not self._verbs.servers.sharded:
            return [[*range(at, min(at + READ_BATCH, len(where)))] for at in range(0, len(where), READ_BATCH)]
        shares: dict[int, list[int]] = {}
        for index, user in enumerate(where):
            shares.setdefault(user.partition, []).append(index)
        return [*shares.values()]

    async def _read_share(self, where: Sequence[keys.UserKeys], share: list[int]) -> list[Snapshot | None]:
        """Return the snapshots of a group of users; None for users whose data may have expired.

        A group is decoded while Redis reads the next one.
        """
        answer = await self._verbs.read([where[index] for index in share])
        alive, now = self._verbs.alive, self._verbs.time.now()
        return [read_snapshot(record, alive, now) for record in answer]

    async def _settled(self, tenant: str, user: str) -> Snapshot:
        """End the user's expired data; return the snapshot. It includes sessions of nodes that are not in `alive`."""
        answer = await self._verbs.on_user("settle", tenant, user)
        if not answer:  # the record existed a moment ago
            await self._verbs.compare_epoch(keys.partition_of(tenant, user))
        return cast(Snapshot, read_snapshot(answer, _Everybody(), 0))

    async def online(self, tenant: str, after: str | None, limit: int) -> Page:
        return await self._pages.page(tenant, after, limit)

    def _read_record(self, record: bytes) -> Snapshot | None:
        return read_snapshot(record, self._verbs.alive, self._verbs.time.now())

    async def forget(self, tenant: str, user: str) -> None:
        """Delete the user's last-seen time and name. For operators, after the last session has ended."""
        await self._verbs.on_user("erase", tenant, user)

    async def sessions(self, tenant: str, user: str) -> list[EngineSession]:
        settling = self._verbs.on_user("settle", tenant, user)
        record, _ = await asyncio.gather(settling, self._verbs.compare_epoch(keys.partition_of(tenant, user)))
        now = self._verbs.time.now()
        return [
            EngineSession(
                entry.session,
                entry.device,
                entry.node,
                "idle" if entry.idle else "online",
                None if entry.deadline is None else max(0, entry.deadline - now),
            )
            for entry in read_sessions(record.decode())
        ]


class _Everybody:
    def __contains__(self, node: object) -> bool:
        return True


def _packed(manual: ManualStatus) -> tuple[Argument, ...]:
    until = "" if manual.until is None else manual.until
    return STATUS_LETTERS[manual.status], manual.rev, until, escape(manual.text)


def _remaining(answer: int) -> int | None:
    return None if answer < 0 else answer
