"""Checks of every Redis server: delivery of messages, epoch and time.

A node has two links to each Redis server: one for commands, and one on which the server pushes published messages. Once
a second, the node sends a command that publishes a beat, a numbered test message. The beat must arrive on the link for
pushes. A PING is no sufficient test: after a failover, an old primary still answers, although its link for pushes
delivers nothing. A missing beat shows this. The reply to the command has the epoch and the time of a partition on that
server. A partition is a fixed share of the users and rooms, with all its data on one primary. Its epoch, a random id,
changes when its data is lost.
"""

from __future__ import annotations

import asyncio

from greendot.clock import Clock
from greendot.engine.redis import keys
from greendot.engine.redis.bus import RedisBus
from greendot.engine.redis.nodes import NodeLeases
from greendot.engine.redis.presence import Verbs
from greendot.engine.redis.primary import Primary
from greendot.engine.redis.scripts import SCRIPTS
from greendot.errors import EngineUnavailable

# If a beat has not arrived after this many seconds, it counts as lost, and the node reconnects to the server. The beat
# of round 0 is checked in rounds 1 and 2, at about 1 s and 2 s. The limit is below 2 s, so that round 2 finds the loss
# even if it starts a little early.
DEAF_S = 1.9
# The same limit for a busy link. A link is busy if its socket delivered input more than BUSY_PIECES times since the
# last round. The beat may wait behind that input.
BUSY_S, BUSY_PIECES = 10.0, 50
# If a round starts more than this many seconds late, the process was paused (for example by SIGSTOP, or because the
# machine was suspended). Beats may then have arrived and not been read yet: the round does not count them as missing.
LATE_S = 1.5


