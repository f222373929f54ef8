"""Event callbacks of a client: each handles one event at a time, in order, and its errors are only logged."""

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
    """Callback with its waiting events.

    A plain function runs at once. While an async function runs, its next events wait in a Buffer.
    """

    def __init__(self, callback: Callback, handled: Callable[[], None] | None = None) -> None:
        self._callback = callback
        self._handled = handled  # called when an async callback finishes a record
        self._waiting = Buffer()
        self._running = False
        self.holding: Mapping[str, int] = {}  # record that an async callback is running with; same form as `waiting`

    @property
    def waiting(self) -> Mapping[str, int]:
        """Return stream → the number before the oldest record that the callback was not called with."""
        return self._waiting.waiting

    def deliver(self, event: Event) -> Awaitable[None] | None:
        """Call the callback, or queue the event while the callback runs.

        Return the awaitable that the caller must run as a task; None if there is nothing to await.
        """
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
        """Call the callback with waiting events until a call returns an awaitable; return None if no event is left."""
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
    """Callbacks of one client by event type, and the tasks of async callbacks."""

    def __init__(self, handled: Callable[[], None] | None = None) -> None:
        self._handled = handled
        self._by_type: dict[str, list[Subscription]] = {}
        self._tasks: set[asyncio.Future[None]] = set()

    def add(self, kind: str, callback: Callback) -> Callable[[], None]:
        """Call `callback` with every event of `kind`; return a function that stops the calls."""
        subscription = Subscription(callback, self._handled)
        subscriptions = self._by_type.setdefault(kind, [])
        subscriptions.append(subscription)

        def undo() -> None:
            if subscription in subscriptions:
                subscriptions.remove(subscription)

        return undo

    def waiting(self) -> list[Mapping[str, int]]:
        """Return for each callback the records it was not called with, as `Subscription.waiting`."""
        return [subscription.waiting for subscriptions in self._by_type.values() for subscription in subscriptions]

    def holding(self) -> list[Mapping[str, int]]:
        """Return for each callback the record it is running with, as `Subscription.holding`."""
        return [subscription.holding for subscriptions in self._by_type.values() for subscription in subscriptions]

    def takes(self, *kinds: str) -> bool:
        """Return whether a callback is registered for one of `kinds`."""
        return any(self._by_type.get(kind) for kind in kinds)

    def deliver(self, event: Event) -> None:
        # Iterate over a copy: a callback may remove itself, or add another callback.
        for subscription in tuple(self._by_type.get(event.type, ())):
            rest = subscription.deliver(event)
            if rest is not None:
                task = asyncio.ensure_future(rest)
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def finish(self, timeout: float) -> None:
        """Wait `timeout` seconds for running callbacks, then cancel them. The calling callback is excluded."""
        running = self._tasks - {asyncio.current_task()}
        if running:
            _, slow = await asyncio.wait(running, timeout=timeout)
            for task in slow:
                task.cancel()
            if slow:
                await asyncio.wait(slow)
