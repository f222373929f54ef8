"""Last-seen times in the store: written in batches, read for users whom the engine does not know.

A user who comes online or goes offline does not cause a write of its own. A node collects the users that came online or
went offline by its verbs. Every 30 s the node reads these users from the engine and writes their times. In addition the
node writes the times of one part in twenty of the users with sessions here. So a killed node leaves times that are ten
minutes old at most. A node that stops writes the times of all users with sessions here.

The store may be away. Writes then wait, and reads return without last-seen times.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, islice
from typing import Any

from greendot.engine.port import Engine, Transition
from greendot.errors import EngineUnavailable, StoreUnavailable
from greendot.ids import Key
from greendot.node.batching import BatchedReads
from greendot.node.context import NodeContext
from greendot.presence.last_seen_model import Rounds, time_to_store, with_stored
from greendot.presence.model import Snapshot
from greendot.store.last_seen import LastSeenStore
from greendot.telemetry import log_events
from greendot.telemetry.log import log

EVERY_S = 30.0  # between two writes
AT_ONCE = 500  # users in one write
MOST = 100_000  # users who wait for a write while engine or store are away; further ones are dropped
STOP_S = 5.0  # longest time for the last write of a node that stops
WAIT_S = 1.0  # longest wait for the store's answer to a read
AWAY_S = 5.0  # pause of reads after the store did not answer in time
CACHED_S = 10.0
MOST_CACHED = 50_000  # users; above it the oldest entry is dropped
MOST_DROPPED = 2_000  # entries dropped at once


class LastSeenWriter:
    """Writer of the times of users who were seen by this node."""

    def __init__(self, engine: Engine, store: LastSeenStore, context: NodeContext) -> None:
        self._engine = engine
        self._store = store
        self._context = context
        self._waiting: dict[Key, None] = {}
        self._rounds = Rounds()
        self._writing = False

    def start(self) -> None:
        self._context.timers.set(EVERY_S, self._on_timer)

    def turned(self, turn: Transition) -> None:
        """Collect a user who came online or went offline."""
        if turn.kind == "user" and len(self._waiting) < MOST:
            self._waiting[turn.tenant, turn.name] = None

    def _on_timer(self, _: None) -> None:
        self.start()
        self._add(self._rounds.take(self._context.registry.keys))
        if self._waiting and not self._writing:
            self._context.tasks.spawn(self.flush())

    def _add(self, users: Iterable[Key]) -> None:
        self._waiting.update(dict.fromkeys(islice(users, max(0, MOST - len(self._waiting)))))

    async def close(self) -> None:
        """Write the times of all users with sessions here, and of those who wait. Online users were last seen now."""
        self._add(self._context.registry.keys())
        try:
            async with asyncio.timeout(STOP_S):
                await self.flush()
        except TimeoutError:
            log(log_events.WORK_LATER, work="storing last-seen times", reason="the store is too slow")

    async def flush(self) -> None:
        """Write the times of the users who wait. Users whose times cannot be written wait for the next period."""
        self._writing = True
        some: list[Key] = []
        try:
            while self._waiting:
                await self._context.slices.turn()
                some = [*islice(self._waiting, AT_ONCE)]
                for key in some:
                    del self._waiting[key]
                if seen := await self._read(some):
                    await self._store.put_last_seen(seen)
                some = []
        except (EngineUnavailable, StoreUnavailable) as error:
            log(log_events.WORK_LATER, work="storing last-seen times", reason=error)
        finally:
            self._writing = False
            self._add(some)

    async def _read(self, keys: list[Key]) -> dict[Key, int]:
        """Return the times to store. The engine's answer decides: an invisible user is not seen."""
        now = self._engine.now_ms()
        tenants = [(tenant, [user for _, user in of]) for tenant, of in groupby(sorted(keys), key=lambda key: key[0])]
        answers = await asyncio.gather(*(self._engine.read(tenant, users) for tenant, users in tenants))
        return {
            (tenant, user): at
            for (tenant, users), answer in zip(tenants, answers, strict=True)
            for user, snapshot in zip(users, answer, strict=True)
            if (at := time_to_store(snapshot.visible, now)) is not None
        }


class LastSeenReader:
    """Reader of stored times, with a cache: unknown users are often asked for again, and most have no time."""

    def __init__(self, engine: Engine, store: LastSeenStore, context: NodeContext, keep_ms: int) -> None:
        self._engine = engine
        self._store = store
        self._timers = context.timers
        self._keep_ms = keep_ms
        self._reads: BatchedReads[Key, int | None] = BatchedReads(context, self._load, None, gathers=False)
        self._cache = OrderedDict[Key, tuple[float, int | None]]()  # expiry in monotonic seconds, and the time
        self._away_until = float("-inf")  # monotonic seconds

    def __len__(self) -> int:
        return len(self._cache)

    def cached(self, keys: Iterable[Key]) -> dict[Key, int | None]:
        """Return the times that need no read."""
        now = self._timers.now()
        found = ((key, self._cache.get(key)) for key in keys)
        return {key: entry[1] for key, entry in found if entry is not None and now < entry[0]}

    async def read(self, keys: Sequence[Key]) -> Mapping[Key, int | None] | None:
        """Return the times in the store, those that were answered within `WAIT_S`.

        Return None at once if the store did not answer an earlier read.
        """
        if self._timers.now() < self._away_until:
            return None
        reads = {key: self._reads.ask(key) for key in keys}
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._timers.set(WAIT_S, over.set_result, None)
        # Callers share the futures of `reads`. They are never cancelled, because `wait` does not cancel `ended`.
        ended: asyncio.Future[Any] = asyncio.gather(*reads.values(), return_exceptions=True)
        try:
            await asyncio.wait((ended, over), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._timers.cancel(timer)
        done = ((key, read) for key, read in reads.items() if read.done())
        answered = {key: read for key, read in done if not isinstance(read.exception(), StoreUnavailable)}
        if len(answered) < len(reads):
            self._away_until = self._timers.now() + AWAY_S
        return {key: read.result() for key, read in answered.items()}

    def complete(self, snapshot: Snapshot, at: int | None) -> Snapshot:
        """Return the snapshot with the stored time, if it may be shown."""
        return with_stored(snapshot, at, self._engine.now_ms(), self._keep_ms)

    async def _load(self, keys: Sequence[Key]) -> dict[Key, int | None]:
        expiry = self._timers.now() + CACHED_S
        found = await self._store.last_seen(keys)
        for key in keys:
            self._cache.pop(key, None)  # the order of the cache is that of the reads
            self._cache[key] = expiry, found.get(key)
        self._forget()
        return {**found}

    def _forget(self) -> None:
        """Drop entries that have expired or are too many. The oldest are first.

        At most `MOST_DROPPED` are dropped, more than a read adds. A plain dictionary would be slower with each deletion
        of its first entry.
        """
        now = self._timers.now()
        for _ in range(MOST_DROPPED):
            oldest = next(iter(self._cache), None)
            if oldest is None or (len(self._cache) <= MOST_CACHED and now < self._cache[oldest][0]):
                return
            del self._cache[oldest]
