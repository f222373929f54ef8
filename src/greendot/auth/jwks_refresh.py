"""Refresh of the keys of `jwks_url`, on the timers of a node.

A module apart from `jwks`, so that programs that only read or make tokens import nothing of a node.
"""

from __future__ import annotations

import random

from greendot.auth.jwks import AGAIN_S, RemoteKeys
from greendot.node.context import NodeContext


class JwksRefresh:
    """Refresh timer of one node. Does nothing without remote keys."""

    def __init__(self, keys: RemoteKeys | None, context: NodeContext, every_s: float) -> None:
        self._keys = keys
        self._context = context
        self._every_s = every_s

    async def start(self) -> None:
        """Fetch the keys for the first time. If the fetch fails, the node starts without keys and retries."""
        if self._keys is not None:
            await self._keys.refresh()
            self._later(self._keys)

    async def close(self) -> None:
        if self._keys is not None:
            await self._keys.close()

    def _later(self, keys: RemoteKeys) -> None:
        # Random, so that nodes do not fetch at the same time.
        wait_s = AGAIN_S if keys.away else self._every_s
        self._context.timers.set(wait_s * random.uniform(0.9, 1.0), self._on_timer, keys)

    def _on_timer(self, keys: RemoteKeys) -> None:
        self._context.tasks.spawn(self._renew(keys))

    async def _renew(self, keys: RemoteKeys) -> None:
        try:
            await keys.refresh()
        finally:
            self._later(keys)
