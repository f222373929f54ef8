"""Lives of nodes: registration, lease renewal, detection of dead nodes.

A node is registered in every partition, in the Redis hash `nodes:{tag}`. A verb is one atomic operation of the engine
on a user or room: a Lua script. A verb that adds a session, or an occupant of a room, checks in its own partition that
the calling node is live. The lease of a node is a counter in one partition (HOME).

A peer is another node. A node observes the counters of its peers while its own connection to Redis works. It declares
a peer dead when the peer's counter has not changed for the period of a lease. The node's own monotonic clock measures
this period. An unreachable Redis, a pause of this process or a clock jump restarts the observation and declares no node
dead.

To bury a node is to mark it as dead in every partition. The users of its sessions then stay online for the grace. To
reap a node is to remove its sessions after the grace. Then the lease of the dead node is deleted.
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

# Partition with leases and claims. `bury` marks a dead node in HOME last. If a burial is interrupted, the node is still
# live in HOME, and the burial is repeated.
HOME = 0
CLAIM_MS = 5_000  # time for which one node has the exclusive right to bury a peer
MOST_DEAD = 10_000  # maximum number of remembered dead nodes
LATE_S = 1.0  # time in which all nodes bury a dead node in a partition that can be reached again
OLDER_S = 3_600.0  # time without older nodes after which new partitions begin with one bucket
RECONNECT_S = 4.0  # time in which all nodes connect again after Redis was away


class LeasePeriods(NamedTuple):
    """Periods from the settings, in seconds."""

    lease: float = 15.0
    renew: float = 5.0
    grace: float = 30.0

    @property
    def sample(self) -> float:
        """Return the seconds between two reads of the leases."""
        return min(1.0, self.renew / 2)


class _Observed(NamedTuple):
    counter: str
    since: float  # monotonic time at which this counter was first read


class Death(NamedTuple):
    """Dead node whose sessions are still to be removed."""

    node: str
    ends: int  # engine's time at which its sessions end


class NodeTable(NamedTuple):
    """Nodes and leases, as of one read."""

    lives: dict[str, str]  # incarnation → `live`; for a dead one `renewed,ends`, two times in hexadecimal
    leases: dict[str, str]  # incarnation → `counter,renewed,level,report`; for the report see `engine.redis.losses`
    now: int  # the engine's time
    older: frozenset[str] = frozenset()  # live nodes of a version that knows only partitions with all 128 buckets

    def dead(self) -> list[Death]:
        """Return the dead nodes that still have a lease. The lease is deleted after their sessions are removed."""
        return [
            Death(node, int(life.split(",")[1], 16))
            for node, life in self.lives.items()
            if life != "live" and node in self.leases
        ]

    def level(self, node: str) -> Level:
        """Return the overload level in a live node's lease."""
        told = self.leases.get(node, "").split(",")[2:]
        return Level(int(told[0])) if told else Level.NORMAL

    def reports(self) -> dict[str, str | None]:
        """Return each node's report of the partitions that it has restored; None if its lease has no report."""
        told = {node: lease.split(",", 3)[3:] for node, lease in self.leases.items()}
        return {node: report[0] if report else None for node, report in told.items()}

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
    """Life of this node, and observation of other nodes."""

    def __init__(self, verbs: Verbs, clock: Clock, periods: LeasePeriods) -> None:
        self.incarnation = ""
        self.deaths = 0  # deaths of other nodes detected by this node
        self._verbs = verbs
        self._clock = clock
        self._periods = periods
        self._observed: dict[str, _Observed] = {}
        self.level = Level.NORMAL  # overload level of this node, published with the lease
        self._published_level = Level.NORMAL
        self.report: Callable[[], str] = str  # report of the restored partitions, published with the lease
        self._published_report = ""
        self.refusing: frozenset[str] = frozenset()  # nodes that refuse new work, as of the last read
        self._read_at = float("-inf")
        self._renewed_at = float("-inf")
        self._over: dict[str, int] = {}  # dead nodes that `ending` has returned, each with the end of its sessions
        self._dead: dict[str, str] = {}  # dead node → its last value `renewed,ends` in `lives`; newest node last
        # Node that was buried late in a partition, which was away → monotonic time at which its sessions end there.
        self._late: dict[str, float] = {}
        self._met_older_at = float("-inf")  # monotonic time at which an older node was last known to live

    # --- this node ---

    async def register(self, partitions: Iterable[int]) -> dict[int, tuple[str, int, str]]:
        """Register this incarnation in these partitions. Return each partition's epoch, time and clock correction.

        A partition without data begins with one bucket. If older nodes may use it, it has all buckets.

        Raise RedisError (FENCED) if the incarnation is dead in a partition.
        """
        return await self._register(self.incarnation, partitions, new=False)

    async def _register(
        self, incarnation: str, partitions: Iterable[int], *, new: bool
    ) -> dict[int, tuple[str, int, str]]:
        chosen, count = [*partitions], keys.BUCKETS if self._clock.monotonic() < self._met_older_at + OLDER_S else 1
        arguments = incarnation, new_epoch(), "1" if new else "", count
        answers = await asyncio.gather(*(self._on(p, "register", *arguments) for p in chosen))
        for partition, answer in zip(chosen, answers, strict=True):
            self._verbs.servers.bucket_counts[partition] = answer[3]
        return {
            p: (epoch.decode(), now, correction.decode())
            for p, (epoch, now, correction, _) in zip(chosen, answers, strict=True)
        }

    async def begin(self, partitions: Iterable[int]) -> None:
        """Begin a new incarnation in these partitions. A name that is taken is replaced by another.

        After a failure the node keeps its previous name. So the next command under this name is refused again, and
        another attempt follows. The other nodes bury the name that is given up, as that of a dead node.
        """
        chosen = [*partitions]
        while True:
            incarnation = new_incarnation()
            try:
                await self._lease_first(incarnation)
                await self._register(incarnation, chosen, new=True)
            except RedisError as error:
                if error.code != "FENCED":
                    raise
            else:
                self.incarnation = incarnation
                return

    async def _lease_first(self, incarnation: str) -> None:
        """Create the lease before registering, so that a death in between is detected."""
        leases = keys.leases_key(self._verbs.prefix)
        now = self._verbs.time.now()
        await self._verbs.servers.of(HOME).call("HSETNX", leases, incarnation, f"1,{now}")

    @property
    def lease_age_s(self) -> float:
        """Return the seconds since the last renewal; 0 before the first."""
        return max(0.0, self._clock.monotonic() - self._renewed_at) if self._renewed_at > float("-inf") else 0.0

    async def end(self) -> None:
        """Exit cleanly: mark this incarnation as dead. The users of its sessions stay online for the grace."""
        await self.bury(self.incarnation, "")

    # --- other nodes ---

    async def refresh(self) -> NodeTable:
        """Renew the lease if due and read all leases. EngineUnavailable restarts the observation."""
        now = self._clock.monotonic()
        if now - self._read_at > 2.5 * self._periods.sample:
            self._observed.clear()  # our own pause or broken link must not look like the death of others
        told = self.level, self.report()
        renew = now - self._renewed_at >= self._periods.renew - self._periods.sample / 2
        renew = renew or told != (self._published_level, self._published_report)
        try:
            table = await self._read_table(self.incarnation, renew, *told)
        except EngineUnavailable:
            self._observed.clear()
            self.refusing = frozenset()  # unknown while the engine is away
            raise
        self._read_at = now
        if renew and table.lives.get(self.incarnation) == "live":  # otherwise nothing was written
            self._renewed_at, (self._published_level, self._published_report) = now, told
        self.refusing = table.refusing()
        # A dead node stays in the table. A missing entry was lost, and its node registers again or becomes overdue.
        live = {node for node, life in table.lives.items() if life == "live"}
        self._verbs.alive = live.union(node for node in self._verbs.alive if node not in table.lives)
        return table

    async def table(self) -> NodeTable:
        """Read all nodes and leases, without renewing a lease. This also works before this node has an incarnation."""
        return await self._read_table("", renew=False)

    async def _read_table(
        self, incarnation: str, renew: bool, level: Level = Level.NORMAL, report: str = ""
    ) -> NodeTable:
        arguments = incarnation, "1" if renew else "", int(level), report
        now, leases, lives = await self._on(HOME, "look", *arguments, leases=True)
        if self._verbs.time.learning or not self._verbs.time.known:
            self._verbs.time.observe(now)
        known = _pairs(lives)
        nodes = {node: life for node, life in known.items() if not node.startswith("~")}
        older = frozenset(node for node, life in nodes.items() if life == "live" and f"~{node}" not in known)
        if older:
            self._met_older_at = self._clock.monotonic()
        return NodeTable(nodes, _pairs(leases), now, older)

    def overdue(self, table: NodeTable) -> list[str]:
        """Return the live nodes whose counter has not changed for the period of a lease."""
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
        """Bury nodes whose last renewal is older than lease and grace together: no other node was left to bury them.

        Call this on a starting node before it publishes the presence of users. An old renewal does not prove a death:
        the engine's time may have jumped, or Redis was away. In both cases a live node corrects the engine's time or
        renews its lease soon after it reconnects. The leases are therefore read twice, so that no live node is buried.
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
        """Restart the observation of all nodes, because this node or its link had a problem."""
        self._observed.clear()

    async def declare_dead(self, node: str, table: NodeTable) -> bool:
        """Bury a peer, unless another node has the claim to bury it. Return whether this node buried the peer."""
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
        """Mark the node as dead in every reachable partition. `reconcile` marks it in the other partitions later."""
        grace_ms = round((self._periods.grace if grace_s is None else grace_s) * 1000)
        others = (self._bury(p, node, renewed, grace_ms) for p in range(keys.PARTITIONS) if p != HOME)
        await asyncio.gather(*others, return_exceptions=True)
        await self._bury(HOME, node, renewed, grace_ms)
        self._verbs.alive = {*self._verbs.alive} - {node}

    async def _bury(self, partition: int, node: str, renewed: str, grace_ms: int) -> None:
        await self._on(partition, "bury", node, renewed, grace_ms, self._verbs.time.text())

    def risen(self, table: NodeTable) -> dict[str, str]:
        """Return nodes that are live again although they were read as dead before, each with its last renewal.

        An incarnation is never used again, so a node that is returned here is still dead. Redis has restarted with data
        from before the node's death.
        """
        self._dead |= {node: life for node, life in table.lives.items() if life != "live"}
        for node in [*self._dead][:-MOST_DEAD]:
            del self._dead[node]
        risen = [node for node, life in table.lives.items() if life == "live" and node in self._dead]
        return {node: str(int(self._dead[node].partition(",")[0], 16)) for node in risen}

    async def bury_risen(self, risen: dict[str, str]) -> None:
        """Bury these nodes again without a grace, because the grace after their first burial is over."""
        for node, renewed in risen.items():
            await self.bury(node, renewed, grace_s=0)
            self._over.pop(node, None)
            log(log_events.NODE_DEAD_AGAIN, peer=node)

    def ending(self, table: NodeTable) -> list[Death]:
        """Return the dead nodes whose sessions end before the next read of the leases.

        Further calls do not return the same death again. There is one exception: a node that was buried late in a
        partition is returned a second time when its sessions end in this partition. `Death.ends` is then 0. If Redis
        has returned with data from before a death, another node may have buried the node again: this is another death.
        """
        self._over = {node: ends for node, ends in self._over.items() if node in table.lives}
        horizon, now = table.now + self._periods.sample * 1000, self._clock.monotonic()
        late = [Death(node, 0) for node, due in self._late.items() if due <= now]
        for node, _ in late:
            del self._late[node]
        dead = ((i.node, i.ends_at) for i in table.info() if i.ends_at is not None)
        dead = ((node, ends) for node, ends in dead if self._over.get(node) != ends)
        found = [Death(node, ends) for node, ends in dead if ends <= horizon]
        self._over |= {death.node: death.ends for death in found}
        return found + late

    def not_ended(self, node: str) -> None:
        """Make the next `ending` return the node again, because its end could not be confirmed."""
        self._over.pop(node, None)

    async def reconcile(self, partitions: Iterable[int]) -> None:
        """Bury nodes in partitions that could not be reached when the nodes died."""
        table = await self.table()
        home = table.lives
        grace_ms = round(self._periods.grace * 1000)
        for partition in partitions:
            name = keys.nodes_key(self._verbs.prefix, partition)
            there = _pairs(await self._verbs.servers.of(partition).call("HGETALL", name))
            for node, life in there.items():
                # A node that is missing in HOME may be about to register there. Only nodes dead in HOME are buried.
                if life == "live" and node in home and home[node] != "live":
                    renewed = home[node].partition(",")[0]
                    await self._bury(partition, node, str(int(renewed, 16)), grace_ms)
                elif node not in home or life == "live" or int(life.split(",")[1], 16) <= table.now:
                    continue
                # This or another node buried `node` later in this partition, so its sessions end later here.
                self._late[node] = self._clock.monotonic() + self._periods.grace + LATE_S

    async def strike_off(self, nodes: Iterable[str]) -> None:
        """Delete the leases of nodes whose sessions are removed. Their entries in the hashes `nodes:{tag}` remain."""
        if names := [*nodes]:
            await self._verbs.servers.of(HOME).call("HDEL", keys.leases_key(self._verbs.prefix), *names)

    async def forget(self, nodes: Iterable[str]) -> None:
        if names := [*nodes]:
            await asyncio.gather(*(self._on(p, "forget", *names) for p in range(keys.PARTITIONS)))

    async def _on(self, partition: int, verb: str, *arguments: Any, leases: bool = False) -> Any:
        prefix = self._verbs.prefix
        names = [keys.nodes_key(prefix, partition)] + ([keys.leases_key(prefix)] if leases else [])
        return await self._verbs.servers.run(partition, verb, names, *arguments)


def new_epoch() -> str:
    return f"{new_incarnation()}{new_incarnation()}"


def _pairs(flat: Any) -> dict[str, str]:
    if isinstance(flat, dict):  # RESP3 has maps
        return {name.decode(): value.decode() for name, value in flat.items()}
    return {name.decode(): value.decode() for name, value in zip(flat[::2], flat[1::2], strict=True)}
