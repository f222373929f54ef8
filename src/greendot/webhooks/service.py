"""Service for the webhooks of a node."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from greendot.clock import Clock
from greendot.engine.port import Transition
from greendot.protocol.webhooks import SIGNALS
from greendot.store.webhooks import HookStore
from greendot.webhooks.hook import Hook, HookCounts
from greendot.webhooks.records import FINISH_S, DeliveryPace, RecordQueues
from greendot.webhooks.signals import SignalQueue


class Webhooks:
    """Webhooks of all tenants, from `start` to `close`. A tenant's events go to its own hook, if it has one."""

    def __init__(self, hooks: Mapping[str, Hook], store: HookStore, clock: Clock, pace: DeliveryPace) -> None:
        self._hooks = hooks
        self._signals = {
            tenant: SignalQueue(hook, clock, pace.batch_max, pace.poll_s)
            for tenant, hook in hooks.items()
            if not hook.wanted.isdisjoint(SIGNALS)
        }
        self._records = RecordQueues(store, hooks, clock, pace)

    def start(self) -> None:
        for lane in self._signals.values():
            lane.start()
        self._records.start()

    async def close(self) -> None:
        await asyncio.gather(self._records.close(), *(lane.close(FINISH_S) for lane in self._signals.values()))
        for hook in self._hooks.values():
            await hook.close()

    def turned(self, turn: Transition) -> None:
        """Queue a transition of a user or room. The engine calls this on the one node that reports the transition."""
        lane = self._signals.get(turn.tenant)
        if lane is not None:
            lane.offer(turn)

    def items(self) -> dict[str, float]:
        """Return the metrics of all hooks and queues."""
        counts = [hook.counts.items() for hook in self._hooks.values()]
        return {name: sum(each[name] for each in counts) for name in HookCounts().items()} | self._records.items()
