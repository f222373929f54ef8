"""Queue of a Pusher app's webhook events."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from greendot.compat.pusher import webhooks
from greendot.compat.pusher.apps import PusherApp, PusherApps
from greendot.compat.pusher.webhooks import PusherWebhooks
from greendot.testing.clock import ManualClock
from greendot.transport.http_client import HttpResponse

NAMES = frozenset({"client_event", "channel_occupied"})
NEW = PusherApp("default", "1", "k", ("s",), webhook_url="http://new/", webhook_events=NAMES)
OLD = PusherApp("default", "1", "k", ("s",), webhook_url="http://old/", webhook_events=NAMES)


class FakeCaller:
    """App that keeps each request, and answers it with the next status once it is released."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[list[Any]] = []
        self.statuses: list[int] = []
        self.asked = asyncio.Event()
        self.released = asyncio.Event()

    async def post(self, body: bytes, headers: dict[str, str]) -> HttpResponse:
        self.requests.append([event["n"] for event in json.loads(body)["events"]])
        self.asked.set()
        await self.released.wait()
        return HttpResponse(self.statuses.pop(0) if self.statuses else 200, {}, b"")

    async def close(self) -> None: ...


class Hooks:
    """Webhooks of one app, with its callers by URL."""

    def __init__(self) -> None:
        self.callers: dict[str, FakeCaller] = {}
        self.apps = PusherApps([NEW])
        self.webhooks = PusherWebhooks(self.apps, self._make, ManualClock())  # type: ignore[arg-type]

    def _make(self, url: str) -> FakeCaller:
        return self.callers.setdefault(url, FakeCaller(url))

    def report(self, number: int, app: PusherApp = NEW, size: int = 0) -> None:
        self.webhooks.report(app, {"name": "client_event", "n": number, "data": "x" * size})


async def test_events_that_come_during_a_request_are_sent_even_if_the_queue_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(webhooks, "MOST_WAITING", 3)
    hooks = Hooks()
    for number in range(3):
        hooks.report(number)
    caller = hooks.callers[NEW.webhook_url]
    await caller.asked.wait()
    for number in range(3, 6):
        hooks.report(number)
    caller.released.set()
    await hooks.webhooks.close()
    assert caller.requests == [[0, 1, 2], [3, 4, 5]]


async def test_a_batch_that_the_app_refuses_is_sent_again_first() -> None:
    hooks = Hooks()
    hooks.report(0)
    caller = hooks.callers[NEW.webhook_url]
    caller.statuses = [500]
    await caller.asked.wait()
    hooks.report(1)
    caller.released.set()
    async with asyncio.timeout(10):
        while len(caller.requests) < 2:  # noqa: ASYNC110  (has no event)
            await asyncio.sleep(0.01)
    await hooks.webhooks.close()
    assert caller.requests == [[0], [0, 1]]


async def test_waiting_events_have_a_limit_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "MOST_BYTES", 10_000)
    hooks = Hooks()
    for number in range(100):
        hooks.report(number, size=1_000)
    caller = hooks.callers[NEW.webhook_url]
    caller.released.set()
    await hooks.webhooks.close()
    assert caller.requests == [[*range(91, 100)]]


async def test_an_event_goes_to_the_url_of_the_current_settings() -> None:
    hooks = Hooks()
    hooks.report(0)
    hooks.report(1, OLD)  # of a socket that has sent nothing since the URL was changed
    for caller in hooks.callers.values():
        caller.released.set()
    await hooks.webhooks.close()
    assert {url: caller.requests for url, caller in hooks.callers.items()} == {NEW.webhook_url: [[0, 1]]}
