"""Notifications and revocations that have expired or were kept long enough are removed, by one node at a time."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

from greendot.engine.base import Engine, InboxChanged, Topic
from greendot.errors import EngineUnavailable, StoreUnavailable
from greendot.gateway.shared import Shared
from greendot.metrics import Metrics
from greendot.store.base import Store

EVERY_S = 600.0
AT_ONCE = 500  # removed in one commit
_log = logging.getLogger("greendot.inbox")


class Pruning:
    """One for each node; that of the live node whose name comes first does it."""

    def __init__(self, engine: Engine, store: Store, shared: Shared, metrics: Metrics, keep_ms: int) -> None:
        self._engine = engine
        self._store = store
        self._shared = shared
        self._metrics = metrics
        self._keep_ms = keep_ms
        self._name: Callable[[], str] = str

    def start(self, name: Callable[[], str]) -> None:
        """From now on, as the node of this name."""
        self._name = name
        self._later()

    def _later(self) -> None:
        self._shared.timers.set(EVERY_S * random.uniform(0.9, 1.0), self._due)

    def _due(self, _: None) -> None:
        self._later()
        self._shared.tasks.spawn(self._prune_if_first())

    async def _prune_if_first(self) -> None:
        try:
            live = [info.node for info in await self._engine.nodes() if info.state == "live"]
            if self._name() == min(live, default=None):
                await self.prune()
                while await self._store.remove_revocations(self._shared.clock.now_ms(), limit=AT_ONCE) == AT_ONCE:
                    pass
        except (EngineUnavailable, StoreUnavailable) as error:
            _log.info("what is old is removed later: %s", error)

    async def prune(self) -> None:
        """Remove all there is to remove, little by little. Devices are told that there is less to read."""
        while True:
            changed = await self._store.prune(self._shared.clock.now_ms(), keep_ms=self._keep_ms, limit=AT_ONCE)
            if not changed:
                return
            self._metrics.inbox_pruned_total += len(changed)
            for tenant, user in changed:
                self._engine.publish(Topic("user", tenant, user), InboxChanged())
