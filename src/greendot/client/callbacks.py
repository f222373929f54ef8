"""Functions to be called with events: one at a time each, in order, and never fatal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any

from greendot.client.errors import Overrun
from greendot.client.records import held
from greendot.client.stream import Buffer
from greendot.protocol.events import Event

Callback = Callable[[Any], Awaitable[object] | object]

log = logging.getLogger("greendot.client")


class Subscription:
    """One callback. A plain function runs at once; while an async one runs, its next events wait in a Buffer."""

    def __init__(self, callback: Callback, handled: Callable[[], None] | None = None) -> None:
        self._callback = callback
        self._handled = handled  # called when an async one is done with a record
        self._waiting = Buffer()
        self._running = False
        self.holding: Mapping[str, int] = {}  # the record an async one is called with, as in `waiting`

    @property
    def waiting(self) -> Mapping[str, int]:
        """What the callback has not been called with: stream → the number before the oldest record."""
        return self._waiting.waiting

    def deliver(self, event: Event) -> Awaitable[None] | None:
        """Call the callback, or put the event in its line; what is left to be run by the caller as a task."""
        if self._running:
            self._waiting.put(event)
            return None
        result = self._call(event)
        if result is None:
            return None
        self._running = True
        return self._run(result)

    def _call(self, event: Event) -> Awaitable[object] | None:
        try:
            result = self._callback(event)
        except Exception:
            log.exception("a callback for %s failed", event.type)
            return None
        if not isawaitable(result):
            return None
        self.holding = held(event)
        return result

    async def _run(self, first: Awaitable[object]) -> None:
        result: Awaitable[object] | None = first
        try:
            while result is not None:
                try:
                    await result
                except Exception:
                    log.exception("an async callback failed")
                if self.holding:
                    self.holding = {}
                    if self._handled is not None:
                        self._handled()
                result = self._next()
        finally:
            self._running = False

    def _next(self) -> Awaitable[object] | None:
        """Call the callback with what waits, until it has something to await or nothing waits."""
        while True:
            try:
                event = self._waiting.take()
            except Overrun as overrun:
                log.error("an async callback is too slow: %s", overrun)
                continue
            if event is None:
                return None
            result = self._call(event)
            if result is not None:
                return result


class Callbacks:
    """The callbacks of one client, by the type of event, and the tasks of those that are async."""

    def __init__(self, handled: Callable[[], None] | None = None) -> None:
        self._handled = handled
        self._by_type: dict[str, list[Subscription]] = {}
        self._tasks: set[asyncio.Future[None]] = set()

    def add(self, kind: str, callback: Callback) -> Callable[[], None]:
        """Call `callback` with every event of `kind`, until the function returned is called."""
        subscription = Subscription(callback, self._handled)
        subscriptions = self._by_type.setdefault(kind, [])
        subscriptions.append(subscription)

        def undo() -> None:
            if subscription in subscriptions:
                subscriptions.remove(subscription)

        return undo

    def waiting(self) -> list[Mapping[str, int]]:
        """Of each callback, what it has not been called with."""
        return [subscription.waiting for subscriptions in self._by_type.values() for subscription in subscriptions]

    def holding(self) -> list[Mapping[str, int]]:
        """Of each callback that is running, what it was called with."""
        return [subscription.holding for subscriptions in self._by_type.values() for subscription in subscriptions]

    def takes(self, *kinds: str) -> bool:
        """Whether something is called with events of one of these kinds."""
        return any(self._by_type.get(kind) for kind in kinds)

    def deliver(self, event: Event) -> None:
        # A copy: a callback may undo itself, or add another.
        for subscription in tuple(self._by_type.get(event.type, ())):
            rest = subscription.deliver(event)
            if rest is not None:
                task = asyncio.ensure_future(rest)
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def finish(self, timeout: float) -> None:
        """Let running callbacks end for `timeout` seconds, then cancel them. Not the one that calls this."""
        running = self._tasks - {asyncio.current_task()}
        if running:
            _, slow = await asyncio.wait(running, timeout=timeout)
            for task in slow:
                task.cancel()
            if slow:
                await asyncio.wait(slow)
