"""Job that removes the data of deleted rooms: `delete-rooms`."""

from __future__ import annotations

import asyncio

from greendot.jobs.cleanup import AT_ONCE, PAUSE_S
from greendot.jobs.job import RunningJob
from greendot.store.moderation import DELETE_ROOMS, ModerationStore

WAIT_S = 1.0  # between two looks, while statements from before a deletion may still write


class DeleteRooms:
    """Job that removes the rows of deleted rooms in small commits. A deletion makes the job due at once.

    A deleted room is in the store until all its rows are removed. So a later run, or another process, continues.
    """

    name = DELETE_ROOMS

    def __init__(self, store: ModerationStore) -> None:
        self._store = store

    async def work(self, run: RunningJob) -> str:
        while True:
            purged = await self._store.purge_rooms(run.now_ms(), AT_ONCE)
            await run.step(purged.rows)
            if purged.is_over:
                return f"{run.done} rows of deleted rooms removed"
            await asyncio.sleep(PAUSE_S if purged.rows else WAIT_S)
