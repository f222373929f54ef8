"""Partitions that lost data, from the discovery until every live node has restored its own sessions.

Until then, a session that is missing in such a partition may still be restored, and reads are marked stale. A node's
lease has a digest of the state of the partitions that the node has restored. A node with the same digest as ours has
detected the same losses and restored its sessions. The wait for a node ends after the period of a lease. A node that is
silent for this time is dead, and its sessions are lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b

from greendot.clock import Clock
from greendot.engine.messages import Part
from greendot.engine.port import RecordsState
from greendot.engine.redis.keys import PARTITIONS
from greendot.engine.redis.nodes import LeasePeriods
from greendot.engine.redis.partitions import Partitions, Primaries
from greendot.engine.redis.watchdog import Watchdog
from greendot.errors import EngineUnavailable

SILENT_S = 2.0  # seconds to wait, after a renewal period, for nodes of an older version, which publish no digest


class Losses:
    """Open losses, as this node knows them."""

    def __init__(self, servers: Primaries, watchdog: Watchdog, clock: Clock, periods: LeasePeriods) -> None:
        self._servers = servers
        self._watchdog = watchdog
        self._clock = clock
        self._periods = periods
        self._open: dict[int, float] = {}  # partition → monotonic time at which its loss was found
        self._awaited: set[str] = set()  # nodes that lived when the losses were found
        self._restored: dict[int, str] = {}  # partition → the state in which this node restored all its sessions
        self._waiting: dict[asyncio.Future[None], frozenset[int]] = {}

    def restoring(self) -> Collection[int]:
        """Return the partitions that may lack records, including those of servers that are not up."""
        if down := self._servers.down:
            return {*self._open}.union(*(server.partitions for server in down))
        return self._open.keys()

    def began(self, partitions: Iterable[int], alive: Iterable[str]) -> None:
        """Record that partitions have lost data, with the nodes that lived then."""
        self._awaited.update(alive)
        self._open |= dict.fromkeys(partitions, self._clock.monotonic())

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

    def digest(self) -> str:
        """Return the digest of the partitions that this node has restored, for its lease."""
        return _digest(self._restored)

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

    def review(self, lives: Mapping[str, str], stated: Mapping[str, str | None]) -> None:
        """Close the losses that are restored. `lives` is as in NodeTable; `stated` has the digests of the leases."""
        if not self._open:
            return
        now, state = self._clock.monotonic(), self._watchdog.state
        wanted = _digest({partition: state(partition) for partition in range(PARTITIONS)})
        said = [(lives.get(node), stated.get(node, "")) for node in self._awaited]
        for partition, since in [*self._open.items()]:
            age_s = now - since
            if self.is_announced([partition]) and not any(
                self._is_missing(life, digest, age_s, wanted) for life, digest in said
            ):
                del self._open[partition]
        if not self._open:
            self._awaited.clear()
        for future, waited in self._waiting.items():
            if not future.done() and self._open.keys().isdisjoint(waited):
                future.set_result(None)

    def _is_missing(self, life: str | None, stated: str | None, age_s: float, wanted: str) -> bool:
        """Return whether a node that lived at the time of a loss may still have data to restore."""
        if age_s >= self._periods.lease or (life is not None and life != "live"):
            return False
        if stated is None:
            return age_s < self._periods.renew + SILENT_S
        return stated != wanted


def _digest(states: Mapping[int, str]) -> str:
    text = ";".join(f"{partition}={states[partition]}" for partition in sorted(states))
    return blake2b(text.encode(), digest_size=6).hexdigest()
