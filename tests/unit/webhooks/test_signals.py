"""Webhooks for signals: delivered from memory for a limited time, and dropped ones are counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from greendot.engine.port import Transition
from greendot.webhooks import signals
from greendot.webhooks.hook import Hook
from greendot.webhooks.signals import KEEP_MS, SignalQueue
from receiver import receiving

from .sites import POLL_S, Site, site, until


@asynccontextmanager
async def lane(s: Site, hook: Hook, batch_max: int = 100) -> AsyncIterator[SignalQueue]:
    made = SignalQueue(hook, s.clock, batch_max, POLL_S)
    made.start()
    try:
        yield made
    finally:
        await made.close(1.0)
        await hook.close()


def came(user: str) -> Transition:
    return Transition("user", "t1", user, True)


async def test_transitions_are_sent_to_the_app_in_order_and_in_batches() -> None:
    async with receiving() as app, site(t1=app) as s, lane(s, s.hook("t1"), batch_max=2) as made:
        made.offer(came("ann"))
        made.offer(Transition("room", "t1", "r1", True))
        made.offer(Transition("room", "t1", "r1", False))
        made.offer(Transition("user", "t1", "ann", False))
        made.offer(came("bob"))
        await until(lambda: len(app.events) == 5)
        assert [(event["type"], event["data"]) for event in app.events] == [
            ("user.online", {"user": "ann"}),
            ("room.occupied", {"room": "r1"}),
            ("room.vacated", {"room": "r1"}),
            ("user.offline", {"user": "ann"}),
            ("user.online", {"user": "bob"}),
        ]
        assert [len(request.events) for request in app.taken] == [2, 2, 1]
        app.verify()


async def test_an_app_that_is_away_for_a_minute_misses_nothing() -> None:
    async with receiving(lambda events: 503) as app, site(t1=app) as s, lane(s, s.hook("t1")) as made:
        made.offer(came("ann"))
        await until(lambda: len(app.requests) == 1)
        made.offer(came("bob"))
        await s.later(60)
        app.behave = lambda events: 200
        await s.later(60)
        await until(lambda: len(app.events) == 2)
        assert [event["data"]["user"] for event in app.events] == ["ann", "bob"]


async def test_events_not_accepted_for_minutes_are_dropped_and_counted() -> None:
    hook: Hook
    async with receiving(lambda events: 503) as app, site(t1=app) as s, lane(s, hook := s.hook("t1")) as made:
        made.offer(came("ann"))
        await until(lambda: len(app.requests) == 1)
        await s.later(KEEP_MS / 1000 + 60)
        app.behave = lambda events: 200
        made.offer(came("bob"))
        await s.later(60)
        await until(lambda: len(app.events) == 1)
        assert app.events[0]["data"] == {"user": "bob"}
        assert hook.counts.dropped == 1


async def test_what_waits_is_bounded_and_the_newest_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "MOST_WAITING", 10)
    hook: Hook
    async with receiving(lambda events: "drop") as app, site(t1=app) as s, lane(s, hook := s.hook("t1")) as made:
        for n in range(25):
            made.offer(came(f"u{n}"))
        await until(lambda: len(app.requests) >= 1)
        for n in range(25, 30):
            made.offer(came(f"u{n}"))
        app.behave = lambda events: 200
        await s.later(60)
        await until(lambda: len(app.events) >= 10)
        assert [event["data"]["user"] for event in app.events] == [f"u{n}" for n in range(20, 30)]
        assert hook.counts.dropped == 20


async def test_an_app_that_responds_410_receives_no_more_signals() -> None:
    hook: Hook
    async with receiving(lambda events: 410) as app, site(t1=app) as s, lane(s, hook := s.hook("t1")) as made:
        made.offer(came("ann"))
        await until(lambda: hook.stopped)
        made.offer(came("bob"))
        await s.later(60)
        assert len(app.requests) == 1
        async with s.lanes(hook):  # it stores the stop, which other nodes read
            await asyncio.sleep(10 * POLL_S)
        assert (await s.store.hook_states(["t1"]))[0].reason == "the app responded with 410"


async def test_what_waits_at_the_end_is_tried_once_more_and_does_not_hold_it_up() -> None:
    async with receiving() as app, site(t1=app) as s:
        async with lane(s, s.hook("t1")) as made:
            made.offer(came("ann"))
        assert len(app.events) == 1
        app.behave = lambda events: "hang"
        hook = s.hook("t1")
        async with asyncio.timeout(3):
            async with lane(s, hook) as made:
                made.offer(came("bob"))
