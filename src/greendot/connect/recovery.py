"""Recovery of a node after the engine was away, lost data, or took the node for dead.

The steps are always the same. The node restores its sessions in the engine, in batches and with jitter, so that many
nodes do not write at once. Then it reads followed topics again and delivers the differences. A part (`Part`) is some of
the users and rooms, such as those on one Redis server. To hold a part is to keep showing the state from before a loss.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from msgspec import Struct

from greendot.engine.messages import Audit, Part
from greendot.engine.port import Engine
from greendot.errors import EngineUnavailable, StoreUnavailable
from greendot.inbox.delivery import InboxDelivery
from greendot.node.bus import BusTable
from greendot.node.context import NodeContext
from greendot.node.registry import Registry
from greendot.node.session import Session
from greendot.presence.sessions import SessionService
from greendot.presence.watch import WatchService
from greendot.rooms.service import RoomService
from greendot.rooms.session_rooms import SessionRooms
from greendot.telemetry import log_events
from greendot.telemetry.log import log
from greendot.telemetry.metrics import Metrics

PAUSE_S = 0.1  # pause between two batches
JITTER_S = 0.5  # longest random wait before the first batch
AGAIN_S = 2.0  # longest wait before another attempt
HOLD_S = 600.0  # longest time to hold a lost part; the hold ends when all nodes have restored their sessions

T = TypeVar("T")


class RecoveryPace(Struct, frozen=True):
    """Pace of a recovery, from the settings."""

    batch: int = 500  # sessions restored together
    stale_after_s: float = 30.0
    hold_s: float = 7.0  # how long to hold a user's state if the user is restored before this node detects the loss


class RecoveryServices(Struct, frozen=True):
    """Services that a recovery restores or reads again."""

    sessions: SessionService
    session_rooms: SessionRooms
    watching: WatchService
    rooms: RoomService
    inboxes: InboxDelivery


class _Except(Part):
    """Users and rooms of a part that are not in other parts."""

    def __init__(self, part: Part, others: Sequence[Part]) -> None:
        self._part = part
        self._others = others

    def covers(self, tenant: str, name: str) -> bool:
        return self._part.covers(tenant, name) and not any(other.covers(tenant, name) for other in self._others)


class _Users(Part):
    """Users of a part who have sessions on this node; with `here` False, users of the part who have none."""

    def __init__(self, part: Part, registry: Registry, *, here: bool) -> None:
        self._part = part
        self._registry = registry
        self._here = here

    def covers(self, tenant: str, name: str) -> bool:
        return bool(self._registry.sessions_of(tenant, name)) is self._here and self._part.covers(tenant, name)


class Recovery:
    """Recovery of one node."""

    def __init__(
        self, engine: Engine, parts: RecoveryServices, context: NodeContext, pace: RecoveryPace, metrics: Metrics
    ) -> None:
        self.restored = 0  # sessions written to the engine again
        self.resyncs = 0  # times all topics of a part were read again
        self.ended = 0  # sessions that the engine had for this node and the node did not have
        self._engine = engine
        self._parts = parts
        self._context = context
        self._pace = pace
        self._metrics = metrics
        self._turn = asyncio.Lock()  # allows one batch at a time, even if several parts are restored
        self._lost: list[Part] = []  # parts being restored; the latest loss last
        self._unhealed: list[Part] = []  # lost parts that became unreachable again before they were restored
        self._is_healing = False  # an outage or loss was logged, so the recovery from it is logged too
        self._deaths = 0  # deaths of other nodes since the last check of rooms
        self.bus: BusTable = {Audit: lambda topic, message: self.audit()}

    def lost(self, part: Part) -> None:
        """Start the timer after which watchers get `stale`, because the engine is away."""
        self._is_healing = True
        self._context.timers.set(self._pace.stale_after_s, self._stale, part)

    def _stale(self, part: Part) -> None:
        if (away := part.away()) is not None:
            log(log_events.NODE_STALE, after_s=self._pace.stale_after_s)
            self._context.tasks.spawn(self._parts.watching.mark_stale(away))

    def found(self, part: Part, *, intact: bool) -> None:
        """Recover a part that can be reached again. With `intact` False the engine lost its data."""
        unhealed, self._unhealed = self._unhealed, []
        for lost in unhealed:
            if intact or not lost.within(part):
                self._begin(lost, intact=False)
        self._begin(part, intact=intact)

    def _begin(self, part: Part, *, intact: bool) -> None:
        if not intact:
            self._is_healing = True
            self._hold(part, HOLD_S)
            self._lost.append(part)
        self._context.tasks.spawn(self._recover(part, intact))

    def _hold(self, part: Part, seconds: float) -> None:
        self._parts.watching.hold(part, seconds)
        self._parts.rooms.hold(part, seconds)

    def reborn(self, incarnation: str) -> None:
        """Restore every session under the new incarnation."""
        self._is_healing = True
        self._parts.sessions.incarnation = incarnation
        self._begin(Part(), intact=True)

    def died(self) -> None:
        """Check the occupancy of rooms, because the sessions of a dead node no longer count as online."""
        self._deaths += 1
        if self._deaths == 1:
            self._context.tasks.spawn(self._check_rooms())

    def audit(self) -> None:
        """Compare the engine's sessions of this node with the node's own."""
        self._context.tasks.spawn(self._audit_quietly())

    async def _recover(self, part: Part, intact: bool) -> None:
        """Restore sessions, read topics again, compare.

        If the engine becomes unreachable during a step, all steps are repeated after its return.
        """
        started, is_healing = self._context.timers.now(), self._is_healing  # False for the hourly refresh
        try:
            await self._context.timers.sleep(random.uniform(0, JITTER_S))
            state = self._engine.records_state(part)
            sessions = [s for s in self._parts.sessions.here() if part.covers(*s.key)]
            if intact:
                # For other nodes, users with sessions here may have gone offline, and now return. Watchers on this node
                # must not see that, so these users are read only after their sessions are restored.
                here, others = (_Users(part, self._context.registry, here=here) for here in (True, False))
                await asyncio.gather(self._restore(sessions, part), self._resync(part, others, intact))
                await self._parts.watching.resync(here, intact=True)
                await self._compare_inboxes(part)
                await self._audit()
            else:
                await self._restore(sessions, part)
                await self._compare_inboxes(part)
                await self._audit()  # finds sessions whose end was lost, while the part is held
                await self._engine.restored(part, state)
                await self._resync_held(part)
            if is_healing:
                self._metrics.presence_recovery.observe(self._context.timers.now() - started)
            self._log_end(started, len(sessions))
        except (EngineUnavailable, StoreUnavailable) as error:
            log(log_events.WORK_LATER, work="recovery", reason=error)
            if not intact:
                self._lost.remove(part)
            await self._failed(part, intact)

    def _log_end(self, started: float, sessions: int) -> None:
        """Log completion, except for the hourly refresh."""
        if self._is_healing:
            self._is_healing = False
            log(log_events.NODE_RECOVERED, took_s=round(self._context.timers.now() - started, 3), sessions=sessions)

    async def _failed(self, part: Part, intact: bool) -> None:
        if part.away() is None:
            await self._context.timers.sleep(AGAIN_S * random.uniform(0.5, 1))
            self._begin(part, intact=intact)
        elif not intact:
            self._unhealed = [lost for lost in self._unhealed if not lost.within(part)]
            self._unhealed.append(part)  # the engine will not report the earlier loss again when the part returns

    async def _restore(self, sessions: list[Session], part: Part) -> None:
        """Restore these sessions, and the occupancy of the part's rooms by any session of this node."""
        await self._in_batches(sessions, self._restore_session)
        await self._in_batches(self._parts.session_rooms.in_part(part), self._parts.session_rooms.restore)

    async def _restore_session(self, session: Session) -> None:
        await self._parts.sessions.restore(session)
        self.restored += 1

    async def _in_batches(self, items: Sequence[T], restore: Callable[[T], Awaitable[None]]) -> None:
        for at in range(0, len(items), self._pace.batch):
            async with self._turn:
                work = (restore(item) for item in items[at : at + self._pace.batch])
                results = await asyncio.gather(*work, return_exceptions=True)
                await self._context.timers.sleep(PAUSE_S)
            for result in results:
                if isinstance(result, BaseException):
                    raise result

    async def _check_rooms(self) -> None:
        while self._deaths:
            deaths = self._deaths
            try:
                await self._parts.rooms.check_occupancy(Part())
            except EngineUnavailable as error:
                log(log_events.WORK_LATER, work="comparing the occupancy of rooms", reason=error)
                await self._context.timers.sleep(AGAIN_S)
                continue
            self._deaths -= deaths

    async def _audit(self) -> None:
        self.ended += await self._engine.audit(self._parts.sessions.holds, self._slowly)

    async def _slowly(self, commands: int) -> None:
        """Wait, so that an audit is as slow as the restore of sessions: after a loss all nodes audit at once."""
        async with self._turn:
            await self._context.timers.sleep(PAUSE_S * commands / self._pace.batch)

    async def _resync(self, part: Part, users: Part, intact: bool) -> None:
        self.resyncs += 1
        await self._parts.watching.resync(users, intact=intact)
        await self._parts.rooms.resync(part)

    async def _resync_held(self, part: Part) -> None:
        """Read a part again after all nodes have restored it.

        Users and rooms that were lost again since are left out, because another recovery restores them.
        """
        rest = _Except(part, self._lost[self._lost.index(part) + 1 :])
        self._hold(rest, 0.0)
        await self._resync(rest, rest, intact=False)
        self._lost.remove(part)

    async def _compare_inboxes(self, part: Part) -> None:
        # The sessions must be restored before: only then does this node receive the messages for its users.
        await self._parts.inboxes.resync(part, self._parts.sessions.incarnation)

    async def _audit_quietly(self) -> None:
        try:
            await self._audit()
        except EngineUnavailable as error:
            log(log_events.WORK_LATER, work="comparing sessions", reason=error)
