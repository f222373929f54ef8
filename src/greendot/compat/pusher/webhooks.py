"""Webhooks of Pusher apps: signed, in order, retried for five minutes from memory.

Libraries of Pusher refuse a webhook whose time is more than five minutes old. So each attempt has a new time and
signature, and older events are dropped.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from greendot.clock import Clock
from greendot.compat.pusher.apps import PusherApp, PusherApps
from greendot.compat.pusher.signature_model import sign
from greendot.telemetry import log_events
from greendot.telemetry.log import log
from greendot.transport.http_client import Caller, NotCalled
from greendot.webhooks.model import pause_s, verdict

MOST_WAITING, MOST_BYTES = 10_000, 8 * 1024 * 1024  # events of an app; above it the oldest are dropped
MOST_BATCH = 50  # events in one request
KEEP_MS = 300_000
WAIT_S = 0.1  # time in which events are collected for one request
LONGEST_PAUSE_S = 30.0
FINISH_S = 2.0  # time for requests under way at `close`

MakeCaller = Callable[[str], Caller]  # by URL


class Waiting(NamedTuple):
    """Event that waits to be sent."""

    at: int  # milliseconds UTC
    event: bytes  # as JSON


class PusherHook:
    """Queue of one app's events."""

    def __init__(self, tenant: str, url: str, apps: PusherApps, caller: Caller, clock: Clock) -> None:
        self.url = url
        self._tenant = tenant
        self._apps = apps
        self._caller = caller
        self._clock = clock
        self._waiting: deque[Waiting] = deque()
        self._bytes = 0  # of the waiting events
        self._wake = asyncio.Event()
        self._ending = False
        self._trouble = ""
        self.dropped = self.sent = 0
        self._task = asyncio.get_running_loop().create_task(self._run())

    def offer(self, event: dict[str, Any]) -> None:
        found = Waiting(self._clock.now_ms(), msgspec.json.encode(event))
        self._waiting.append(found)
        self._bytes += len(found.event)
        self._drop_oldest()
        self._wake.set()

    def _drop_oldest(self) -> None:
        while len(self._waiting) > MOST_WAITING or (self._bytes > MOST_BYTES and self._waiting):
            self._take()
            self.dropped += 1

    def _take(self) -> Waiting:
        found = self._waiting.popleft()
        self._bytes -= len(found.event)
        return found

    def _put_back(self, batch: list[Waiting]) -> None:
        self._waiting.extendleft(reversed(batch))
        self._bytes += sum(len(one.event) for one in batch)
        self._drop_oldest()

    async def close(self) -> None:
        """Send the waiting events once more; drop the rest."""
        self._ending = True
        self._wake.set()
        _, late = await asyncio.wait([self._task], timeout=FINISH_S)
        for task in late:
            task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._caller.close()

    async def _run(self) -> None:
        failures = 0
        while not (self._ending and not self._waiting):
            await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(0 if self._ending else WAIT_S)
            while batch := self._next():
                wait_s = await self._attempt([Raw(one.event) for one in batch])
                if wait_s is None:
                    failures = 0
                    continue
                self._put_back(batch)
                if self._ending:
                    return
                failures += 1
                await asyncio.sleep(max(wait_s, min(LONGEST_PAUSE_S, pause_s(failures, random.random()))))

    def _next(self) -> list[Waiting]:
        """Take the events of the next request out of the queue. Drop events that are too old."""
        while self._waiting and self._waiting[0].at < self._clock.now_ms() - KEEP_MS:
            self._take()
            self.dropped += 1
        return [self._take() for _ in range(min(MOST_BATCH, len(self._waiting)))]

    async def _attempt(self, events: list[Raw]) -> float | None:
        """Send a request; return None if the app took it, else the shortest time until the next attempt."""
        app = self._apps.of_tenant(self._tenant)
        if app is None:
            return None  # the app was removed
        body = msgspec.json.encode({"time_ms": self._clock.now_ms(), "events": events})
        try:
            answer = await self._caller.post(
                body, {"X-Pusher-Key": app.key, "X-Pusher-Signature": sign(app.secrets[0], body)}
            )
            found = verdict(answer.status, answer.headers.get("retry-after"))
            reason, wait_s = found.reason, found.wait_s
        except NotCalled as error:
            reason, wait_s = str(error), 0.0
        if reason and reason != self._trouble:
            log(log_events.WEBHOOK_FAILED, tenant=self._tenant, reason=reason)
        self._trouble = reason
        if reason:
            return wait_s
        self.sent += len(events)
        return None


class PusherWebhooks:
    """Webhooks of all apps. A hook is made when its app has the first event."""

    def __init__(self, apps: PusherApps, make_caller: MakeCaller, clock: Clock) -> None:
        self._apps = apps
        self._make_caller = make_caller
        self._clock = clock
        self._hooks: dict[str, PusherHook] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def report(self, app: PusherApp, event: dict[str, Any]) -> None:
        """Queue an event if the app has a webhook. The caller's app may be older than the settings."""
        now = self._apps.of_tenant(app.tenant)
        if now is None or event["name"] not in now.webhook_events:
            return
        app = now
        hook = self._hooks.get(app.tenant)
        if hook is not None and hook.url != app.webhook_url:  # changed while the server runs
            task = asyncio.get_running_loop().create_task(self._hooks.pop(app.tenant).close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
            hook = None
        if hook is None and app.webhook_url:
            hook = PusherHook(app.tenant, app.webhook_url, self._apps, self._make_caller(app.webhook_url), self._clock)
            self._hooks[app.tenant] = hook
        if hook is not None:
            hook.offer(event)

    async def close(self) -> None:
        await asyncio.gather(*(hook.close() for hook in self._hooks.values()), *self._closing)
        self._hooks.clear()
