"""Restoring of this node's sessions and their rooms in the engine, at a limited pace.

An entry is a session, or a room of a session; each is written by itself. The entries of a part are written in steps, so
that no turn of the event loop is long. A full batch of entries takes at least `PAUSE_S`, a smaller one its share. At
most `AHEAD` steps wait for the engine's answers, so a slow engine is not flooded.

An entry that fails is tried again alone, and does not delay the other entries.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from greendot.engine.messages import Part
from greendot.errors import EngineUnavailable, StoreUnavailable
from greendot.ids import Key
from greendot.node.context import NodeContext
from greendot.node.session import Session
from greendot.presence.model import ManualStatus
from greendot.presence.sessions import SessionService
from greendot.rooms.session_rooms import SessionRoom, SessionRooms
from greendot.telemetry import log_events
from greendot.telemetry.log import log

PAUSE_S = 0.1  # shortest time from the start of a full batch to the start of the next; a smaller batch has its share
STEP = 40  # entries written in one turn of the event loop: two milliseconds
AHEAD = 5  # steps written before the first of them is answered
OWED_S = 0.02  # shorter waits are added up, because timers are not precise enough for them
AGAIN_S = 2.0  # longest wait before another attempt
ATTEMPTS = 3  # after these, few failed entries no longer delay the recovery
FEW = 0.01  # largest share of the entries that counts as few

Entry = Session | SessionRoom
Failure = tuple[Entry, BaseException]


class Restorer:
    """Restorer of one node. Concurrent calls take turns, one batch at a time."""

    def __init__(self, sessions: SessionService, session_rooms: SessionRooms, context: NodeContext, batch: int) -> None:
        self.restored = 0  # sessions written to the engine again
        self._sessions = sessions
        self._session_rooms = session_rooms
        self._statuses = session_rooms.statuses
        self._context = context
        self._batch = batch
        self._turn = asyncio.Lock()
        self._owed_s = 0.0  # seconds that `wait` has not waited yet
        self._late: dict[Entry, None] = {}  # entries that failed, tried again in the background

    async def restore(self, part: Part, *, after_loss: bool = False) -> int:
        """Write the sessions of a part's users and the occupancy of its rooms; return the number of sessions.

        With `after_loss`, states from before the loss get new versions. A few entries that fail are left to the
        background. Raise EngineUnavailable if the part cannot be reached.
        """
        entries = await self._entries(part)
        few = 1 + int(len(entries) * FEW)
        failed, attempts = await self._write(entries, part, after_loss=after_loss), 1
        while failed:
            # The store does not answer, and the status of these users is unknown. They were not visible before, either.
            self._retry_later([entry for entry, error in failed if isinstance(error, StoreUnavailable)])
            again = [entry for entry, error in failed if not isinstance(error, StoreUnavailable)]
            if not again:
                break
            if attempts >= ATTEMPTS and len(again) <= few:
                self._retry_later(again)
                break
            await self._context.timers.sleep(AGAIN_S * random.uniform(0.5, 1))
            failed, attempts = await self._write(again, part, after_loss=after_loss), attempts + 1
        return sum(isinstance(entry, Session) for entry in entries)

    async def wait(self, writes: int) -> None:
        """Wait for the time of this number of writes, so that other work is not faster than a restore."""
        self._owed_s += PAUSE_S * writes / self._batch
        if self._owed_s >= OWED_S:
            owed_s, self._owed_s = self._owed_s, 0.0
            async with self._turn:
                await self._context.timers.sleep(owed_s)

    async def _entries(self, part: Part) -> list[Entry]:
        """Return the part's sessions, their rooms, and the rooms they left recently: the exits may be lost."""
        found: list[Entry] = []
        async for sessions in self._context.slices.cut(self._sessions.here()):
            for session in sessions:
                if part.covers(*session.key):
                    found.append(session)
                found += [(session, room) for room in session.rooms or () if part.covers(session.tenant, room)]
        async for exits in self._context.slices.cut(self._session_rooms.exited()):
            found += [(session, room) for session, room in exits if part.covers(session.tenant, room)]
        return found

    async def _write(self, entries: Sequence[Entry], part: Part | None, *, after_loss: bool) -> list[Failure]:
        """Write the current state of each entry; return those that failed, with the errors.

        Raise EngineUnavailable if `part` cannot be reached.
        """
        failed: list[Failure] = []
        for at in range(0, len(entries), self._batch):
            batch = entries[at : at + self._batch]
            async with self._turn:
                ends = self._context.timers.now() + PAUSE_S * len(batch) / self._batch
                await self._write_batch(batch, failed, after_loss=after_loss)
                if failed and part is not None and part.away() is not None:
                    raise EngineUnavailable("the engine went away while sessions were restored")
                if (left_s := ends - self._context.timers.now()) > 0:
                    await self._context.timers.sleep(left_s)
        self._log(failed)
        return failed

    async def _write_batch(self, batch: Sequence[Entry], failed: list[Failure], *, after_loss: bool) -> None:
        sessions = (entry for entry in batch if isinstance(entry, Session))
        stored = await self._statuses.read_ahead([session.key for session in sessions])
        room = asyncio.Semaphore(AHEAD)

        async def write(step: Sequence[Entry]) -> None:
            restores = (self._restore(entry, stored, after_loss=after_loss) for entry in step)
            results = await asyncio.gather(*restores, return_exceptions=True)
            failed.extend((entry, error) for entry, error in zip(step, results, strict=True) if error is not None)
            room.release()

        async with asyncio.TaskGroup() as steps:
            async for step in self._context.slices.cut(batch, STEP):
                await room.acquire()
                steps.create_task(write(step))
                await asyncio.sleep(0)  # the step begins in a turn of its own

    async def _restore(self, entry: Entry, stored: Callable[[Key], ManualStatus | None], *, after_loss: bool) -> None:
        if isinstance(entry, Session):
            await self._sessions.restore(entry, stored(entry.key), after_loss=after_loss)
            self.restored += 1
        else:
            await self._session_rooms.restore(entry)

    def _log(self, failed: Sequence[Failure]) -> None:
        for _, error in failed:
            if not isinstance(error, EngineUnavailable | StoreUnavailable):
                log(log_events.WORK_FAILED, error, work="restoring a session")
                return
        if failed:
            log(log_events.WORK_LATER, work=f"restoring {len(failed)} sessions and rooms", reason=failed[0][1])

    # --- in the background ---

    def _retry_later(self, entries: Sequence[Entry]) -> None:
        if entries and not self._late:
            self._context.timers.set(AGAIN_S, self._on_timer)
        self._late |= dict.fromkeys(entries)

    def _on_timer(self, _: None) -> None:
        self._context.tasks.spawn(self._write_late())

    async def _write_late(self) -> None:
        late, self._late = [*self._late], {}
        # Some of the entries may have been lost. For the others, no version is renewed a second time after a loss.
        self._retry_later([entry for entry, _ in await self._write(late, None, after_loss=True)])
