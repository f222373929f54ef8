"""Held pushes of users who set a status: they are checked again at once, because `busy` may have ended.

The end of a status at its `until` needs nothing here: the gate holds a push until then.
"""

from __future__ import annotations

from collections.abc import Callable

from greendot.errors import StoreUnavailable
from greendot.ids import Key
from greendot.node.context import NodeContext
from greendot.store.push import PushStore
from greendot.telemetry import log_events
from greendot.telemetry.log import log


class HeldPushes:
    """Pushes that wait for the end of `busy`, on whichever node a worker decided about them.

    `pushes` returns whether a tenant pushes. `queued` wakes the worker of this process; other workers poll the queue.
    """

    def __init__(
        self, store: PushStore, context: NodeContext, pushes: Callable[[str], bool], queued: Callable[[], None]
    ) -> None:
        self._store = store
        self._context = context
        self._pushes = pushes
        self._queued = queued

    def status_set(self, key: Key) -> None:
        """Check the user's held pushes again. Call it when the engine has the new status."""
        if self._pushes(key[0]):
            self._context.tasks.spawn(self._recheck(key))

    async def _recheck(self, key: Key) -> None:
        try:
            if await self._store.recheck_pushes(*key, self._context.clock.now_ms()):
                self._queued()
        except StoreUnavailable as error:  # the gate checks the pushes again within a minute
            log(log_events.WORK_LATER, work="checking held pushes", reason=error)
