"""Partitions that lost data, from the discovery until every live node has restored its own sessions.

Until then, a session that is missing in such a partition may still be restored, and reads are marked stale. A node's
lease has a digest of the state of the partitions that the node has restored. A node with the same digest as ours has
detected the same losses and restored its sessions. While a node restores, its lease also has a mark of each partition
that it has restored, and a count of restored sessions and occupants. So the loss of a partition ends when all nodes
have restored this partition, and a growing count shows that a slow node goes on.

The wait for a node ends when the node reports no progress for the period of a lease, or after `LONGEST_S`. A node that
is silent for the period of a lease is dead, and its sessions are lost.

A node that starts during a loss has lost nothing, and reads the new state of the partitions at once. It finds the loss
in the reports of the other nodes, and takes part in it.
"""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b

from greendot.clock import Clock
from greendot.engine.messages import Part
from greendot.engine.port import RecordsState
from greendot.engine.redis.keys import PARTITIONS
from greendot.engine.redis.nodes import LeasePeriods
from greendot.engine.redis.partitions import Partitions
from greendot.engine.redis.presence import Verbs
from greendot.engine.redis.watchdog import Watchdog
from greendot.errors import EngineUnavailable

LONGEST_S = 120.0  # longest wait for a node that goes on reporting progress
MARK = 3  # characters in the mark of a partition
# A loss lasts for at least so many reads of the nodes. A node that started just before the loss is not known yet: it
# finds the loss with its own next read, and registers again.
ROUNDS = 2
SILENT_S = 2.0  # seconds to wait, after a renewal period, for nodes of an older version, which publish no digest


