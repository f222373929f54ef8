"""Redis engine: any number of nodes on Redis or Valkey, standalone, with Sentinel or as a cluster.

About once a second (`tick`) the engine checks that beats (test messages to itself) come back and compares each server's
epoch and time. It also renews the lease and checks the other nodes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Coroutine, Iterable
from typing import Any

from msgspec import Struct

from greendot.clock import Clock, SystemClock
from greendot.engine.messages import Message, Part, Topic
from greendot.engine.port import Engine, Host, PassThrottle, RecordsState
from greendot.engine.redis import keys, url
from greendot.engine.redis.bus import RedisBus
from greendot.engine.redis.bus_codec import BusCodec
from greendot.engine.redis.engine_time import EngineTime
from greendot.engine.redis.growth import PartitionGrowth
from greendot.engine.redis.link import RedisError
from greendot.engine.redis.losses import Losses
from greendot.engine.redis.metrics import Census, Figures
from greendot.engine.redis.nodes import HOME, Death, LeasePeriods, NodeLeases, NodeTable
from greendot.engine.redis.partitions import Partitions, Primaries
from greendot.engine.redis.presence import RedisPresence, Verbs
from greendot.engine.redis.primary import Primary, check
from greendot.engine.redis.rooms import RedisRooms, RedisTyping
from greendot.engine.redis.sweeper import Sweeper
from greendot.engine.redis.used_names import RedisUsedNames
from greendot.engine.redis.watchdog import Watchdog
from greendot.engine.results import NodeInfo, Swept
from greendot.errors import EngineUnavailable
from greendot.limits.overload_model import Level
from greendot.presence.model import SessionEpoch
from greendot.telemetry import log_events
from greendot.telemetry.log import log, set_node
from greendot.telemetry.metrics_model import Histogram


class BackgroundTasks:
    """Background tasks by name, at most one per name at a time. Failures are logged."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._is_cancelled = False

    def spawn(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        """Start the work, unless work of that name is running or the tasks were cancelled."""
        if name in self._tasks or self._is_cancelled:
            work.close()
        else:
            task = self._tasks[name] = asyncio.get_running_loop().create_task(self._run(name, work))
            task.add_done_callback(lambda task: work.close())  # a task that was cancelled before it began left it open

    async def _run(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        try:
            await work
        except EngineUnavailable as error:
            log(log_events.WORK_LATER, work=name, reason=error)
        except Exception as error:
            log(log_events.WORK_FAILED, error, work=name)
        finally:
            self._tasks.pop(name, None)

    async def settled(self) -> None:
        """Wait until no task is running."""
        while self._tasks:
            await asyncio.wait(self._tasks.values())

    async def cancel(self) -> None:
        """Cancel all tasks, and refuse new ones."""
        self._is_cancelled = True
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()  # includes tasks that were cancelled before they began


RESTORE_EVERY_S = 3_600.0  # interval at which a node restores and rereads all data, even without a loss
SILENCE_S = 1.0  # pause after a slot moved, before its topics are subscribed again on its server
SWEEP_CHECK_S = 30.0  # interval of checks whether a sweep is due


class Options(Struct, frozen=True):
    """Options from the settings."""

    key: bytes  # signs published messages
    prefix: str = ""
    periods: LeasePeriods = LeasePeriods()
    typing_ttl_ms: int = 5_000
    typing_throttle_ms: int = 2_000
    seen_retention_ms: int = 30 * 86_400_000


class RedisEngine(RedisPresence, RedisTyping, RedisRooms, RedisUsedNames):
    """Engine on Redis (see `Engine`). With `driven` False, a test calls `tick`."""

    def __init__(self, place: str, options: Options, clock: Clock | None = None, *, driven: bool = True) -> None:
        self._clock = clock or SystemClock()
        self._options = options
        self._driven = driven
        self.servers = Primaries(url.parse(place), self)
        messages = BusCodec(options.key)
        self.time = EngineTime(self._clock)
        self.bus = RedisBus(self.servers, messages, options.prefix)
        verbs = Verbs(self.servers, messages, self.time, options.prefix)
        verbs.repair, self.bus.read = self._repair, verbs.read
        self.bus.silenced, self.bus.now = self._silenced, self.time.now
        RedisPresence.__init__(self, verbs)
        RedisTyping.__init__(self, verbs, options.typing_ttl_ms, options.typing_throttle_ms, self.bus.here)
        RedisRooms.__init__(self, verbs)
        RedisUsedNames.__init__(self, verbs)
        self.lives = NodeLeases(verbs, self._clock, options.periods)
        self.sweeper = Sweeper(verbs, self.lives, self.bus, options.seen_retention_ms)
        self.watchdog = Watchdog(verbs, self.bus, self.lives, self._clock)
        self.losses = Losses(verbs, self.watchdog, self._clock, options.periods)
        self.lives.report = self.losses.report
        verbs.restoring, verbs.answered = self.losses.restoring, self._answered
        self.growth = PartitionGrowth(verbs, self.lives)
        verbs.crowded = lambda partition: self._spawn(f"growing partition {partition}", self.growth.grow(partition))
        self.census = Census(self.servers, options.prefix)
        self._figures = Figures(self.servers, self.bus, self.lives, self.sweeper, self.census)
        self._host: Host | None = None
        self._background = BackgroundTasks()
        self._spawn = self._background.spawn
        self._being_born = asyncio.Lock()
        self._checked_partition = HOME  # last partition checked for this node's entry
        self._silent: dict[int, int] = {}  # partitions whose subscriptions Redis has ended, and how often
        # Partitions to recover: those that lacked the entry, and those that others restored when this node started.
        self._struck: set[int] = set()
        self._restore_at = self._clock.monotonic() + RESTORE_EVERY_S * random.uniform(0.8, 1.0)
        self._sweep_at = self._clock.monotonic() + SWEEP_CHECK_S * random.uniform(0.8, 1.0)

    # --- life ---

    async def start(self, host: Host) -> str:
        self.time.learning = True
        await self.observe()
        try:
            await asyncio.gather(*(check(server) for server in self.servers.all.values()))
            await self.lives.bury_abandoned()
            await self.lives.begin(range(keys.PARTITIONS))
            table = await self.lives.refresh()
            self._host = host
            self.bus.attach(host)
            for server in self.servers.all.values():
                await self._settle_in(server, server.partitions)
            await self._listen()
            self._struck.update(self.losses.started(self._others(table), table.reports()))
            self.time.learnt(alone=len(self._verbs.alive) == 1)
        except BaseException:
            self._host = None
            await self.servers.close()
            raise
        if self._driven:
            self._spawn("periodic checks of Redis", self._ticks())
        return self.lives.incarnation

    async def observe(self) -> None:
        """Connect without becoming a node, for reading and repair."""
        await self.servers.start()
        try:
            await self.refresh_nodes()
        except BaseException:
            await self.servers.close()
            raise

    async def refresh_nodes(self) -> None:
        lives = (await self.lives.table()).lives
        self._verbs.alive = {node for node, life in lives.items() if life == "live"}

    async def close(self) -> None:
        host, self._host = self._host, None
        await self._background.cancel()
        if host is not None and self.trouble is None:
            await self.bus.drained()
            try:
                await self.lives.end()
            except EngineUnavailable as error:
                log(log_events.NODE_NOT_SIGNED_OFF, reason=error)
        self.bus.attach(None)
        await self.servers.close()

    @property
    def trouble(self) -> str | None:
        down = self.servers.down
        if len(down) < len(self.servers.all):
            return None
        return "; ".join(f"Redis at {server.address}: {server.trouble}" for server in down) or "not connected"

    async def _listen(self) -> None:
        self.bus.own.add(self.lives.incarnation)
        await self.bus.subscribe([Topic("node", "", self.lives.incarnation)])

    # --- servers come and go ---

    async def came_up(self, server: Primary) -> None:
        if self._host is not None:
            server.intact, settled = True, set[int]()
            while more := server.partitions - settled:  # partitions may move to this server during the call
                server.intact = await self._settle_in(server, more) and server.intact
                settled |= more
            # An earlier attempt may have found a loss and failed before it reported the loss.
            server.intact = server.intact and self.losses.is_announced(settled)
            self._spawn(f"reconciling Redis {server.address}", self.lives.reconcile([*server.partitions]))

    def is_up(self, server: Primary) -> None:
        self._found(server.partitions, intact=server.intact)

    def _found(self, partitions: Iterable[int], *, intact: bool) -> None:
        if self._host is not None:
            part = Partitions(partitions, self.servers)
            if not intact:
                self._lose(partitions)
            self._host.found(part, intact=intact)

    def _lose(self, partitions: Iterable[int]) -> None:
        self.losses.began(partitions, {*self._verbs.alive} - self.bus.own)

    def went_down(self, server: Primary) -> None:
        self.bus.counts.gaps += 1
        if HOME in server.partitions:
            self.lives.restart_observation()
        self.losses.cut_off(server.partitions)
        if self._host is not None:
            self._host.lost(Partitions(server.partitions, self.servers))

    async def moved(self, server: Primary, partitions: set[int]) -> None:
        self.bus.counts.gaps += 1
        await self._settle_in(server, partitions)
        self._found(partitions, intact=False)

    def pushed(self, push: list[Any]) -> None:
        self.bus.pushed(push)

    def _silenced(self, partition: int) -> None:
        self._silent[partition] = self._silent.get(partition, 0) + 1
        self.servers.ask()
        self._spawn(f"resubscribing partition {partition}", self._resubscribe(partition))

    async def _resubscribe(self, partition: int) -> None:
        """Subscribe again to the channels of a partition whose slot may have moved away and back unnoticed.

        In that case no server gained the partition, and `moved` was not called.
        """
        silences = 0
        while silences != self._silent[partition]:  # again, if the subscriptions ended once more meanwhile
            silences = self._silent[partition]
            await asyncio.sleep(SILENCE_S)
            server = self.servers.of(partition)
            if not server.up:
                break  # all its partitions are subscribed again when it is back
            try:
                await self.moved(server, {partition})
            except EngineUnavailable as error:
                log(log_events.WORK_LATER, work="subscribing again", reason=error)
                silences = 0
        del self._silent[partition]

    async def _settle_in(self, server: Primary, partitions: set[int]) -> bool:
        """Register this node on the server and subscribe to the wanted channels.

        Return whether the server has the same data as before.
        """
        incarnation = self.lives.incarnation
        try:
            answers = await self.lives.register(partitions)
        except RedisError as error:
            if error.code != "FENCED":
                raise
            await self._rebirth(incarnation, server)
            answers = await self.lives.register(partitions)
        intact = await self.watchdog.compare(server, answers)
        await self.watchdog.listen(server)
        await self.bus.resubscribe(server, partitions)
        return intact

    # --- periodic work ---

    async def _ticks(self) -> None:
        period, clock = self._options.periods.sample, self._clock
        due = clock.monotonic() - random.uniform(0, period)  # nodes that start together check at different times
        while True:
            due = max(due + period, clock.monotonic())
            await asyncio.sleep(max(0.0, due - clock.monotonic()))
            try:
                await self.tick()
            except EngineUnavailable as error:
                log(log_events.WORK_LATER, work="checking Redis", reason=error)
            except Exception as error:
                log(log_events.WORK_FAILED, error, work="checking Redis")

    async def tick(self) -> None:
        """Run the periodic checks once."""
        for server in await self.watchdog.round():
            self._lose(server.partitions)  # comes before the check of other nodes, whose entries may be lost, too
            self._spawn(f"restoring Redis {server.address}", self._lost_state(server))
        try:
            table = await self.lives.refresh()
        except EngineUnavailable:
            self.losses.review({}, {})  # ends waits that are longer than a lease, even without the table
            raise
        if table.older and self.growth.is_needed():
            self._spawn("using the buckets of older nodes", self.growth.grow_completely())
        life = table.lives.get(self.lives.incarnation)
        if life is None:
            home = self.servers.of(HOME)
            self._spawn(f"restoring Redis {home.address}", self._lost_state(home, own_entry=True))
        elif life != "live":
            self._spawn("starting a new incarnation", self._rebirth(self.lives.incarnation))
        else:
            self._handle_deaths(table)
            if risen := self.lives.risen(table):
                self._spawn("declaring returned nodes dead", self.lives.bury_risen(risen))
            else:
                others, reports = self._others(table), table.reports()
                self._struck.update(self.losses.join(others, reports))
                self.losses.review(others, reports)
            await self._check_nodes()
        if self._clock.monotonic() >= self._restore_at and self._host is not None:
            self._restore_at = self._clock.monotonic() + RESTORE_EVERY_S * random.uniform(0.8, 1.0)
            self._host.found(Part(), intact=True)

    def _others(self, table: NodeTable) -> dict[str, str]:
        return {node: life for node, life in table.lives.items() if node not in self.bus.own}

    def _handle_deaths(self, table: NodeTable) -> None:
        if self.lives.overdue(table):
            self._spawn("declaring nodes dead", self.sweeper.bury_overdue(table))
        now = self.time.now()
        ends = min((death.ends for death in table.dead()), default=None)
        if ends is not None and ends <= now + self._options.periods.sample * 1000:
            self._spawn("ending sessions of dead nodes", self._reap((ends - now) / 1000))
        for death in self.lives.ending(table):
            self._spawn(f"publishing the end of node {death.node}", self._publish_end(death))
        if self._clock.monotonic() >= self._sweep_at:
            self._sweep_at = self._clock.monotonic() + SWEEP_CHECK_S * random.uniform(0.8, 1.0)
            self._spawn("sweep", self.sweeper.sweep_if_due())

    async def _check_nodes(self) -> None:
        """Check one partition per call for this node's entry.

        In a partition without the entry, the node's sessions do not count as online.
        """
        self._checked_partition = (self._checked_partition + 1) % keys.PARTITIONS
        if not await self.census.visit(self._checked_partition, self.lives.incarnation, self._verbs.alive):
            await self._repair("UNKNOWN", self._checked_partition, self.lives.incarnation)
        if self._struck and self._host is not None:
            struck, self._struck = self._struck, set()
            self._found(struck, intact=False)

    async def _reap(self, wait_s: float) -> None:
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        await self.sweeper.reap(await self.lives.table())

    async def _publish_end(self, death: Death) -> None:
        await asyncio.sleep(max(0.0, (death.ends - self.time.now()) / 1000))
        is_over = False
        try:
            is_over = (await self.lives.table()).now >= death.ends  # by Redis' time, which reads of rooms use
        finally:
            if not is_over:
                self.lives.not_ended(death.node)
        if is_over and self._host is not None:
            self._host.died(death.node)

    async def _lost_state(self, server: Primary, *, own_entry: bool = False) -> None:
        """Register again on a server that lost its data, and restore its partitions.

        `own_entry` means that only the entry of this node is missing. Otherwise, do nothing if the epochs are known by
        now: the reply with the lost epoch was older than an earlier call, which has restored the partitions.
        """
        if server.up and self._host is not None:
            intact = await self.watchdog.compare(server, await self.lives.register(server.partitions))
            if intact and not own_entry:
                return
            log(log_events.REDIS_FORGOT, server=str(server.address))
            self._found(server.partitions, intact=False)

    def _answered(self, partition: int, epoch: str) -> None:
        """Compare the epoch that a read returned. If the epoch differs, the server has lost data."""
        server = self.servers.of(partition)
        if self._host is not None and server.up and self.watchdog.is_lost(partition, epoch):
            self._lose(server.partitions)
            self._spawn(f"restoring Redis {server.address}", self._lost_state(server))

    async def _rebirth(self, taken_for_dead: str, coming: Primary | None = None) -> None:
        """Continue under a new incarnation, because Redis refuses the old one.

        `coming` is a server that is not up yet.
        """
        async with self._being_born:
            if self._host is None or self.lives.incarnation != taken_for_dead:
                return
            servers = [s for s in self.servers.all.values() if s.up or s is coming]
            await self.lives.begin([p for server in servers for p in server.partitions])
            set_node(self.lives.incarnation)
            log(log_events.NODE_REBORN, was=taken_for_dead, node=self.lives.incarnation)
            self.bus.own.add(self.lives.incarnation)
            self._host.reborn(self.lives.incarnation)
        self._spawn("subscribing to the node's topic", self._listen())

    async def _repair(self, code: str, partition: int, refused: str) -> None:
        server = self.servers.of(partition)
        if self._host is None:
            return  # an observer has no incarnation to register, and leaves the time to the nodes
        if code == "CLOCK":
            await self.watchdog.mend(partition)
        elif code == "FENCED":
            # Pass the refused name, not the current one: commands under an old name may be refused after the rebirth.
            self._spawn("starting a new incarnation", self._rebirth(refused))
        else:
            answers = await self.lives.register([partition])
            if self.watchdog.is_other(answers):
                self._spawn(f"restoring Redis {server.address}", self._lost_state(server))
            else:
                self._struck.add(partition)

    async def settled(self) -> None:
        """Wait until no background task is running. Only for tests: with `driven`, some task always runs."""
        await self._background.settled()

    # --- bus and queries of operators ---

    def publish(self, topic: Topic, message: Message) -> None:
        self.bus.publish(topic, message)

    async def reach(self, node: str, message: Message) -> bool:
        return await self.bus.reach(node, message)

    async def subscribe(self, topics: Iterable[Topic]) -> None:
        await self.bus.subscribe(topics)

    async def unsubscribe(self, topics: Iterable[Topic]) -> None:
        await self.bus.unsubscribe(topics)

    @property
    def lag_s(self) -> float:
        return self.watchdog.lag_s()

    @property
    def level(self) -> Level:
        return self.lives.level

    @level.setter
    def level(self, level: Level) -> None:
        self.lives.level = level

    def heard_at(self) -> float:
        return float("-inf") if self._silent else self.watchdog.heard_at()

    def refusing(self) -> frozenset[str]:
        own = frozenset([self.lives.incarnation])
        return self.lives.refusing | own if self.level is Level.REFUSING else self.lives.refusing - own

    def live_nodes(self) -> Collection[str]:
        return self._verbs.alive

    async def nodes(self) -> list[NodeInfo]:
        return (await self.lives.table()).info()

    async def sweep(self) -> Swept:
        return await self.sweeper.sweep()

    def records_state(self, part: Part) -> RecordsState:
        return self.losses.state(part)

    async def restored(self, part: Part, since: RecordsState) -> None:
        await self.losses.over(since)

    async def audit(
        self,
        holds: Callable[[SessionEpoch], bool],
        pace: PassThrottle | None = None,
        part: Part | None = None,
        silent_ms: Callable[[SessionEpoch], int] | None = None,
    ) -> int:
        numbers = part.numbers if isinstance(part, Partitions) else range(keys.PARTITIONS)
        return await self.sweeper.audit(holds, pace, numbers, silent_ms or (lambda ref: 0))

    def counts(self) -> dict[str, float]:
        return self._figures.counts(self._verbs.alive)

    def histograms(self) -> dict[str, Histogram]:
        return self._figures.histograms()


_: type[Engine] = RedisEngine
