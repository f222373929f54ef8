"""Recovery of a node after the engine was away, lost data, or took the node for dead.

- The engine (Redis, for example) has records of the sessions of all nodes and of the occupants of rooms. A loss means
  that the engine has lost some of these records.
- A part (`Part`) is some of the users and rooms, such as those on one Redis server. A part is restored in pieces.
- To restore a session or a room is to write what this node knows of it to the engine again (`Restorer`).
- A topic here is a watched user or a room, with watchers or listeners on this node.
- To hold a part is to keep showing the state of its users and rooms from before a loss.
- An audit finds sessions of this node in the engine that the node does not have, and ends them.
- An incarnation is a name of this node in the engine. A node that was declared dead continues under a new one.

In all three cases, the node restores its sessions and their rooms. Then the node reads its topics again and delivers
the differences. The start has jitter, so that many nodes do not write at once.

After a loss, the node restores the pieces of the lost part one after the other. It reports each restored piece to the
other nodes, and holds the piece until all live nodes have reported it. If a step fails for a piece, the steps are
repeated for this piece only.

No step needs the store, which is the database of messages and notifications. Messages and notifications are compared
with the store separately (`_compare`).
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
# Longest time to hold a lost part, counted from the latest attempt to restore it. Usually the hold ends earlier: when
# all nodes have restored their sessions.
HOLD_S = 600.0


class RecoveryPace(Struct, frozen=True):
    """Pace of a recovery, from the settings."""

    batch: int = 500  # sessions and occupants restored in a tenth of a second
    stale_after_s: float = 30.0  # length of an outage after which watchers get `stale`
    # How long to hold the state of a user if another node restores the user before this node has noticed the loss.
    hold_s: float = 7.0


class RecoveryServices(Struct, frozen=True):
    """Services that a recovery restores or reads again."""

    sessions: SessionService
    session_rooms: SessionRooms
    watching: WatchService
    rooms: RoomService
    inboxes: InboxDelivery


class _Any(Part):
    """Union of parts."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts

    def covers(self, tenant: str, name: str) -> bool:
        return any(part.covers(tenant, name) for part in self._parts)


class _Except(Part):
    """Part without the users and rooms of other parts."""

    def __init__(self, part: Part, others: Sequence[Part]) -> None:
        self._part = part
        self._others = _Any(others)

    def covers(self, tenant: str, name: str) -> bool:
        return self._part.covers(tenant, name) and not self._others.covers(tenant, name)


class _Elsewhere(Part):
    """Users of a part who have no sessions on this node. `skipped` collects those for whom `covers` found sessions."""

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
    """Users of a part who have sessions on this node, and users whom `elsewhere` has skipped."""

    def __init__(self, part: Part, registry: Registry, elsewhere: _Elsewhere) -> None:
        self._part = part
        self._registry = registry
        self._elsewhere = elsewhere

    def covers(self, tenant: str, name: str) -> bool:
        # The last session of a skipped user may have ended since. Then the user would be in neither of the two parts.
        is_here = (tenant, name) in self._elsewhere.skipped or self._registry.sessions_of(tenant, name)
        return bool(is_here) and self._part.covers(tenant, name)


