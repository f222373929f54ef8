"""Refresh of the keys of `jwks_url`, on the timers of a node.

Apart from `jwks`: programs that only read or make tokens load nothing of a node.
"""

from __future__ import annotations

import random

from greendot.auth.jwks import AGAIN_S, RemoteKeys
from greendot.node.context import NodeContext


class JwksRefresh:
    """One for each node. Without such keys it does nothing."""

    def __init__(self, keys: RemoteKeys | None, context: NodeContext, every_s: float) -> None:
        self._keys = keys
        self._context = context
        self._every_s = every_s

    async def start(self) -> None:
        """Fetch them for the first time. A node whose keys are not to be had starts without, and asks again."""
        if self._keys is not None:
            await self._keys.refresh()
            self._later(self._keys)

    async def close(self) -> None:
        if self._keys is not None:
            await self._keys.close()

    def _later(self, keys: RemoteKeys) -> None:
        # Not all nodes at once.
        wait_s = AGAIN_S if keys.away else self._every_s
        self._context.timers.set(wait_s * random.uniform(0.9, 1.0), self._on_timer, keys)

    def _on_timer(self, keys: RemoteKeys) -> None:
        self._context.tasks.spawn(self._renew(keys))

    async def _renew(self, keys: RemoteKeys) -> None:
        try:
            await keys.refresh()
        finally:
            self._later(keys)