class Watchdog:
    """Sender of beats to all Redis servers. Keeps the epoch of each partition, and the run id of its Redis process."""

    def __init__(self, verbs: Verbs, bus: RedisBus, nodes: NodeLeases, clock: Clock) -> None:
        self._verbs = verbs
        self._bus = bus
        self._nodes = nodes
        self._clock = clock
        self._epochs: dict[int, str] = {}  # epoch by partition
        self._runs: dict[int, str] = {}  # by partition: run id of its server
        self._last_round = clock.monotonic()
        bus.beaten = self._beaten

    # --- beats ---

    async def listen(self, server: Primary) -> None:
        """Subscribe to the beats of this Redis server, on a channel of one of its partitions."""
        partition = min(server.partitions)
        channel = keys.beat_channel(self._verbs.prefix, partition, self._nodes.incarnation)
        if server.beat_channel != channel or not server.up:
            server.beat_channel, server.beat_partition = channel, partition
            server.unheard.clear()
            server.beat_took = 0.0
            await self._bus.watch(server, channel)

    async def round(self) -> list[Primary]:
        """Send one beat to each Redis server. Return the servers that have lost their data."""
        now = self._clock.monotonic()
        late, self._last_round = now - self._last_round > LATE_S + 1.0, now
        beating = []
        for server in [*self._verbs.servers.all.values()]:
            if server.up and server.partitions:
                if self._is_deaf(server, now, late):
                    server.fail("published messages no longer arrive")
                else:
                    beating.append(self._beat(server, now))
        lost = await asyncio.gather(*beating)
        return [server for server in lost if server is not None]

    def _is_deaf(self, server: Primary, now: float, late: bool) -> bool:
        while server.unheard and server.unheard[0][0] <= server.beat_heard:
            server.unheard.popleft()
        if late:
            server.unheard.clear()
        received = server.pushes.received if server.pushes is not None else 0
        busy, server.received = received > server.received + BUSY_PIECES, received
        return bool(server.unheard) and now - server.unheard[0][1] >= (BUSY_S if busy else DEAF_S)

    async def _beat(self, server: Primary, now: float) -> Primary | None:
        try:
            if server.beat_partition not in server.partitions:
                await self.listen(server)
            server.beat_sent += 1
            server.unheard.append((server.beat_sent, now))
            name, sha = keys.nodes_key(self._verbs.prefix, server.beat_partition), SCRIPTS["beat"].sha
            message = self._verbs.messages.write_beat(server.beat_channel, server.beat_sent)
            answer = await server.call("EVALSHA", sha, 1, name, server.beat_channel, self._verbs.publish, message)
            epoch, told, correction = answer[0].decode(), int(answer[1]), answer[2].decode()
            if self._verbs.time.observe(told, server.beat_partition, correction):
                await self._set_right(await self._nodes.register(server.partitions))
        except EngineUnavailable as error:
            self._verbs.servers.refused(server, error)
            return None
        return server if self.is_lost(server.beat_partition, epoch) else None

    def _beaten(self, server: Primary) -> None:
        sent = next((sent for number, sent in server.unheard if number == server.beat_heard), None)
        if sent is not None:
            server.heard_at = sent
            server.beat_took = self._clock.monotonic() - sent
            self._bus.lag.observe(server.beat_took)

    def lag_s(self) -> float:
        """Return the seconds from publishing to receiving of the latest beat, on the slowest server.

        Missing beats are not included. This hides no outage: a server whose beat is missing is already marked as down,
        or one of the next rounds marks it if the beat does not arrive.
        """
        return max((server.beat_took for server in self._verbs.servers.all.values() if server.up), default=0.0)

    def heard_at(self) -> float:
        """Return the time at which the latest returned beat was sent, on the server whose beat is the oldest."""
        servers = self._verbs.servers.all.values()
        return min((server.heard_at for server in servers if server.partitions), default=float("-inf"))

    # --- epochs ---

    async def compare(self, server: Primary, answers: dict[int, tuple[str, int, str]]) -> bool:
        """Remember the epochs in `answers` and the run id of the server.

        `answers` are the partitions' replies to this node's registration. Adjust the clock corrections too. Return
        whether each partition has the same epoch and the same Redis server as before.
        """
        intact = True
        for partition, (epoch, _, _) in answers.items():
            known = self._epochs.get(partition, epoch), self._runs.get(partition, server.run_id)
            intact = intact and known == (epoch, server.run_id)
            self._epochs[partition], self._runs[partition] = epoch, server.run_id
        await self._set_right(answers)
        return intact

    def state(self, partition: int) -> str:
        """Return a text that identifies the partition's data in Redis: epoch and run id.

        It changes when data is lost, and when another Redis process serves the partition.
        """
        return f"{self._epochs.get(partition, '')}/{self._runs.get(partition, '')}"

    def is_lost(self, partition: int, epoch: str) -> bool:
        """Return whether a known partition has a different epoch."""
        return self._epochs.get(partition, epoch) != epoch

    def is_other(self, answers: dict[int, tuple[str, int, str]]) -> bool:
        return any(self._epochs.get(partition) != epoch for partition, (epoch, _, _) in answers.items())

    # --- time ---

    async def mend(self, partition: int) -> None:
        """Repair the clock correction of a partition.

        Call this after the partition refused an operation because its time and the node's time differ too much. The
        correction is a number of milliseconds in each partition. The engine's time is the Redis server's time plus the
        correction.
        """
        await self._set_right(await self._nodes.register([partition]))

    async def _set_right(self, answers: dict[int, tuple[str, int, str]]) -> None:
        """Adjust the clock corrections of partitions whose time is wrong.

        Causes: the clock of their Redis server jumped, or they moved to another server. All partitions in `answers` are
        on one server, so equal corrections need an equal change.
        """
        changes: dict[str, int] = {}  # key: the present correction; value: milliseconds to add to it
        for partition, (_, told, correction) in answers.items():
            if correction not in changes:
                changes[correction] = self._verbs.time.observe(told, partition, correction)
        wrong = ((p, correction) for p, (_, _, correction) in answers.items() if changes[correction])
        await asyncio.gather(*(self._correct(p, old, str(int(old) + changes[old])) for p, old in wrong))

    async def _correct(self, partition: int, old: str, new: str) -> None:
        name = keys.nodes_key(self._verbs.prefix, partition)
        try:
            if await self._verbs.servers.run(partition, "correct", [name], old, new):
                self._verbs.time.mended(partition, new)
        except EngineUnavailable:
            pass  # the next beat finds the wrong correction again