class Recovery:
    """Recovery of one node."""

    def __init__(
        self, engine: Engine, parts: RecoveryServices, context: NodeContext, pace: RecoveryPace, metrics: Metrics
    ) -> None:
        self.resyncs = 0  # attempts to read the topics of a part again, and recoveries from a loss that succeeded
        self.ended = 0  # sessions ended by audits
        self._engine = engine
        self._parts = parts
        self._context = context
        self._pace = pace
        self._metrics = metrics
        self._restorer = Restorer(parts.sessions, parts.session_rooms, context, pace.batch)
        self._recoveries = 0  # number of the latest recovery from a loss
        self._lost: dict[Part, int] = {}  # pieces being restored after a loss, each with the number of its recovery
        self._unhealed: list[Part] = []  # lost pieces that became unreachable before they were restored
        self._is_healing = False  # an outage or loss was logged, so its end is logged too
        self._deaths = 0  # deaths of other nodes since the last check of rooms
        # Running comparisons with the store. The value is True if the comparison has to be repeated.
        self._comparing: dict[tuple[Callable[[Part], Awaitable[None]], Part], bool] = {}
        self.bus: BusTable = {Audit: lambda topic, message: self.audit()}

    @property
    def restored(self) -> int:
        """Return the number of sessions written to the engine again."""
        return self._restorer.restored

    def lost(self, part: Part) -> None:
        """Start a timer, because the part cannot be reached. If it is still away then, its watchers get `stale`."""
        self._is_healing = True
        self._context.timers.set(self._pace.stale_after_s, self._stale, part)

    def _stale(self, part: Part) -> None:
        if (away := part.away()) is not None:
            log(log_events.NODE_STALE, after_s=self._pace.stale_after_s)
            self._context.tasks.spawn(self._parts.watching.mark_stale(away))

    def found(self, part: Part, *, intact: bool) -> None:
        """Recover a part that can be reached again. With `intact` False, the engine has lost data of the part."""
        unhealed, self._unhealed = self._unhealed, []
        # With `intact` False, the second `_begin` below restores the pieces within `part`.
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
        """Read the occupants of rooms again, because another node has died, and its sessions no longer count."""
        self._deaths += 1
        if self._deaths == 1:
            self._context.tasks.spawn(self._check_rooms())

    def audit(self) -> None:
        """Start an audit of all sessions."""
        self._context.tasks.spawn(self._audit_quietly())

    # --- without a loss ---

    async def _refresh(self, part: Part) -> None:
        """Recover a part of which the engine has lost no data.

        The steps: restore the sessions, read the topics again, compare with the store, audit. If the engine becomes
        unreachable during a step, all steps are repeated when it returns.
        """
        started, is_healing = self._context.timers.now(), self._is_healing  # False for the hourly refresh
        await self._context.timers.sleep(random.uniform(0, JITTER_S))
        # In the engine, users with sessions on this node may have gone offline during the outage. The restore makes
        # them online again. Watchers on this node must see neither change, so these users are read after the restore.
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
        """Log the end of a recovery, except for the hourly refresh. `sessions` is the number of restored sessions."""
        took_s = self._context.timers.now() - started
        if is_healing:
            self._metrics.presence_recovery.observe(took_s)
        if self._is_healing:
            self._is_healing = False
            log(log_events.NODE_RECOVERED, took_s=round(took_s, 3), sessions=sessions)

    # --- after a loss ---

    async def _recover(self, pieces: Sequence[Part]) -> None:
        """Restore lost pieces one after the other. End the hold of each piece when all nodes have restored it."""
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

        Users and rooms that were lost again meanwhile are left out, because a newer recovery restores them. The result
        is 0, because `_attempt` returns None for a failure.
        """
        self._context.tasks.spawn(self._compare(self._compare_inboxes, piece))
        if await self._finds_ended(piece):
            # The audit ends such a session. The user of the session may have another session, which another node has
            # not restored yet. So wait until all nodes have noticed the loss: a node that has noticed the loss does not
            # show the user as offline before all nodes have confirmed this.
            await self._context.timers.sleep(NOTICED_S)
            await self._audit(piece)  # before the hold of the piece ends
        await self._engine.restored(piece, state)
        again = [other for other, number in self._lost.items() if number > self._lost[piece]]
        rest = _Except(piece, again) if again else piece
        self._parts.rooms.hold(rest, 0.0)
        await self._parts.watching.resync(rest, intact=False, release=True)
        await self._parts.rooms.resync(rest)
        del self._lost[piece]
        return 0

    async def _attempt(self, piece: Part, step: Awaitable[int]) -> int | None:
        """Await a step of a piece's recovery; return the result, or None if the step failed.

        After a failure, the recovery of this piece is repeated, without the other pieces.
        """
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
            else:  # when the piece can be reached again, the engine does not report the earlier loss again
                self._unhealed = [lost for lost in self._unhealed if not lost.within(piece)]
                self._unhealed.append(piece)
            return None

    def _again(self, piece: Part) -> None:
        self._begin(piece, [piece])

    # --- steps ---

    async def _compare(self, compare: Callable[[Part], Awaitable[None]], part: Part) -> None:
        """Compare messages or notifications of a part with the store as soon as the store answers.

        If the same comparison is running already, start no second one: the running comparison is repeated.
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
        # The sessions were restored before. Otherwise the engine would not send this node the messages for its users.
        await self._parts.inboxes.resync(part, self._parts.sessions.incarnation)

    async def _resync(self, part: Part, users: Part) -> None:
        """Read the watched users of `users` and the rooms of `part` again."""
        await self._parts.watching.resync(users, intact=True)
        await self._parts.rooms.resync(part)

    # --- after the death of another node, and audits ---

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
        # `wait` limits the pace of an audit like the pace of a restore, because after a loss all nodes audit at once.
        self.ended += await self._engine.audit(self._parts.sessions.holds, self._restorer.wait, part)

    async def _finds_ended(self, part: Part) -> bool:
        """Return whether the engine has sessions of this node that have ended here: the engine has lost their end."""
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
