"""Delivery of presence and occupancy signals to an app: from memory, retried for minutes, without a guarantee.

Signals never touch the store. Events that the app does not accept in time are dropped and counted; the app can read the
current presence over HTTP.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque

from greendot.clock import Clock
from greendot.engine.port import Transition
from greendot.ids import new_message_id
from greendot.protocol.webhooks import HookEvent
from greendot.webhooks.hook import Hook, turn_event, turn_type
from greendot.webhooks.model import batches, pause_s

MOST_WAITING = 10_000  # events; above it the oldest are dropped
KEEP_MS = 300_000  # older events are dropped
LONGEST_PAUSE_S = 30.0


class SignalQueue:
    """Queue of one hook's signals on one node, sent in order. While the app is unreachable, old events are dropped."""

    def __init__(self, hook: Hook, clock: Clock, batch_max: int, batch_wait_s: float) -> None:
        self._hook = hook
        self._clock = clock
        self._batch_max = batch_max
        self._batch_wait_s = batch_wait_s
        self._waiting: deque[HookEvent] = deque()
        self._wake = asyncio.Event()
        self._ending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def offer(self, turn: Transition) -> None:
        """Queue the transition if the hook wants it. Never blocks; a full queue drops its oldest event."""
        if turn_type(turn) not in self._hook.wanted or self._hook.stopped:
            return
        if len(self._waiting) >= MOST_WAITING:
            self._waiting.popleft()
            self._hook.counts.dropped += 1
        self._waiting.append(turn_event(turn, new_message_id(), self._clock.now_ms()))
        self._wake.set()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self, within_s: float) -> None:
        """Send the waiting events once more, within `within_s`; drop and count the rest."""
        self._ending.set()
        self._wake.set()
        if self._task is not None:
            _, late = await asyncio.wait([self._task], timeout=within_s)
            for task in late:
                task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._hook.counts.dropped += len(self._waiting)
        self._waiting.clear()

    async def _run(self) -> None:
        failures = 0
        while True:
            await self._wake.wait()
            await self._pause(self._batch_wait_s)
            self._wake.clear()
            while batch := self._next():
                found = await self._hook.send(batch)
                if found.outcome == "failed":
                    failures += 1
                    self._waiting.extendleft(reversed(batch))
                    self._trim()
                    if self._ending.is_set():
                        return
                    await self._rest(max(found.wait_s, min(LONGEST_PAUSE_S, pause_s(failures, random.random()))))
                else:
                    failures = 0
            if self._ending.is_set():
                return

    def _next(self) -> list[HookEvent]:
        """Take the events of the next request from the queue; drop events that are too old."""
        now = self._clock.now_ms()
        while self._waiting and (self._hook.stopped or self._waiting[0].at < now - KEEP_MS):
            self._waiting.popleft()
            self._hook.counts.dropped += 1
        sized = ((event, len(event.data)) for event in self._waiting)
        batch = next(batches(sized, self._batch_max), [])
        for _ in batch:
            self._waiting.popleft()
        return batch

    def _trim(self) -> None:
        while len(self._waiting) > MOST_WAITING:
            self._waiting.popleft()
            self._hook.counts.dropped += 1

    async def _rest(self, seconds: float) -> None:
        """Wait for `seconds` by the clock, or until `close`."""
        end = self._clock.monotonic() + seconds
        while (left := end - self._clock.monotonic()) > 0 and not self._ending.is_set():
            await self._pause(min(left, self._batch_wait_s))

    async def _pause(self, seconds: float) -> None:
        """Wait for `seconds`, or until `close`."""
        try:
            async with asyncio.timeout(seconds):
                await self._ending.wait()
        except TimeoutError:
            pass
