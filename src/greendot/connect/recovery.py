"""Recovery of a node after the engine was away, lost data, or took the node for dead.

The node restores its sessions and their rooms in the engine (`Restorer`), with jitter, so that many nodes do not write
at once. Then it reads followed topics again and delivers the differences. A part (`Part`) is some of the users and
rooms, such as those on one Redis server. To hold a part is to keep showing the state from before a loss.

After a loss, the node restores the pieces of the part one after the other. It reports each piece to the other nodes,
and holds the piece until all live nodes have reported it. A piece that fails is repeated alone. The store is not needed
for any of this: messages and notifications are compared with the store independently.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from greendot.connect.restorer import AGAIN_S, Restorer
from greendot.engine.messages import Audit, Part
from greendot.engine.port import Engine, RecordsState
from greendot.errors import EngineUnavailable, StoreUnavailable
from greendot.ids import Key
from greendot.inbox.delivery import InboxDelivery
from greendot.node.bus import BusTable
from greendot.node.context import NodeContext
from greendot.node.registry import Registry
from greendot.presence.model import SessionEpoch
from greendot.presence.sessions import NOTICED_S, SessionService
from greendot.presence.watch import WatchService
from greendot.rooms.service import RoomService
from greendot.rooms.session_rooms import SessionRooms
from greendot.telemetry import log_events
from greendot.telemetry.log import log
from greendot.telemetry.metrics import Metrics

JITTER_S = 0.5  # longest random wait before the first batch
HOLD_S = 600.0  # longest time to hold a lost part; the hold ends when all nodes have restored their sessions


class RecoveryPace(Struct, frozen=True):
    """Pace of a recovery, from the settings."""

    batch: int = 500  # sessions and occupants restored in a tenth of a second
    stale_after_s: float = 30.0
    hold_s: float = 7.0  # how long to hold a user's state if the user is restored before this node detects the loss


class RecoveryServices(Struct, frozen=True):
    """Services that a recovery restores or reads again."""

    sessions: SessionService
    session_rooms: SessionRooms
    watching: WatchService
    rooms: RoomService
    inboxes: InboxDelivery


class _Any(Part):
    """Users and rooms of any of these parts."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts

    def covers(self, tenant: str, name: str) -> bool:
        return any(part.covers(tenant, name) for part in self._parts)


class _Except(Part):
    """Users and rooms of a part that are not in other parts."""

    def __init__(self, part: Part, others: Sequence[Part]) -> None:
        self._part = part
        self._others = _Any(others)

    def covers(self, tenant: str, name: str) -> bool:
        return self._part.covers(tenant, name) and not self._others.covers(tenant, name)


class _Elsewhere(Part):
    """Users of a part who have no sessions on this node. It remembers the others, who are `skipped`."""

    def __init__(self, part: Part, registry: Registry) -> None:
        self.skipped: set[Key] = set()
        self._part = part
        self._registry = registry

    def covers(self, tenant: str, name: str) -> bool:
        if not self._part.covers(tenant, name):
            return False
        if self._registry.sessions_of(tenant, name):
            self.skipped.add((tenant, name))
            return False
        return True


class _Here(Part):
    """Users of a part who have sessions on this node, or had them at the earlier read of the users elsewhere."""

    def __init__(self, part: Part, registry: Registry, elsewhere: _Elsewhere) -> None:
        self._part = part
        self._registry = registry
        self._elsewhere = elsewhere

    def covers(self, tenant: str, name: str) -> bool:
        # The last session of a skipped user may have ended since: no read would then have the user.
        is_here = (tenant, name) in self._elsewhere.skipped or self._registry.sessions_of(tenant, name)
        return bool(is_here) and self._part.covers(tenant, name)


