"""Removal of expired data: the sessions of dead nodes, and drift, which is sessions whose end was missed.

A pass goes bucket by bucket, so that no command takes long. To reap a bucket is to end the expired sessions of its
users. The script code is the same as in any other verb (Lua script), so a user goes offline once, whichever node is
first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from math import ceil
from typing import TypeVar

from greendot.engine.messages import Audit, Topic
from greendot.engine.port import PassThrottle, Transition
from greendot.engine.redis import keys
from greendot.engine.redis.bus import RedisBus
from greendot.engine.redis.link import RedisError
from greendot.engine.redis.nodes import CLAIM_MS, HOME, NodeLeases, NodeTable
from greendot.engine.redis.presence import Verbs
from greendot.engine.redis.primary import Primary
from greendot.engine.results import Swept
from greendot.errors import EngineUnavailable
from greendot.presence.model import SessionEpoch
from greendot.telemetry import log_events
from greendot.telemetry.log import log

AT_ONCE = 64  # scripts in parallel
AUDITED = 16  # buckets compared by one script: half a millisecond with a million users
SWEEP_EVERY_MS = 600_000
SWEPT_MS = 900_000  # pause of automatic sweeps after a sweep by a job or an operator
REMEMBERED_MS = 90_000_000  # retention of dead nodes: longer than a bucket lives without its nodes

T = TypeVar("T")


class Sweeper:
    """Passes over all buckets, each by one node at a time."""

    def __init__(self, verbs: Verbs, nodes: NodeLeases, bus: RedisBus, retention_ms: int) -> None:
        self.total = Swept()
        self.drift = 0  # sessions ended by the last sweep, whose end had been missed
        self.swept_at = 0  # engine's time of the last sweep
        self._verbs = verbs
        self._nodes = nodes
        self._bus = bus
        self._retention_ms = retention_ms

    async def bury_overdue(self, table: NodeTable) -> None:
        for node in self._nodes.overdue(table):
            await self._nodes.declare_dead(node, table)

    async def reap(self, table: NodeTable) -> Swept | None:
        """End the sessions of all dead nodes whose grace is over, in one pass.

        Return None if no grace is over, or if another node does this work.
        """
        now = self._verbs.time.now()
        over = [death.node for death in table.dead() if death.ends <= now]
        if not over or not await self._claim("reap", CLAIM_MS):
            return None
        try:
            swept = await self._pass(None, over)
        except RedisError as error:
            if error.code == "CLOCK":  # the clock jump may have prolonged the claim
                await self._release("reap")
            raise
        await self._nodes.strike_off(over)
        log(log_events.NODE_REAPED, peers=", ".join(over), sessions=swept.sessions, users=swept.users)
        self._add(swept)
        await self._release("reap")  # an interrupted pass is repeated when its claim expires
        return swept

    async def sweep_if_due(self) -> Swept | None:
        """Sweep every ten minutes, on one node of the cluster, unless a job or an operator has swept recently."""
        return await self._sweep() if await self._claim("sweep", SWEEP_EVERY_MS) else None

    async def sweep(self) -> Swept:
        """Sweep now, regardless of the last sweep."""
        swept = await self._sweep()
        claim = keys.claim_key(self._verbs.prefix, "sweep")
        await self._verbs.servers.of(HOME).call("SET", claim, self._nodes.incarnation, "PX", SWEPT_MS)
        return swept

    async def _sweep(self) -> Swept:
        """End expired sessions, delete old last-seen entries, and ask each node to audit its sessions.

        Raise EngineUnavailable if a step failed, because an empty result would suggest that no data was wrong.
        """
        await self._nodes.reconcile(range(keys.PARTITIONS))
        swept = await self._pass(self._retention_ms)
        table = await self._nodes.table()
        horizon = self._verbs.time.now() - REMEMBERED_MS
        old = [i.node for i in table.info() if i.state == "dead" and (i.ends_at or 0) < horizon]
        await self._nodes.strike_off(old)
        await self._nodes.forget(old)
        for node, life in table.lives.items():
            if life == "live":
                self._bus.publish(Topic("node", "", node), Audit())
        # Flush: a process that only sweeps disconnects at once, and unsent messages would be lost.
        await asyncio.gather(*(server.call("PING") for server in self._verbs.servers.all.values()))
        swept = swept._replace(nodes=len(old))
        self.drift, self.swept_at = swept.sessions, self._verbs.time.now()
        self._add(swept)
        if any(swept):
            log(log_events.REDIS_SWEPT, sessions=swept.sessions, users=swept.users, nodes=swept.nodes)
        return swept

    async def audit(
        self,
        holds: Callable[[SessionEpoch], bool],
        pace: PassThrottle | None,
        partitions: Iterable[int],
        silent_ms: Callable[[SessionEpoch], int],
    ) -> int:
        """End the sessions under this node's incarnations for which `holds` returns False. Return their number."""
        ended = 0
        for incarnation in [*self._bus.own]:
            for partition in partitions:
                if pace is not None:
                    await pace(ceil(self._verbs.servers.bucket_counts[partition] / AUDITED))
                for field, ref in await self._found(partition, incarnation):
                    if not holds(ref):
                        tenant, _, user = field.partition("/")
                        await self._verbs.on_user("linger", tenant, user, *ref, 0, silent_ms(ref))
                        ended += 1
        return ended

    async def _found(self, partition: int, incarnation: str) -> list[tuple[str, SessionEpoch]]:
        """Return the sessions of an incarnation in a partition, with the fields of their users."""
        verbs = self._verbs
        nodes = keys.nodes_key(verbs.prefix, partition)

        async def listed(some: Sequence[int], count: int) -> list[bytes]:
            names = [keys.buckets(verbs.prefix, partition, bucket)[0] for bucket in some]
            found: list[bytes] = await verbs.servers.run(partition, "audit", [nodes, *names], incarnation, count)
            return found

        answers = await self._over_buckets(partition, AUDITED, listed)
        found = {entry for answer in answers for entry in zip(answer[::3], answer[1::3], answer[2::3], strict=True)}
        return [
            (field.decode(), SessionEpoch(session.decode(), incarnation, int(conn)))
            for field, session, conn in sorted(found)
        ]

    # --- passes ---

    async def _pass(self, retention_ms: int | None, only: Sequence[str] = ()) -> Swept:
        """Reap the buckets of all servers in parallel, for the incarnations in `only` or, if it is empty, for all.

        Raise EngineUnavailable if interrupted.
        """
        servers = [*self._verbs.servers.all.values()]
        try:
            parts = await asyncio.gather(*(self._over(s, retention_ms, only) for s in servers))
        except EngineUnavailable as error:
            log(log_events.REDIS_PASS_CUT, reason=error)
            raise
        return Swept(*(sum(column) for column in zip(*parts, strict=True)))

    async def _over(self, server: Primary, retention_ms: int | None, only: Sequence[str]) -> Swept:
        total = Swept()
        for partition in [*server.partitions]:
            reap = partial(self._reap, partition, retention_ms, only)
            reaped = await self._over_buckets(partition, 1, reap)
            total = Swept(*(a + sum(column) for a, column in zip(total, zip(*reaped, strict=True), strict=True)))
            if only and partition % 16 == 0:
                self._verbs.servers.of(HOME).post("PEXPIRE", keys.claim_key(self._verbs.prefix, "reap"), CLAIM_MS)
        return total

    async def _over_buckets(
        self, partition: int, at_once: int, work: Callable[[Sequence[int], int], Awaitable[T]]
    ) -> list[T]:
        """Call `work` with all buckets of a partition, `at_once` in one call, and with the number of buckets.

        A partition that grows meanwhile refuses a call. Then all buckets are visited again, because some of the
        entries may have moved from a bucket before its visit to a bucket that is not known yet.
        """
        done: list[T] = []
        while True:
            count = self._verbs.servers.bucket_counts[partition]
            names = keys.bucket_names(count)
            shares = [names[at : at + at_once] for at in range(0, count, at_once)]
            moved = False
            for at in range(0, len(shares), AT_ONCE):
                calls = (work(share, count) for share in shares[at : at + AT_ONCE])
                for answer in await asyncio.gather(*calls, return_exceptions=True):
                    if not isinstance(answer, BaseException):
                        done.append(answer)
                    elif isinstance(answer, RedisError) and self._verbs.servers.learn_count(partition, answer):
                        moved = True
                    else:
                        raise answer
            if not moved:
                return done

    async def _reap(
        self, partition: int, retention_ms: int | None, only: Sequence[str], some: Sequence[int], count: int
    ) -> tuple[int, int, int, int]:
        """Reap one bucket, the only one in `some`."""
        verbs = self._verbs
        presence, seen = keys.buckets(verbs.prefix, partition, *some)
        ended, gone, forgotten, seen_going, *crowded = await verbs.servers.run(
            partition,
            "reap",
            [presence, keys.nodes_key(verbs.prefix, partition), seen],
            verbs.time.text(),
            verbs.publish,
            verbs.messages.script_key,
            keys.watch_channels(verbs.prefix, partition),
            count,
            "" if retention_ms is None else retention_ms,
            *only,
        )
        if (tell := verbs.turned) is not None:
            for field in seen_going:
                tenant, _, user = field.decode().partition("/")
                tell(Transition("user", tenant, user, False))
        if crowded:
            verbs.crowded(partition)
        return ended, gone, forgotten, 0

    def _add(self, swept: Swept) -> None:
        self.total = Swept(*(a + b for a, b in zip(self.total, swept, strict=True)))

    async def _claim(self, what: str, ms: int) -> bool:
        claim = keys.claim_key(self._verbs.prefix, what)
        home = self._verbs.servers.of(HOME)
        return await home.call("SET", claim, self._nodes.incarnation, "NX", "PX", ms) is not None

    async def _release(self, what: str) -> None:
        await self._verbs.servers.of(HOME).call("DEL", keys.claim_key(self._verbs.prefix, what))
