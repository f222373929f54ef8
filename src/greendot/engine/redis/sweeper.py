"""Ending what no longer counts: the sessions of dead nodes, and whatever drifted.

A pass goes bucket by bucket, so that no command takes long, and every bucket is settled by the same script as any other
verb: a user goes offline once, whoever comes by first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

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

AT_ONCE = 64  # buckets asked for together
AUDITED = 16  # buckets compared by one script: half a millisecond with a million users
SWEEP_EVERY_MS = 600_000
SWEPT_MS = 900_000  # nobody sweeps by itself for so long after it was done by a job or an operator
REMEMBERED_MS = 90_000_000  # how long a dead node is listed: longer than any bucket lives without its nodes


class Sweeper:
    """Passes over all buckets, each by one node at a time."""

    def __init__(self, verbs: Verbs, nodes: NodeLeases, bus: RedisBus, retention_ms: int) -> None:
        self.total = Swept()
        self.drift = 0  # sessions the last sweep ended: nobody had told that they were over
        self.swept_at = 0  # when that was, by the engine's time
        self._verbs = verbs
        self._nodes = nodes
        self._bus = bus
        self._retention_ms = retention_ms

    async def bury_overdue(self, table: NodeTable) -> None:
        for node in self._nodes.overdue(table):
            await self._nodes.declare_dead(node, table)

    async def reap(self, table: NodeTable) -> Swept | None:
        """If somebody's grace is over, one pass for all of them; None if there is nothing to do, or another does it."""
        now = self._verbs.time.now()
        over = [death.node for death in table.dead() if death.ends <= now]
        if not over or not await self._claim("reap", CLAIM_MS):
            return None
        try:
            swept = await self._pass(None, over)
        except RedisError as error:
            if error.code == "CLOCK":  # the claim may have been prolonged by the jump
                await self._release("reap")
            raise
        await self._nodes.strike_off(over)
        log(log_events.NODE_REAPED, peers=", ".join(over), sessions=swept.sessions, users=swept.users)
        self._add(swept)
        await self._release("reap")  # one that was cut short is tried again when the claim has run out
        return swept

    async def sweep_if_due(self) -> Swept | None:
        """One node in all does it, every ten minutes, unless a job does."""
        return await self._sweep() if await self._claim("sweep", SWEEP_EVERY_MS) else None

    async def sweep(self) -> Swept:
        """The same now, whoever did it last."""
        swept = await self._sweep()
        claim = keys.claim_key(self._verbs.prefix, "sweep")
        await self._verbs.servers.of(HOME).call("SET", claim, self._nodes.incarnation, "PX", SWEPT_MS)
        return swept

    async def _sweep(self) -> Swept:
        """Everything: end what does not count, forget what is past its time, ask each node to compare its own.

        EngineUnavailable if not all of it could be done: that nothing was found would not mean that all is well.
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
        # Whoever only came to sweep leaves at once, and would take along what has not been sent.
        await asyncio.gather(*(server.call("PING") for server in self._verbs.servers.all.values()))
        swept = swept._replace(nodes=len(old))
        self.drift, self.swept_at = swept.sessions, self._verbs.time.now()
        self._add(swept)
        if any(swept):
            log(log_events.REDIS_SWEPT, sessions=swept.sessions, users=swept.users, nodes=swept.nodes)
        return swept

    async def audit(self, holds: Callable[[SessionEpoch], bool], pace: PassThrottle | None) -> int:
        """End the sessions kept under our names that `holds` does not know."""
        ended = 0
        for incarnation in [*self._bus.own]:
            for server in [*self._verbs.servers.all.values()]:
                for partition in [*server.partitions]:
                    if pace is not None:
                        await pace(keys.BUCKETS // AUDITED)
                    ended += await self._audit(partition, incarnation, holds)
        return ended

    async def _audit(self, partition: int, incarnation: str, holds: Callable[[SessionEpoch], bool]) -> int:
        run, ended = self._verbs.servers.run, 0
        names = [keys.buckets(self._verbs.prefix, partition, bucket)[0] for bucket in range(keys.BUCKETS)]
        shares = (names[at : at + AUDITED] for at in range(0, len(names), AUDITED))
        answers = await asyncio.gather(*(run(partition, "audit", share, incarnation) for share in shares))
        for answer in answers:
            for field, session, conn in zip(answer[::3], answer[1::3], answer[2::3], strict=True):
                ref = SessionEpoch(session.decode(), incarnation, int(conn))
                if not holds(ref):
                    tenant, _, user = field.decode().partition("/")
                    await self._verbs.on_user("linger", tenant, user, *ref, 0, 0)
                    ended += 1
        return ended

    # --- passes ---

    async def _pass(self, retention_ms: int | None, only: Sequence[str] = ()) -> Swept:
        """Over all servers at once, for these incarnations or everything. EngineUnavailable if it was cut short."""
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
            for at in range(0, keys.BUCKETS, AT_ONCE):
                reaped = await asyncio.gather(
                    *(self._reap(partition, bucket, retention_ms, only) for bucket in range(at, at + AT_ONCE))
                )
                total = Swept(*(a + sum(column) for a, column in zip(total, zip(*reaped, strict=True), strict=True)))
            if only and partition % 16 == 0:
                self._verbs.servers.of(HOME).post("PEXPIRE", keys.claim_key(self._verbs.prefix, "reap"), CLAIM_MS)
        return total

    async def _reap(
        self, partition: int, bucket: int, retention_ms: int | None, only: Sequence[str]
    ) -> tuple[int, int, int, int]:
        verbs = self._verbs
        presence, seen = keys.buckets(verbs.prefix, partition, bucket)
        ended, gone, forgotten, seen_going = await verbs.servers.run(
            partition,
            "reap",
            [presence, keys.nodes_key(verbs.prefix, partition), seen],
            verbs.time.text(),
            verbs.publish,
            verbs.messages.script_key,
            keys.watch_channels(verbs.prefix, partition),
            "" if retention_ms is None else retention_ms,
            *only,
        )
        if (tell := verbs.turned) is not None:
            for field in seen_going:
                tenant, _, user = field.decode().partition("/")
                tell(Transition("user", tenant, user, False))
        return ended, gone, forgotten, 0

    def _add(self, swept: Swept) -> None:
        self.total = Swept(*(a + b for a, b in zip(self.total, swept, strict=True)))

    async def _claim(self, what: str, ms: int) -> bool:
        claim = keys.claim_key(self._verbs.prefix, what)
        home = self._verbs.servers.of(HOME)
        return await home.call("SET", claim, self._nodes.incarnation, "NX", "PX", ms) is not None

    async def _release(self, what: str) -> None:
        await self._verbs.servers.of(HOME).call("DEL", keys.claim_key(self._verbs.prefix, what))
