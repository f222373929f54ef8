"""The lives of nodes: registering, renewing the lease, finding out who is dead.

A node is registered in every partition (`nodes:{tag}`), because every verb checks it where its user is. The lease is a
counter in one place. A peer is dead when its counter did not move for a whole lease, on our own monotonic clock, while
everything went well with our own link: a Redis that cannot be reached, a pause of this process or a clock that jumps
starts the observation anew and kills nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from greendot.clock import Clock
from greendot.engine.redis import keys
from greendot.engine.redis.link import RedisError
from greendot.engine.redis.presence import Verbs
from greendot.engine.results import NodeInfo
from greendot.errors import EngineUnavailable
from greendot.ids import new_incarnation
from greendot.limits.overload_model import Level
from greendot.telemetry import log_events
from greendot.telemetry.log import log

HOME = 0  # the partition with the leases and claims; the last to learn of a death, so that it is found unfinished
CLAIM_MS = 5_000
MOST_DEAD = 10_000  # dead nodes that are remembered
LATE_S = 1.0  # so much may pass until all have buried a node where they could not before
RECONNECT_S = 4.0  # after Redis was away all nodes are connected again by then


class LeasePeriods(NamedTuple):
    """Seconds, from the settings."""

    lease: float = 15.0
    renew: float = 5.0
    grace: float = 30.0

    @property
    def sample(self) -> float:
        """Between two looks at the others."""
        return min(1.0, self.renew / 2)


class _Observed(NamedTuple):
    counter: str
    since: float  # monotonic, when this counter was first seen


class Death(NamedTuple):
    """A dead node whose sessions are still to be reaped."""

    node: str
    ends: int  # engine's time from when on they do not count


class NodeTable(NamedTuple):
    """The nodes and leases, as of one look."""

    lives: dict[str, str]  # incarnation → `live`, or renewed,ends in hexadecimal
    leases: dict[str, str]  # incarnation → counter,renewed,level,digest of what it has restored
    now: int  # the engine's time

    def dead(self) -> list[Death]:
        """The dead that still have a lease: it is struck off when they are reaped."""
        return [
            Death(node, int(life.split(",")[1], 16))
            for node, life in self.lives.items()
            if life != "live" and node in self.leases
        ]

    def level(self, node: str) -> Level:
        """How loaded a live node says it is."""
        told = self.leases.get(node, "").split(",")[2:]
        return Level(int(told[0])) if told else Level.NORMAL

    def restored(self) -> dict[str, str | None]:
        """Return the digests of what nodes have restored; None for those that do not say."""
        told = {node: lease.split(",")[3:] for node, lease in self.leases.items()}
        return {node: digest[0] if digest else None for node, digest in told.items()}

    def refusing(self) -> frozenset[str]:
        live = (node for node, life in self.lives.items() if life == "live")
        return frozenset(node for node in live if self.level(node) is Level.REFUSING)

    def info(self) -> list[NodeInfo]:
        found = []
        for node, life in sorted(self.lives.items()):
            renewed = self.leases.get(node, ",").split(",")[1]
            if life == "live":
                level = self.level(node).name.lower()
                found.append(NodeInfo(node, "live", int(renewed) if renewed else None, None, level))
            else:
                last, ends = life.split(",")[:2]
                found.append(NodeInfo(node, "dead", int(last, 16), int(ends, 16)))
        return found


class NodeLeases:
    """This node's life, and an eye on the others'."""

    def __init__(self, verbs: Verbs, clock: Clock, periods: LeasePeriods) -> None:
        self.incarnation = ""
        self.deaths = 0  # of other nodes, found by this one
        self._verbs = verbs
        self._clock = clock
        self._periods = periods
        self._observed: dict[str, _Observed] = {}
        self.level = Level.NORMAL  # of this node; told to the others with the lease
        self._published_level = Level.NORMAL
        self.restored: Callable[[], str] = str  # a digest of what this node has restored; told in the same way
        self._published_digest = ""
        self.refusing: frozenset[str] = frozenset()  # nodes that take no new work, as of the last look
        self._read_at = float("-inf")
        self._renewed_at = float("-inf")
        self._over: set[str] = set()  # dead nodes whose end was told of
        self._dead: dict[str, str] = {}  # nodes that were seen dead, and their lives then; the latest last
        self._late: dict[str, float] = {}  # those that end later in some partition: when they will have (monotonic)

    # --- this node ---

    async def register(self, partitions: Iterable[int], *, new: bool = False) -> dict[int, tuple[str, int, str]]:
        """Live in these partitions: epoch, time and correction of each. FENCED if this life is over there."""
        epoch = f"{new_incarnation()}{new_incarnation()}"
        chosen = [*partitions]
        answers = await asyncio.gather(
            *(self._on(p, "register", self.incarnation, epoch, "1" if new else "") for p in chosen)
        )
        return {
            p: (epoch.decode(), now, correction.decode())
            for p, (epoch, now, correction) in zip(chosen, answers, strict=True)
        }

    async def begin(self, partitions: Iterable[int]) -> None:
        """A new life, in these partitions; a name that was taken is given up for another."""
        chosen = [*partitions]
        while True:
            self.incarnation = new_incarnation()
            try:
                await self._lease_first()
                await self.register(chosen, new=True)
                return
            except RedisError as error:
                if error.code != "FENCED":
                    raise

    async def _lease_first(self) -> None:
        """Before it is registered it has a lease: should it die in between, it is found."""
        leases = keys.leases_key(self._verbs.prefix)
        now = self._verbs.time.now()
        await self._verbs.servers.of(HOME).call("HSETNX", leases, self.incarnation, f"1,{now}")

    @property
    def lease_age_s(self) -> float:
        """How long ago it was renewed; 0 before the first time."""
        return max(0.0, self._clock.monotonic() - self._renewed_at) if self._renewed_at > float("-inf") else 0.0

    async def end(self) -> None:
        """A clean exit."""
        await self.bury(self.incarnation, "")

    # --- the others ---

    async def refresh(self) -> NodeTable:
        """Renew the lease if it is time, and see everybody's. EngineUnavailable starts the observation anew."""
        now = self._clock.monotonic()
        if now - self._read_at > 2.5 * self._periods.sample:
            self._observed.clear()  # we were away or stopped: what stood still may have been us
        told = self.level, self.restored()
        renew = now - self._renewed_at >= self._periods.renew - self._periods.sample / 2
        renew = renew or told != (self._published_level, self._published_digest)
        try:
            table = await self._read_table(self.incarnation, renew, *told)
        except EngineUnavailable:
            self._observed.clear()
            self.refusing = frozenset()  # nobody can say any more
            raise
        self._read_at = now
        if renew:
            self._renewed_at, (self._published_level, self._published_digest) = now, told
        self.refusing = table.refusing()
        if self.incarnation in table.lives:  # else the others' lives are lost with ours
            self._verbs.alive = {node for node, life in table.lives.items() if life == "live"}
        return table

    async def table(self) -> NodeTable:
        """Everybody's, without any life of our own."""
        return await self._read_table("", renew=False)

    async def _read_table(
        self, incarnation: str, renew: bool, level: Level = Level.NORMAL, restored: str = ""
    ) -> NodeTable:
        arguments = incarnation, "1" if renew else "", int(level), restored
        now, leases, lives = await self._on(HOME, "look", *arguments, leases=True)
        if self._verbs.time.learning or not self._verbs.time.known:
            self._verbs.time.observe(now)
        nodes = {node: life for node, life in _pairs(lives).items() if not node.startswith("~")}
        return NodeTable(nodes, _pairs(leases), now)

    def overdue(self, table: NodeTable) -> list[str]:
        """Live nodes whose counter stood still for a whole lease."""
        now, found = self._clock.monotonic(), []
        alive = self._verbs.alive
        self._observed = {node: seen for node, seen in self._observed.items() if node in alive}
        for node in alive:
            counter = table.leases.get(node, "").partition(",")[0]
            seen = self._observed.get(node)
            if seen is None or seen.counter != counter:
                self._observed[node] = _Observed(counter, now)
            elif node != self.incarnation and now - seen.since >= self._periods.lease - 0.05:
                found.append(node)
        return found

    async def bury_abandoned(self) -> None:
        """Before a node shows anybody: those who died when nobody was left to see it, lease and grace ago or longer.

        That is told by the engine's time. Should that have jumped, or Redis have been away, a node that lives sets it
        right or renews its lease as soon as it is connected and ticks: so it is looked at twice, and one that lives is
        not taken for dead.
        """
        if abandoned := self._abandoned(await self.table()):
            await asyncio.sleep(2.5 * self._periods.sample + RECONNECT_S)
            table = await self.table()
            for node in abandoned & self._abandoned(table):
                await self.bury(node, table.leases[node].split(",")[1], grace_s=0)
                self.deaths += 1
                log(log_events.NODE_FOUND_DEAD, peer=node)

    def _abandoned(self, table: NodeTable) -> set[str]:
        horizon = table.now - round((self._periods.lease + self._periods.grace) * 1000)
        return {
            info.node for info in table.info() if info.state == "live" and 0 < (info.renewed_at or horizon) < horizon
        }

    def restart_observation(self) -> None:
        """Something was wrong on our side: nobody has been seen standing still."""
        self._observed.clear()

    async def declare_dead(self, node: str, table: NodeTable) -> bool:
        """Bury a peer, unless another node is at it."""
        claim = keys.claim_key(self._verbs.prefix, node)
        taken = await self._verbs.servers.of(HOME).call("SET", claim, self.incarnation, "NX", "PX", CLAIM_MS)
        if taken is None:
            return False
        renewed = table.leases.get(node, ",").split(",")[1]
        await self.bury(node, renewed)
        self.deaths += 1
        log(log_events.NODE_DEAD, peer=node, lease_s=self._periods.lease)
        return True

    async def bury(self, node: str, renewed: str, *, grace_s: float | None = None) -> None:
        """In every partition that can be reached; where it cannot be, `reconcile` does it later."""
        grace_ms = round((self._periods.grace if grace_s is None else grace_s) * 1000)
        others = (self._bury(p, node, renewed, grace_ms) for p in range(keys.PARTITIONS) if p != HOME)
        await asyncio.gather(*others, return_exceptions=True)
        await self._bury(HOME, node, renewed, grace_ms)
        self._verbs.alive = {*self._verbs.alive} - {node}

    async def _bury(self, partition: int, node: str, renewed: str, grace_ms: int) -> None:
        await self._on(partition, "bury", node, renewed, grace_ms, self._verbs.time.text())

    def risen(self, table: NodeTable) -> dict[str, str]:
        """Return nodes that live again though they were seen dead, each with its last renewal.

        A name is never used again: Redis has come back with records that are older than their death.
        """
        self._dead |= {node: life for node, life in table.lives.items() if life != "live"}
        for node in [*self._dead][:-MOST_DEAD]:
            del self._dead[node]
        risen = [node for node, life in table.lives.items() if life == "live" and node in self._dead]
        return {node: str(int(self._dead[node].partition(",")[0], 16)) for node in risen}

    async def bury_risen(self, risen: dict[str, str]) -> None:
        """Their graces are over: nothing of them counts."""
        for node, renewed in risen.items():
            await self.bury(node, renewed, grace_s=0)
            self._over.discard(node)
            log(log_events.NODE_DEAD_AGAIN, peer=node)

    def ending(self, table: NodeTable) -> list[Death]:
        """The dead whose sessions stop counting before the next look, each once; `ends` 0 for those who did late."""
        self._over &= table.lives.keys()
        horizon, now = table.now + self._periods.sample * 1000, self._clock.monotonic()
        late = [Death(node, 0) for node, due in self._late.items() if due <= now]
        for node, _ in late:
            del self._late[node]
        dead = ((i.node, i.ends_at) for i in table.info() if i.ends_at is not None and i.node not in self._over)
        found = [Death(node, ends) for node, ends in dead if ends <= horizon]
        self._over.update(death.node for death in found)
        return found + late

    def not_ended(self, node: str) -> None:
        """Its end could not be told of: look again."""
        self._over.discard(node)

    async def reconcile(self, partitions: Iterable[int]) -> None:
        """What died while a partition could not be reached is dead there too."""
        table = await self.table()
        home = table.lives
        grace_ms = round(self._periods.grace * 1000)
        for partition in partitions:
            name = keys.nodes_key(self._verbs.prefix, partition)
            there = _pairs(await self._verbs.servers.of(partition).call("HGETALL", name))
            for node, life in there.items():
                # One that home does not know may be about to register there: only what is known to be dead is.
                if life == "live" and node in home and home[node] != "live":
                    renewed = home[node].partition(",")[0]
                    await self._bury(partition, node, str(int(renewed, 16)), grace_ms)
                elif node not in home or life == "live" or int(life.split(",")[1], 16) <= table.now:
                    continue
                # Buried later than elsewhere, by us or by another: so it ends later there.
                self._late[node] = self._clock.monotonic() + self._periods.grace + LATE_S

    async def strike_off(self, nodes: Iterable[str]) -> None:
        """These are reaped: nothing of them is left but their entries."""
        if names := [*nodes]:
            await self._verbs.servers.of(HOME).call("HDEL", keys.leases_key(self._verbs.prefix), *names)

    async def forget(self, nodes: Iterable[str]) -> None:
        if names := [*nodes]:
            await asyncio.gather(*(self._on(p, "forget", *names) for p in range(keys.PARTITIONS)))

    async def _on(self, partition: int, verb: str, *arguments: Any, leases: bool = False) -> Any:
        prefix = self._verbs.prefix
        names = [keys.nodes_key(prefix, partition)] + ([keys.leases_key(prefix)] if leases else [])
        return await self._verbs.servers.run(partition, verb, names, *arguments)


def _pairs(flat: Any) -> dict[str, str]:
    if isinstance(flat, dict):  # RESP3 has maps
        return {name.decode(): value.decode() for name, value in flat.items()}
    return {name.decode(): value.decode() for name, value in zip(flat[::2], flat[1::2], strict=True)}
