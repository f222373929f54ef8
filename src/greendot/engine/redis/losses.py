"""Partitions that lost records: from the discovery until every node that lives has restored its own.

Meanwhile absence means nothing there, and readers are told so. A node says in its lease which state of the partitions
it has restored, as a digest: a node whose digest is ours has seen the same losses and is done with them. Nobody is
waited for longer than a lease: a node that is silent for so long is dead, and its sessions are lost with it.
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

SILENT_S = 2.0  # a node of an older version does not say what it has restored: it gets a renewal and so much


class Losses:
    """One for each node."""

    def __init__(self, servers: Primaries, watchdog: Watchdog, clock: Clock, periods: LeasePeriods) -> None:
        self._servers = servers
        self._watchdog = watchdog
        self._clock = clock
        self._periods = periods
        self._open: dict[int, float] = {}  # partition → when its loss was found (monotonic)
        self._awaited: set[str] = set()  # nodes that lived when the losses were found
        self._restored: dict[int, str] = {}  # partition → the state in which this node has told all its sessions
        self._waiting: dict[asyncio.Future[None], frozenset[int]] = {}

    def restoring(self) -> Collection[int]:
        """Return the partitions in which absence means nothing: also those of servers that are not settled in yet."""
        if down := self._servers.down:
            return {*self._open}.union(*(server.partitions for server in down))
        return self._open.keys()

    def began(self, partitions: Iterable[int], alive: Iterable[str]) -> None:
        """Partitions were found to have lost records, while these nodes lived."""
        self._awaited.update(alive)
        self._open |= dict.fromkeys(partitions, self._clock.monotonic())

    def state(self, part: Part) -> RecordsState:
        """Return the state of the part's records."""
        partitions = part.numbers if isinstance(part, Partitions) else range(PARTITIONS)
        return {partition: self._watchdog.state(partition) for partition in partitions}

    def reported(self, since: RecordsState) -> None:
        """This node has told the engine all its sessions in these partitions, beginning in the state `since`.

        Partitions that were lost again meanwhile do not count.
        """
        self._restored |= {p: state for p, state in since.items() if state == self._watchdog.state(p)}

    def is_announced(self, partitions: Iterable[int]) -> bool:
        """Whether this node has told the engine all its sessions of these partitions since they were last lost."""
        return all(self._restored.get(partition) == self._watchdog.state(partition) for partition in partitions)

    def digest(self) -> str:
        """Return what this node has restored, as its lease says it."""
        return _digest(self._restored)

    async def over(self, since: RecordsState) -> None:
        """See `engine.port.Engine.restored`."""
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
        """Partitions cannot be reached: nobody waits for them now."""
        for future, waited in self._waiting.items():
            if not future.done() and not waited.isdisjoint(partitions):
                future.set_exception(EngineUnavailable("Redis went away while its records were restored"))

    def review(self, lives: Mapping[str, str], stated: Mapping[str, str | None]) -> None:
        """Close what is restored. `lives` are the nodes' lives, `stated` the digests in their leases."""
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
        """Whether a node that lived at the time of a loss may still have something to restore."""
        if age_s >= self._periods.lease or (life is not None and life != "live"):
            return False
        if stated is None:
            return age_s < self._periods.renew + SILENT_S
        return stated != wanted


def _digest(states: Mapping[int, str]) -> str:
    text = ";".join(f"{partition}={states[partition]}" for partition in sorted(states))
    return blake2b(text.encode(), digest_size=6).hexdigest()