class Losses:
    """Open losses, as this node knows them."""

    def __init__(self, verbs: Verbs, watchdog: Watchdog, clock: Clock, periods: LeasePeriods) -> None:
        self._verbs = verbs
        self._watchdog = watchdog
        self._clock = clock
        self._periods = periods
        self._open: dict[int, float] = {}  # partition → monotonic time at which its loss was found
        # Nodes that lived when the losses were found, each with its last report and the time of this report.
        self._awaited: dict[str, tuple[str | None, float]] = {}
        self._restored: dict[int, str] = {}  # partition → the state in which this node restored all its sessions
        self._waiting: dict[asyncio.Future[None], frozenset[int]] = {}
        self._started = float("-inf")  # monotonic time at which this node registered
        self._is_postponed = False  # a loss was not joined, because the server of its partitions was not up
        self._noticed: set[int] = set()  # partitions with a loss that this node has found or joined since its start

    def restoring(self) -> Collection[int]:
        """Return the partitions that may lack records, including those of servers that are not up."""
        if down := self._verbs.servers.down:
            return {*self._open}.union(*(server.partitions for server in down))
        return self._open.keys()

    def began(self, partitions: Iterable[int], alive: Iterable[str]) -> None:
        """Record that partitions have lost data, with the nodes that lived then."""
        now = self._clock.monotonic()
        self._awaited = dict.fromkeys(alive, ("", now)) | self._awaited
        self._open |= dict.fromkeys(partitions, now)
        self._noticed.update(self._open)

    def started(self, lives: Mapping[str, str], reports: Mapping[str, str | None]) -> Collection[int]:
        """Record that this node has registered, with nothing to restore. For arguments and result see `join`."""
        self._started = self._clock.monotonic()
        self.reported(self.state(Part()))
        return self.join(lives, reports)

    def join(self, lives: Mapping[str, str], reports: Mapping[str, str | None]) -> Collection[int]:
        """Take part in losses that began before the start of this node. Return the partitions that are new here.

        Later than a lease after the start nothing is joined: a node finds later losses by itself. Partitions of servers
        that are not up are joined when their server is back, also later, unless the node then finds the loss by itself.
        For the arguments see `review`.
        """
        if self._clock.monotonic() >= self._started + self._periods.lease and not self._is_postponed:
            return ()
        wanted, joined = self._wanted(), set[int]()
        down = set[int]().union(*(server.partitions for server in self._verbs.servers.down))
        self._is_postponed = False
        for node, life in lives.items():
            digest, _, marks = (reports.get(node) or "").partition(",")
            # Without marks, the node is older or has not found the loss yet. A node without a report restores nothing.
            if life == "live" and digest not in ("", NOTHING, wanted):
                # A loss that this node has found itself is not joined again when another node restores for longer.
                lost = {p for p in range(PARTITIONS) if p not in self._noticed and not self._is_marked(marks, p)}
                self._is_postponed = self._is_postponed or not lost.isdisjoint(down)
                lost -= down
                self.began(lost, [node])
                joined |= lost
        return joined

    def state(self, part: Part) -> RecordsState:
        partitions = part.numbers if isinstance(part, Partitions) else range(PARTITIONS)
        return {partition: self._watchdog.state(partition) for partition in partitions}

    def reported(self, since: RecordsState) -> None:
        """Record that this node has restored all its sessions in these partitions, beginning in the state `since`.

        Partitions that were lost again since then are left out.
        """
        self._restored |= {p: state for p, state in since.items() if state == self._watchdog.state(p)}

    def is_announced(self, partitions: Iterable[int]) -> bool:
        """Return whether this node has restored all its sessions of these partitions since their last loss."""
        return all(self._restored.get(partition) == self._watchdog.state(partition) for partition in partitions)

    def report(self) -> str:
        """Return the report of this node for its lease: the digest, and during a loss the marks and the count."""
        digest = _digest(self._restored)
        if not self._open:
            return digest
        marks = (_mark(self._restored.get(partition)) for partition in range(PARTITIONS))
        return f"{digest},{''.join(marks)},{self._verbs.restored}"

    async def over(self, since: RecordsState) -> None:
        """Wait until the partitions are restored; see `engine.port.RestoringEngine.restored`."""
        self.reported(since)
        waited = frozenset(since)
        if not self._open.keys().isdisjoint(waited):
            future = asyncio.get_running_loop().create_future()
            self._waiting[future] = waited
            try:
                await future
            finally:
                del self._waiting[future]

    def cut_off(self, partitions: Collection[int]) -> None:
        """Fail the waits for partitions that cannot be reached, with EngineUnavailable."""
        for future, waited in self._waiting.items():
            if not future.done() and not waited.isdisjoint(partitions):
                future.set_exception(EngineUnavailable("Redis went away while its records were restored"))

    def review(self, lives: Mapping[str, str], reports: Mapping[str, str | None]) -> None:
        """Close the losses that are restored.

        `lives` has the other nodes, as in NodeTable. `reports` are those of the leases.
        """
        if not self._open:
            return
        now = self._clock.monotonic()
        others = (node for node, life in lives.items() if life == "live")
        self._awaited = dict.fromkeys(others, ("", now)) | self._awaited  # some started or registered after the loss
        wanted = self._wanted()
        waited_for = []  # last reports of live nodes that have not restored everything, and their times
        for node, (report, reported) in self._awaited.items():
            if reports.get(node, report) != report:
                report, reported = self._awaited[node] = reports[node], now
            if lives.get(node, "live") == "live" and (report is None or report.partition(",")[0] != wanted):
                waited_for.append((report, reported))
        for partition, since in [*self._open.items()]:
            age_s = now - since
            if age_s < ROUNDS * self._periods.sample or not self.is_announced([partition]):
                continue
            if not any(
                self._is_missing(partition, report, age_s, now - max(reported, since))
                for report, reported in waited_for
            ):
                del self._open[partition]
        if not self._open:
            self._awaited.clear()
        for future, waited in self._waiting.items():
            if not future.done() and self._open.keys().isdisjoint(waited):
                future.set_result(None)

    def _is_missing(self, partition: int, report: str | None, age_s: float, quiet_s: float) -> bool:
        """Return whether a live node may still have data of the partition to restore.

        `age_s` is the time since the loss, and `quiet_s` the time since the node's last progress.
        """
        if report is None:
            return age_s < min(self._periods.renew + SILENT_S, self._periods.lease)
        if quiet_s >= self._periods.lease or age_s >= LONGEST_S:
            return False
        return not self._is_marked(report.partition(",")[2], partition)

    def _wanted(self) -> str:
        """Return the digest of a node that has restored all its sessions."""
        return _digest(self.state(Part()))

    def _is_marked(self, marks: str, partition: int) -> bool:
        """Return whether the marks of a report have the present state of the partition."""
        return marks[partition * MARK : (partition + 1) * MARK] == _mark(self._watchdog.state(partition))


def _digest(states: Mapping[int, str]) -> str:
    text = ";".join(f"{partition}={states[partition]}" for partition in sorted(states))
    return blake2b(text.encode(), digest_size=6).hexdigest()


def _mark(state: str | None) -> str:
    """Return a short hash of the state in which a partition was restored; dots if it is not restored."""
    if state is None:
        return "." * MARK
    return urlsafe_b64encode(blake2b(state.encode(), digest_size=3).digest())[:MARK].decode()


NOTHING = _digest({})  # first report of a node: it has registered, and has not read the state of the partitions yet
