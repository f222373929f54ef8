"""Receipts: the times at which notifications were first delivered to a device. Receipts are written in batches."""

from __future__ import annotations

from collections.abc import Iterable

from greendot.errors import StoreUnavailable
from greendot.ids import Key
from greendot.node.context import NodeContext
from greendot.node.timer_model import Timer
from greendot.store.port import Store
from greendot.telemetry import log_events
from greendot.telemetry.log import log

EVERY_S = 1.0
AT_ONCE = 1_000  # receipts in one commit
MOST = 100_000  # receipts queued while the store is away; further ones are dropped


class Receipts:
    """Queue of receipts to be written."""

    def __init__(self, store: Store, context: NodeContext) -> None:
        self._store = store
        self._context = context
        self._waiting: list[tuple[Key, int]] = []
        self._timer: Timer | None = None

    def add(self, key: Key, seqs: Iterable[int]) -> None:
        if len(self._waiting) < MOST:
            self._waiting += [(key, seq) for seq in seqs]
            self._later()

    def _later(self) -> None:
        if self._timer is None and self._waiting:
            self._timer = self._context.timers.set_next(EVERY_S, self._on_timer)

    def _on_timer(self, _: None) -> None:
        self._timer = None
        self._context.tasks.spawn(self.flush())

    async def flush(self) -> None:
        """Write the queued receipts. Receipts that cannot be written stay queued."""
        waiting, self._waiting = self._waiting, []
        at = self._context.clock.now_ms()
        while waiting:
            seqs: dict[Key, list[int]] = {}
            for key, seq in waiting[:AT_ONCE]:
                seqs.setdefault(key, []).append(seq)
            try:
                await self._store.delivered(seqs, "live", at)
            except StoreUnavailable as error:
                log(log_events.WORK_LATER, work="storing receipts", reason=error)
                self._waiting = waiting + self._waiting
                self._later()
                return
            del waiting[:AT_ONCE]
