"""Recovery of a node after an outage of the engine, after a loss, or after the node was declared dead.

- The engine (Redis, for example) has the sessions of all nodes and the occupants of all rooms. These are its records.
- An outage: the engine cannot be reached for a while. Its records are intact afterwards.
- A loss: the engine has lost records, for example because a Redis server has started again without its data.
- A part (`Part`) is some of the users and rooms, such as those on one Redis server. A part consists of pieces:
  smaller parts, which are restored one after the other.
- A topic is a user whom clients of this node watch, or a room with listeners on this node.
- An incarnation is a name of this node in the engine. A node that was declared dead continues under a new one.

Steps of a recovery:

- Restore: write the complete record of a session, and the rooms of the session, to the engine again (`Restorer`). Each
  node restores its own sessions.
- Hold: keep showing the users and rooms of a part as before a loss. If a session is missing in the engine, another node
  may still restore this session. So the user must not be shown as offline yet.
- Read a topic again: read its state from the engine, and deliver the differences to the clients.
- Audit: end the sessions that the engine has for this node, but that this node does not have.
- Compare (`_compare`): deliver the messages and notifications that the bus between the nodes has lost. The messages of
  a room and the notifications of an inbox are numbered. The node compares the last number that it has forwarded with
  the last number in the store (the database). Comparisons run beside the other steps.

After an outage, and under a new incarnation, the node restores its sessions, reads its topics again, and runs an audit.
About once an hour, a node with the Redis engine does the same without an outage: the hourly refresh.

After a loss, the node holds the lost part and restores its pieces one after the other. The node reports each restored
piece to the other nodes. When all live nodes have reported a piece, the node ends the hold of the piece and reads the
topics of the piece again. The node does not wait for nodes that make no progress. If a step fails for a piece, only the
recovery of this piece is repeated.

A recovery begins after a random time, so that many nodes do not write at once.

If the store does not answer, the recovery goes on. A session is then restored with the user's status that this node
knows. If the node does not know the status, the session is restored in the background, when the store answers again.
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

JITTER_S = 0.5  # longest random wait before a recovery begins
# Longest hold of a lost part, counted from the latest attempt to restore the part. Usually the hold ends earlier: when
# all nodes have restored their sessions.
HOLD_S = 600.0


class RecoveryPace(Struct, frozen=True):
    """Batch size and times of recoveries, computed from the settings."""

    batch: int = 500  # sessions, and rooms of sessions, that are restored in a tenth of a second
    stale_after_s: float = 30.0  # length of an outage after which watched users are marked as stale
    # If another node restores a session before this node has noticed the loss, this node holds the session's user and
    # rooms for this number of seconds. Within this time, all nodes should restore their sessions.
    hold_s: float = 7.0


class RecoveryServices(Struct, frozen=True):
    """Services that a recovery uses: to restore sessions, to read topics again, and to compare inboxes."""

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
    """Users of a part who have no sessions on this node.

    If a user of the part has sessions here, `covers` leaves out the user, and adds the user to `skipped`.
    """

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
    """Users of a part who have sessions on this node, or whom `elsewhere` has skipped."""

    def __init__(self, part: Part, registry: Registry, elsewhere: _Elsewhere) -> None:
        self._part = part
        self._registry = registry
        self._elsewhere = elsewhere

    def covers(self, tenant: str, name: str) -> bool:
        # The last session of a skipped user may have ended since. Without `skipped`, the user would be in neither part.
        is_here = (tenant, name) in self._elsewhere.skipped or self._registry.sessions_of(tenant, name)
        return bool(is_here) and self._part.covers(tenant, name)


class Recovery:
    """Recovery of one node."""

    def __init__(
        self, engine: Engine, parts: RecoveryServices, context: NodeContext, pace: RecoveryPace, metrics: Metrics
    ) -> None:
        self.resyncs = 0  # recoveries; after a loss, only successful ones
        self.ended = 0  # sessions ended by audits
        self._engine = engine
        self._parts = parts
        self._context = context
        self._pace = pace
        self._metrics = metrics
        self._restorer = Restorer(parts.sessions, parts.session_rooms, context, pace.batch)
        self._recoveries = 0  # number of the latest recovery after a loss
        self._lost: dict[Part, int] = {}  # pieces being restored after a loss, each with the number of its recovery
        self._unhealed: list[Part] = []  # lost pieces that became unreachable before their recovery ended
        self._is_healing = False  # True from an outage, loss or rebirth until the end of the recovery is logged
        self._deaths = 0  # deaths of other nodes since the last check of rooms
        # Running comparisons with the store, by method and part. True: the comparison has to be repeated.
        self._comparing: dict[tuple[Callable[[Part], Awaitable[None]], Part], bool] = {}
        self.bus: BusTable = {Audit: lambda topic, message: self.audit()}

    @property
    def restored(self) -> int:
        """Return the number of sessions written to the engine again."""
        return self._restorer.restored

    def went_away(self, part: Part) -> None:
        """Handle an outage of a part: the engine does not answer. As far as this node knows, no records are lost.

        If the part is still away after `stale_after_s`, its watched users are marked as stale.
        """
        self._is_healing = True
        self._context.timers.set(self._pace.stale_after_s, self._stale, part)

    def _stale(self, part: Part) -> None:
        if (away := part.away()) is not None:
            log(log_events.NODE_STALE, after_s=self._pace.stale_after_s)
            self._context.tasks.spawn(self._parts.watching.mark_stale(away))

    def found(self, part: Part, *, intact: bool) -> None:
        """Recover a part that can be reached again. With `intact` False, the engine has lost records of the part."""
        unhealed, self._unhealed = self._unhealed, []
        # After a loss, the recovery of `part` includes the unhealed pieces within `part`.
        if again := [lost for lost in unhealed if intact or not lost.within(part)]:
            self._begin(_Any(again), again)
        if intact:
            self._context.tasks.spawn(self._refresh(part))
        else:
            self._begin(part, part.pieces())

    def _begin(self, part: Part, pieces: Sequence[Part]) -> None:
        """Hold a lost part, and start the recovery of its pieces."""
        self._is_healing = True
        self._parts.session_rooms.statuses.expect_older()
        self._parts.sessions.lost_at = self._context.timers.now()
        self._hold(part, HOLD_S)
        self._recoveries += 1
        self._lost |= dict.fromkeys(pieces, self._recoveries)
        self._context.tasks.spawn(self._recover(pieces))

    def _hold(self, part: Part, seconds: float) -> None:
        self._parts.watching.hold(part, seconds)
        self._parts.rooms.hold(part, seconds)

    def reborn(self, incarnation: str) -> None:
        """Restore all sessions under a new incarnation: other nodes have declared this node dead (a rebirth)."""
        self._is_healing = True
        self._parts.sessions.incarnation = incarnation
        self._context.tasks.spawn(self._refresh(Part()))

    def died(self) -> None:
        """Read the occupants of all rooms again: another node has died, and its sessions no longer count as online."""
        self._deaths += 1
        if self._deaths == 1:
            self._context.tasks.spawn(self._check_rooms())

    def audit(self) -> None:
        """Start an audit of all sessions of this node."""
        self._context.tasks.spawn(self._audit_quietly())

    # --- without a loss ---

    async def _refresh(self, part: Part) -> None:
        """Recover a part whose records are intact.

        Restore the sessions. At the same time, read the topics again, except watched users who have sessions here. Read
        these users after the restore, then run an audit. If the engine becomes unreachable during a step, all steps are
        repeated: by this method, or by `found` when the engine can be reached again.
        """
        started = self._context.timers.now()
        is_healing = self._is_healing  # False in the hourly refresh, which follows no outage
        await self._context.timers.sleep(random.uniform(0, JITTER_S))
        # In the engine, a user with sessions here may have gone offline during the outage. The restore makes the user
        # online again. Watchers on this node must see neither change, so such users (`here`) are read afterwards.
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
        """Record the duration of a recovery, and log its end. For the hourly refresh, do neither.

        `sessions` is the number of restored sessions.
        """
        if not is_healing:
            return
        took_s = self._context.timers.now() - started
        self._metrics.presence_recovery.observe(took_s)
        if self._is_healing:
            self._is_healing = False
            log(log_events.NODE_RECOVERED, took_s=round(took_s, 3), sessions=sessions)

    # --- after a loss ---

    async def _recover(self, pieces: Sequence[Part]) -> None:
        """Restore lost pieces one after the other. When all nodes have restored a piece, end its hold."""
        started, sessions, ends = self._context.timers.now(), 0, list[bool]()
        await self._context.timers.sleep(random.uniform(0, JITTER_S))

        async def end(piece: Part, state: RecordsState) -> None:
            ends.append(await self._attempt(piece, self._end(piece, state)) is not None)

        async with asyncio.TaskGroup() as ending:
            for piece in pieces:
                self._context.tasks.spawn(self._compare(self._parts.rooms.compare, piece))
                state = self._engine.records_state(piece)
                restored = await self._attempt(piece, self._restorer.restore(piece, after_loss=True))
                if restored is not None:
                    sessions += restored
                    ending.create_task(end(piece, state))
        if ends == [True] * len(pieces):
            self.resyncs += 1
            self._log_end(started, sessions)

    async def _end(self, piece: Part, state: RecordsState) -> int:
        """Report a restored piece, wait until the other nodes have reported it, and read its topics again.

        `state` is the state of the piece's records when its restore began. If users or rooms were lost again since
        then, leave them out: a newer recovery restores and reads them. Return 0, because None means a failure in
        `_attempt`.
        """
        self._context.tasks.spawn(self._compare(self._compare_inboxes, piece))
        if await self._finds_ended(piece):
            # The engine still has a session that has ended here. The audit ends this session in the engine, too. But
            # the user may have another session, which another node has not restored yet. So first wait until all nodes
            # have noticed the loss. From then on, a node shows the user as offline only after all live nodes have
            # confirmed that they have no session of the user.
            await self._context.timers.sleep(NOTICED_S)
            await self._audit(piece)  # while the piece is still held
        await self._engine.restored(piece, state)
        again = [other for other, number in self._lost.items() if number > self._lost[piece]]
        rest = _Except(piece, again) if again else piece
        self._parts.rooms.hold(rest, 0.0)
        await self._parts.watching.resync(rest, intact=False, release=True)
        await self._parts.rooms.resync(rest)
        del self._lost[piece]
        return 0

    async def _attempt(self, piece: Part, step: Awaitable[int]) -> int | None:
        """Await a step of a piece's recovery. Return the result of the step, or None if the step failed.

        After a failure, the recovery of this piece begins again. Other pieces are not affected.
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
            else:  # keep the piece for `found`: the engine may not report the same loss again
                self._unhealed = [lost for lost in self._unhealed if not lost.within(piece)]
                self._unhealed.append(piece)
            return None

    def _again(self, piece: Part) -> None:
        self._begin(piece, [piece])

    # --- steps ---

    async def _compare(self, compare: Callable[[Part], Awaitable[None]], part: Part) -> None:
        """Deliver messages or notifications that the bus has lost, for the users and rooms of a part.

        `compare` finds and delivers them. While the store does not answer, call `compare` again and again. If the same
        comparison is already running, do not start a second one. Instead, repeat the running one when it ends.
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
        # Call this only after the restore. While a user's sessions are missing in the engine, other nodes do not send
        # the user's notifications to this node. So an earlier comparison could miss the newest ones.
        await self._parts.inboxes.resync(part, self._parts.sessions.incarnation)

    async def _resync(self, part: Part, users: Part) -> None:
        """Read the watched users in `users` and the rooms in `part` again."""
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
        # After a loss, all nodes run audits at the same time. The argument `wait` slows an audit down to
        # the pace of a restore, so that the audits do not overload the engine.
        registry, now = self._context.registry, self._context.timers.now

        def silent_ms(ref: SessionEpoch) -> int:
            return registry.silent_ms(ref.session, now())

        self.ended += await self._engine.audit(self._parts.sessions.holds, self._restorer.wait, part, silent_ms)

    async def _finds_ended(self, part: Part) -> bool:
        """Return whether the engine still has a session that has ended on this node.

        The engine may have lost the write of the session's end.
        """
        found = False

        def holds(ref: SessionEpoch) -> bool:
            nonlocal found
            found = found or not self._parts.sessions.holds(ref)
            return True  # so this audit ends no session

        await self._engine.audit(holds, self._restorer.wait, part)
        return found

    async def _audit_quietly(self) -> None:
        try:
            await self._audit(Part())
        except EngineUnavailable as error:
            log(log_events.WORK_LATER, work="comparing sessions", reason=error)
