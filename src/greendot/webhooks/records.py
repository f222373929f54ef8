"""Delivery of events about records to apps: at least once, from the queues in the store.

Each node tries to claim the queues. The holder of a queue sends its events, oldest first, and removes events that the
app has accepted. If the holder is killed in between, its lease runs out and another node sends the events again under
the same ids.

A failed event waits, longer after each failure, while later events are sent. After two failed requests in a row the
hook rests: no events are sent until a pause is over. The pause doubles with each further failed request.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence

from msgspec import Struct

from greendot.clock import Clock
from greendot.errors import StoreUnavailable
from greendot.ids import new_message_id, storable
from greendot.protocol.webhooks import HookEvent
from greendot.store.webhooks import Failed, HookDepth, HookStore, Queued
from greendot.telemetry import log_events
from greendot.telemetry.log import log
from greendot.webhooks.hook import Hook, queued_event
from greendot.webhooks.model import ALONE_AFTER, Verdict, batches, pause_s

LEASE_S = 10.0
CLAIM_EVERY_S = 3.0
FINISH_S = 2.0  # time for requests under way at `close`
AWAY_S = 1.0  # between two attempts while the store is unavailable
MOST_REASON = 300  # characters
COUNT_S = 10.0  # seconds between two counts of the queues
MOST_COUNTED = 10_000  # events of a tenant


class DeliveryPace(Struct, frozen=True):
    """Settings of the delivery."""

    batch_max: int
    poll_s: float
    give_up_ms: int


class _Lane(Struct):
    """State of one queue."""

    hook: Hook
    failures: int = 0  # in a row
    rests_until: float = 0.0  # monotonic seconds
    task: asyncio.Task[None] | None = None


class RecordQueues:
    """Queues of all tenants, on one node."""

    def __init__(self, store: HookStore, hooks: Mapping[str, Hook], clock: Clock, pace: DeliveryPace) -> None:
        self._store = store
        self._lanes = {tenant: _Lane(hook) for tenant, hook in hooks.items()}
        self._clock = clock
        self._pace = pace
        self._holder = new_message_id()
        self._ending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._next_claim = 0.0
        self.held: list[str] = []
        self._counting: asyncio.Task[None] | None = None
        self._depths: list[HookDepth] = []  # last count of the queues that are held

    def items(self) -> dict[str, float]:
        """Return the metrics of the queues that this node holds."""
        depths, now = [depth for depth in self._depths if depth.tenant in self.held], self._clock.now_ms()
        oldest_at = min((depth.oldest_at for depth in depths if depth.oldest_at is not None), default=now)
        return {
            "webhooks_queue_waiting": sum(depth.waiting for depth in depths),
            "webhooks_queue_oldest_s": max(0, now - oldest_at) // 1000,
            "webhooks_dead_letters": sum(depth.dead for depth in depths),
        }

    def start(self) -> None:
        if self._lanes:
            loop = asyncio.get_running_loop()
            self._task, self._counting = loop.create_task(self._run()), loop.create_task(self._count())

    async def close(self) -> None:
        """Finish the requests under way and release the queues to other nodes."""
        self._ending.set()
        if self._task is None or self._counting is None:
            return
        self._counting.cancel()
        tasks = [self._task, self._counting, *(lane.task for lane in self._lanes.values() if lane.task is not None)]
        _, late = await asyncio.wait(tasks, timeout=FINISH_S)
        for task in late:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            await self._store.release_hooks(self._holder)
        except StoreUnavailable:
            pass  # the leases run out

    # --- which queues ---

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._ending.is_set():
            pause = self._pace.poll_s
            try:
                if loop.time() >= self._next_claim:
                    await self._claim()
                    self._next_claim = loop.time() + CLAIM_EVERY_S
                await self._start_lanes()
            except StoreUnavailable as error:
                log(log_events.WORK_LATER, work="sending webhooks", reason=error)
                self.held, self._next_claim, pause = [], 0.0, AWAY_S
            except Exception as error:
                log(log_events.WORK_FAILED, error, work="sending webhooks")
                self.held, self._next_claim, pause = [], 0.0, AWAY_S
            # A node without a queue waits until its next claim.
            await self._wait(pause if self.held else max(pause, self._next_claim - loop.time()))

    async def _count(self) -> None:
        """Count the queues in a task of its own: a slow or failed count must not delay leases or events."""
        while not self._ending.is_set():
            await self._wait(COUNT_S if self.held else CLAIM_EVERY_S)
            try:
                self._depths = await self._store.hook_depths(self.held, MOST_COUNTED) if self.held else []
            except StoreUnavailable as error:
                log(log_events.WORK_LATER, work="counting webhook queues", reason=error)
            except Exception as error:
                log(log_events.WORK_FAILED, error, work="counting webhook queues")

    async def _claim(self) -> None:
        """Record hooks stopped on this node, claim queues that no other node holds, and read which hooks stopped."""
        now = self._clock.now_ms()
        for lane in self._lanes.values():
            if lane.hook.gone is not None:
                await self._store.stop_hook(lane.hook.tenant, lane.hook.place, storable(lane.hook.gone), now)
                lane.hook.gone = None
        claims = await self._store.claim_hooks(self._holder, sorted(self._lanes), now, round(LEASE_S * 1000))
        for tenant, (held, stopped) in claims.items():
            hook = self._lanes[tenant].hook
            hook.stopped = hook.gone is not None or stopped == hook.place
            hook.counts.held = int(held)
        self.held = sorted(tenant for tenant, claim in claims.items() if claim.held)

    async def _start_lanes(self) -> None:
        loop = asyncio.get_running_loop()
        for lane in self._lanes.values():
            if lane.task is not None and lane.task.done():
                task, lane.task = lane.task, None
                task.result()
        idle = [
            tenant
            for tenant in self.held
            if (lane := self._lanes[tenant]).task is None
            and lane.rests_until <= self._clock.monotonic()
            and not lane.hook.stopped
        ]
        for tenant in self.held:
            if self._lanes[tenant].hook.stopped:
                await self._bury(tenant)
        for tenant in await self._store.waiting_hooks(idle, self._clock.now_ms()) if idle else ():
            self._lanes[tenant].task = loop.create_task(self._work(self._lanes[tenant]))

    async def _bury(self, tenant: str) -> None:
        """Mark new events of a stopped hook as dead: without that they would be kept for ever."""
        now, rows = self._clock.now_ms(), await self._take(tenant, again=False)
        if rows:
            await self._store.settle_hooks(
                tenant, [], [Failed(row.id, None, "the hook is stopped") for row in rows], now
            )

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._ending.wait()
        except TimeoutError:
            pass

    # --- one queue ---

    async def _work(self, lane: _Lane) -> None:
        """Send events until few are left, the hook rests or is stopped, or the queue is lost to another node."""
        tenant = lane.hook.tenant
        while not self._ending.is_set() and tenant in self.held and not lane.hook.stopped:
            if lane.rests_until > self._clock.monotonic():
                return
            # After a failure new events come first: an event that the app cannot accept must not hold up the rest.
            again = lane.failures == 0
            rows = await self._take(tenant, again=again) or await self._take(tenant, again=not again)
            if not rows:
                return
            for batch in self._batches(rows):
                if not await self._send(lane, batch):
                    break
            if len(rows) < self._pace.batch_max:
                return  # newer events are sent together after the next poll: one request costs as much as many events

    async def _take(self, tenant: str, *, again: bool) -> list[Queued]:
        return await self._store.take_hooks(tenant, self._clock.now_ms(), self._pace.batch_max, again=again)

    def _batches(self, rows: Sequence[Queued]) -> list[list[tuple[Queued, HookEvent | None]]]:
        """Return the batches of the rows; events that failed in batches too often are alone."""
        made = [(row, queued_event(row)) for row in rows]
        alone = [[one] for one in made if one[0].attempts >= ALONE_AFTER]
        sized = [(one, len(one[1].data) if one[1] else 0) for one in made if one[0].attempts < ALONE_AFTER]
        return [*batches(sized, self._pace.batch_max), *alone]

    async def _send(self, lane: _Lane, batch: Sequence[tuple[Queued, HookEvent | None]]) -> bool:
        """Send a batch and settle its events; return whether the app accepted it."""
        events = [event for _, event in batch if event is not None]
        found = await lane.hook.send(events, _traceparent(batch)) if events else Verdict("taken")
        rows, now, tenant = [row for row, _ in batch], self._clock.now_ms(), lane.hook.tenant
        if found.outcome == "taken":
            lane.failures = 0
            await self._store.settle_hooks(tenant, [row.id for row in rows], [], now)
            return True
        if found.outcome == "gone":
            self._next_claim = 0.0  # the next claim records the stop for other nodes
            return False
        lane.failures += 1
        # The first failure may be due to this batch; from the second on it is due to the app.
        rest_s = 0.0 if lane.failures == 1 else pause_s(lane.failures - 1, random.random())
        lane.rests_until = self._clock.monotonic() + max(found.wait_s, rest_s)
        chance = random.random()  # the same for all rows: events that failed together are retried together, in order
        failed = [self._failed(row, found, now, chance) for row in rows]
        lane.hook.counts.dead += sum(event.next_at is None for event in failed)
        await self._store.settle_hooks(tenant, [], failed, now)
        return False

    def _failed(self, row: Queued, found: Verdict, now: int, chance: float) -> Failed:
        pause = pause_s(row.attempts + 1, chance, found.wait_s)
        is_over = row.first_at is not None and now - row.first_at >= self._pace.give_up_ms
        if is_over:
            log(log_events.WEBHOOK_DEAD_LETTER, tenant=row.tenant, message=row.id, reason=found.reason)
        return Failed(row.id, None if is_over else now + round(pause * 1000), storable(found.reason[:MOST_REASON]))


def _traceparent(batch: Sequence[tuple[Queued, object]]) -> str | None:
    """Return the trace in which all records of the batch were written; None if they are from several."""
    records = (row.record or row.notification for row, _ in batch)
    found = {None if record is None else record.traceparent for record in records}
    return found.pop() if len(found) == 1 else None