class Recovery:
    """Recovery of one node."""

    def __init__(
        self, engine: Engine, parts: RecoveryServices, context: NodeContext, pace: RecoveryPace, metrics: Metrics
    ) -> None:
        self.resyncs = 0  # times all topics of a part were read again
        self.ended = 0  # sessions that the engine had for this node and the node did not have
        self._engine = engine
        self._parts = parts
        self._context = context
        self._pace = pace
        self._metrics = metrics
        self._restorer = Restorer(parts.sessions, parts.session_rooms, context, pace.batch)
        self._recoveries = 0  # recoveries from losses that have begun
        self._lost: dict[Part, int] = {}  # pieces being restored, each with the number of its recovery
        self._unhealed: list[Part] = []  # lost pieces that became unreachable again before they were restored
        self._is_healing = False  # an outage or loss was logged, so the recovery from it is logged too
        self._deaths = 0  # deaths of other nodes since the last check of rooms
        # Comparisons with the store that run, and whether each has to run again.
        self._comparing: dict[tuple[Callable[[Part], Awaitable[None]], Part], bool] = {}
        self.bus: BusTable = {Audit: lambda topic, message: self.audit()}

    @property
    def restored(self) -> int:
        """Return the number of sessions written to the engine again."""
        return self._restorer.restored

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
        if again := [lost for lost in unhealed if intact or not lost.within(part)]:
            self._begin(_Any(again), again)
        if intact:
            self._context.tasks.spawn(self._refresh(part))
        else:
            self._begin(part, part.pieces())

    def _begin(self, part: Part, pieces: Sequence[Part]) -> None:
        """Hold a lost part, and restore its pieces."""
        self._is_healing = True
        self._hold(part, HOLD_S)
        self._recoveries += 1
        self._lost |= dict.fromkeys(pieces, self._recoveries)
        self._context.tasks.spawn(self._recover(pieces))

    def _hold(self, part: Part, seconds: float) -> None:
        self._parts.watching.hold(part, seconds)
        self._parts.rooms.hold(part, seconds)

    def reborn(self, incarnation: str) -> None:
        """Restore every session under the new incarnation."""
        self._is_healing = True
        self._parts.sessions.incarnation = incarnation
        self._context.tasks.spawn(self._refresh(Part()))

    def died(self) -> None:
        """Check the occupancy of rooms, because the sessions of a dead node no longer count as online."""
        self._deaths += 1
        if self._deaths == 1:
            self._context.tasks.spawn(self._check_rooms())

    def audit(self) -> None:
        """Compare the engine's sessions of this node with the node's own."""
        self._context.tasks.spawn(self._audit_quietly())

    # --- without a loss ---

    async def _refresh(self, part: Part) -> None:
        """Restore sessions, read topics again, compare. The engine has not lost any data.

        If the engine becomes unreachable during a step, all steps are repeated after its return.
        """
        started, is_healing = self._context.timers.now(), self._is_healing  # False for the hourly refresh
        await self._context.timers.sleep(random.uniform(0, JITTER_S))
        # For other nodes, users with sessions here may have gone offline, and now return. Watchers on this node
        # must not see that, so these users are read only after their sessions are restored.
        others = _Elsewhere(part, self._context.registry)
        here = _Here(part, self._context.registry, others)
        self._context.tasks.spawn(self._compare(self._parts.rooms.compare, part))
        self.resyncs += 1
        try:
            sessions, _ = await asyncio.gather(self._restorer.restore(part), self._resync(part, others))
            self._context.tasks.spawn(self._compare(self._compare_inboxes, part))
            await self._parts.watching.resync(here, intact=True)
            await self._audit(part)
        except EngineUnavailable as error:
            log(log_events.WORK_LATER, work="recovery", reason=error)
            if part.away() is None:
                await self._context.timers.sleep(AGAIN_S * random.uniform(0.5, 1))
                self._context.tasks.spawn(self._refresh(part))
        else:
            self._log_end(started, sessions, is_healing=is_healing)

    def _log_end(self, started: float, sessions: int, *, is_healing: bool = True) -> None:
        """Log completion, except for the hourly refresh."""
        took_s = self._context.timers.now() - started
        if is_healing:
            self._metrics.presence_recovery.observe(took_s)
        if self._is_healing:
            self._is_healing = False
            log(log_events.NODE_RECOVERED, took_s=round(took_s, 3), sessions=sessions)

    # --- after a loss ---

    async def _recover(self, pieces: Sequence[Part]) -> None:
        """Restore lost pieces one after the other. End the hold of each when all nodes have restored it."""
        started, sessions, ends = self._context.timers.now(), 0, list[bool]()
        await self._context.timers.sleep(random.uniform(0, JITTER_S))

        async def end(piece: Part, state: RecordsState) -> None:
            ends.append(await self._attempt(piece, self._end(piece, state)) is not None)

        async with asyncio.TaskGroup() as ending:
            for piece in pieces:
                self._context.tasks.spawn(self._compare(self._parts.rooms.compare, piece))
                state = self._engine.records_state(piece)
                restored = await self._attempt(piece, self._restorer.restore(piece))
                if restored is not None:
                    sessions += restored
                    ending.create_task(end(piece, state))
        if ends == [True] * len(pieces):
            self.resyncs += 1
            self._log_end(started, sessions)

    async def _end(self, piece: Part, state: RecordsState) -> int:
        """Report a piece that this node has restored, wait for the other nodes, and read the piece again.

        Users and rooms that were lost again since are left out, because another recovery restores them.
        """
        self._context.tasks.spawn(self._compare(self._compare_inboxes, piece))
        if await self._finds_ended(piece):
            # The user may have another session, which is not restored yet. A node that has noticed the loss confirms
            # the end before it shows the user as offline.
            await self._context.timers.sleep(NOTICED_S)
            await self._audit(piece)  # while the piece is held
        await self._engine.restored(piece, state)
        again = [other for other, number in self._lost.items() if number > self._lost[piece]]
        rest = _Except(piece, again) if again else piece
        self._parts.rooms.hold(rest, 0.0)
        await self._parts.watching.resync(rest, intact=False, release=True)
        await self._parts.rooms.resync(rest)
        del self._lost[piece]
        return 0

    async def _attempt(self, piece: Part, step: Awaitable[int]) -> int | None:
        """Return the result of a step; None if it failed. The piece is then restored again, without the others."""
        try:
            return await step
        except Exception as error:
            if isinstance(error, EngineUnavailable):
                log(log_events.WORK_LATER, work="recovery", reason=error)
            else:
                log(log_events.WORK_FAILED, error, work="recovery")
            self._lost.pop(piece, None)
            if piece.away() is None:
                self._context.timers.set(AGAIN_S * random.uniform(0.5, 1), self._again, piece)
            else:  # the engine will not report the earlier loss again when the piece returns
                self._unhealed = [lost for lost in self._unhealed if not lost.within(piece)]
                self._unhealed.append(piece)
            return None

    def _again(self, piece: Part) -> None:
        self._begin(piece, [piece])

    # --- steps ---

    async def _compare(self, compare: Callable[[Part], Awaitable[None]], part: Part) -> None:
        """Compare messages or notifications with the store as soon as the store answers.

        While a comparison of the same part runs, another one only makes it run again.
        """
        work = (compare, part)
        is_running, self._comparing[work] = work in self._comparing, True
        if is_running:
            return
        try:
            while self._comparing[work]:
                self._comparing[work] = False
                try:
                    await compare(part)
                except StoreUnavailable as error:
                    log(log_events.WORK_LATER, work="comparing records with the store", reason=error)
                    self._comparing[work] = True
                    await self._context.timers.sleep(AGAIN_S * random.uniform(0.5, 1))
        finally:
            del self._comparing[work]

    async def _compare_inboxes(self, part: Part) -> None:
        # The sessions must be restored before: only then does this node receive the messages for its users.
        await self._parts.inboxes.resync(part, self._parts.sessions.incarnation)

    async def _resync(self, part: Part, users: Part) -> None:
        await self._parts.watching.resync(users, intact=True)
        await self._parts.rooms.resync(part)

    # --- other nodes, and sessions that the node does not hold ---

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

    async def _audit(self, part: Part) -> None:
        # All nodes audit after a loss, so an audit is as slow as the restore of sessions.
        self.ended += await self._engine.audit(self._parts.sessions.holds, self._restorer.wait, part)

    async def _finds_ended(self, part: Part) -> bool:
        """Return whether the engine has sessions of this node that the node does not hold: their end was lost."""
        found = False

        def holds(ref: SessionEpoch) -> bool:
            nonlocal found
            found = found or not self._parts.sessions.holds(ref)
            return True

        await self._engine.audit(holds, self._restorer.wait, part)
        return found

    async def _audit_quietly(self) -> None:
        try:
            await self._audit(Part())
        except EngineUnavailable as error:
            log(log_events.WORK_LATER, work="comparing sessions", reason=error)
