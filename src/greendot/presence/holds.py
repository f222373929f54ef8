"""Holds: after a loss, the shown states of a part's users are kept until all nodes have restored their sessions.

A hold takes effect at once, but a part may have hundreds of thousands of watched users. So a hold waits in a list
while it is written to the users in slices. `settle` writes the waiting holds to one user before its state is used.
"""

from __future__ import annotations

import asyncio
from collections import deque

from greendot.engine.messages import Part
from greendot.node.context import NodeContext
from greendot.node.subscriptions import Subscriptions
from greendot.presence.watched_user import WatchedUser


class WatchHolds:
    """Holds of the users watched on this node."""

    def __init__(self, context: NodeContext, watched: Subscriptions[WatchedUser]) -> None:
        self._context = context
        self._watched = watched
        self._waiting: deque[tuple[Part, float]] = deque()  # parts, and monotonic seconds; the latest hold last
        self._written: asyncio.Future[None] | None = None  # done when no hold waits

    def add(self, part: Part, seconds: float) -> None:
        """Hold the users of a part for `seconds`. A later call replaces the time."""
        self._waiting.append((part, self._context.timers.now() + seconds))
        if self._written is None:
            self._written = asyncio.get_running_loop().create_future()
            self._context.tasks.spawn(self._write(self._written))

    def settle(self, watched: WatchedUser) -> None:
        """Write the waiting holds to a user."""
        if self._waiting and watched.opening is None:
            for part, until in self._waiting:
                if part.covers(*watched.key):
                    watched.held, watched.held_until = True, until

    async def written(self) -> None:
        """Wait until all holds are written."""
        while self._written is not None:
            await asyncio.shield(self._written)

    async def _write(self, written: asyncio.Future[None]) -> None:
        try:
            while self._waiting:
                part, until = self._waiting[0]
                async for some in self._watched.steps(part):
                    for watched in some:
                        watched.held, watched.held_until = True, until
                self._waiting.popleft()
        finally:
            self._written = None
            written.set_result(None)
