"""Webhooks for records: delivered at least once, and only to the tenant's own app."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import pytest

from greendot.errors import StoreUnavailable
from greendot.store.sqlite import SqliteStore
from greendot.store.webhooks import Claim, HookDepth
from greendot.webhooks import records
from greendot.webhooks.model import ALONE_AFTER
from greendot.webhooks.records import LEASE_S
from receiver import SECRET, Verdict, receiving

from .sites import GIVE_UP_S, site, until, until_so


async def test_events_are_sent_to_the_app_in_order_in_batches_and_signed() -> None:
    async with receiving() as app, site(t1=app) as s:
        await s.say(25)
        async with s.lanes(s.hook("t1"), batch_max=10):
            await until(lambda: len(app.events) == 25)
        assert s.numbers() == [*range(1, 26)]
        assert [len(request.events) for request in app.taken] == [10, 10, 5]
        app.verify()
        assert {event["tenant"] for event in app.events} == {"t1"}
        assert len({event["id"] for event in app.events}) == 25
        assert app.events[0] == {
            "id": app.events[0]["id"],
            "type": "room.message",
            "tenant": "t1",
            "at": s.clock.now_ms(),
            "data": {
                "room": "r1",
                "seq": 1,
                "user": "ann",
                "name": "Ann",
                "body": {"n": 1},
                "at": s.clock.now_ms(),
                "id": app.events[0]["data"]["id"],
                "ref": None,
                "op": None,
            },
        }
        assert await s.store.waiting_hooks(["t1"], s.clock.now_ms()) == []


async def test_new_and_updated_notifications_are_sent_to_the_webhook() -> None:
    async with receiving() as app, site(t1=app) as s:
        await s.notify()
        await s.store.mark("t1", "ann", "ack", through=1, at=7)
        async with s.lanes(s.hook("t1")):
            await until(lambda: len(app.events) == 2)
        created, updated = (event["data"] for event in app.events)
        assert (created["user"], created["seq"], created["kind"], created["body"]) == ("ann", 1, "news", "hi")
        assert updated == {"user": "ann", "state": "acked", "ids": [created["id"]]}


async def test_each_tenant_receives_its_own_events_and_one_without_a_webhook_receives_none() -> None:
    async with receiving() as one, receiving() as two, site(t1=one, t2=two) as s:
        for _ in range(5):
            await s.say(1, "t1")
            await s.say(1, "t2")
        await s.store.put_room("t3", "r1", open=True)
        await s.say(1, "t3")
        async with s.lanes(s.hook("t1"), s.hook("t2")):
            await until(lambda: len(one.events) == len(two.events) == 5)
        assert {event["tenant"] for event in one.events} == {"t1"}
        assert {event["tenant"] for event in two.events} == {"t2"}


@pytest.mark.parametrize("failing", [500, 503, 404, 400, 301, "drop", b"nonsense\r\n\r\n"])
async def test_what_fails_is_tried_again_with_the_same_ids(failing: Verdict) -> None:
    async with receiving(lambda events: failing) as app, site(t1=app) as s:
        await s.say(3)
        async with s.lanes(s.hook("t1")):
            await until(lambda: len(app.requests) >= 1)
            await s.later(10)
            app.behave = lambda events: 200
            await s.later(30)
            await until(lambda: len(app.events) == 3)
        tried = [event["id"] for request in app.requests[:1] for event in request.events]
        assert sorted(tried) == sorted(event["id"] for event in app.events)
        assert sorted(s.numbers()) == [1, 2, 3]
        deliveries = [request.headers["greendot-delivery"] for request in app.requests]
        assert len({*deliveries}) == len(deliveries), "each attempt must have a delivery id of its own"


async def test_pauses_grow_and_an_app_that_is_away_for_hours_is_not_hammered() -> None:
    async with receiving(lambda events: 500) as app, site(t1=app) as s:
        await s.say(5)
        async with s.lanes(s.hook("t1")):
            await until(lambda: len(app.requests) >= 1)
            await s.later(3000, steps=300)
            assert 8 <= len(app.requests) <= 30
            app.behave = lambda events: 200
            await s.later(1800)
            await until(lambda: len(app.events) == 5)


async def test_retry_after_is_honoured() -> None:
    busy = b"HTTP/1.1 429 X\r\nRetry-After: 600\r\nContent-Length: 0\r\n\r\n"
    async with receiving(lambda events: busy) as app, site(t1=app) as s:
        await s.say()
        async with s.lanes(s.hook("t1")):
            await until(lambda: len(app.requests) == 1)
            await s.say()
            await s.later(590)
            assert len(app.requests) == 1
            app.behave = lambda events: 200
            await s.later(20)
            await until(lambda: len(app.events) == 2)


async def test_an_event_the_app_cannot_take_does_not_hold_up_the_others_and_dies_alone() -> None:
    def poison(events: list[dict[str, Any]]) -> int:
        return 500 if any(event["data"]["body"] == {"n": 3} for event in events) else 200

    async with receiving(poison) as app, site(t1=app) as s:
        await s.say(5)
        async with s.lanes(s.hook("t1")) as lanes:
            await s.later(60, steps=60)
            await until(lambda: sorted(s.numbers()) == [1, 2, 4, 5])
            await s.say(5)
            await s.later(5)
            await until(lambda: len(s.numbers()) == 9)
            await s.later(GIVE_UP_S + 1800, steps=400)

            async def is_dead() -> bool:
                return bool(await s.store.dead_hooks("t1", 9))

            await until_so(is_dead)
            (dead,) = await s.store.dead_hooks("t1", 9)
            assert (dead.seq, dead.reason) == (3, "the app responded with 500")
            assert dead.attempts > ALONE_AFTER
            assert await s.store.waiting_hooks(["t1"], s.clock.now_ms() * 2) == []
            app.behave = lambda events: 200
            assert await s.store.replay_hooks("t1", [dead.id]) == [dead.id]
            await until(lambda: 3 in s.numbers())
            assert lanes.held == ["t1"]
        ids = [event["id"] for event in app.events]
        assert len({*ids}) == len(ids) == 10


async def test_an_app_that_responds_410_is_not_called_until_a_replay(caplog: pytest.LogCaptureFixture) -> None:
    async with receiving(lambda events: 410) as app, site(t1=app) as s:
        await s.say()
        async with s.lanes(s.hook("t1")):

            async def is_stopped() -> bool:
                return (await s.store.hook_states(["t1"]))[0].stopped_at is not None

            await until_so(is_stopped)
            await s.say(3)

            async def are_dead() -> bool:
                return len(await s.store.dead_hooks("t1", 9)) == 4

            await until_so(are_dead)
            assert len(app.requests) == 1
            assert "stopped: the app responded with 410; to resume" in caplog.text
        app.behave = lambda events: 200
        async with s.lanes(s.hook("t1")):  # another process reads that the webhook is stopped
            await s.later(60)
            assert len(app.requests) == 1
        await s.store.replay_hooks("t1", None)
        async with s.lanes(s.hook("t1")):
            await until(lambda: sorted(s.numbers()) == [1, 2, 3, 4])


async def test_a_stop_is_for_one_url() -> None:
    async with receiving(lambda events: 410) as app, receiving() as other, site(t1=app) as s:
        await s.say()
        async with s.lanes(s.hook("t1")):

            async def is_dead() -> bool:  # the stopped webhook has discarded the event
                return len(await s.store.dead_hooks("t1", 9)) == 1

            await until_so(is_dead)
        s.apps["t1"] = other
        await s.say()
        async with s.lanes(s.hook("t1")):
            await until(lambda: s.numbers() == [2])
        assert len(app.requests) == 1


async def test_while_a_secret_is_changed_the_app_may_use_either() -> None:
    async with receiving() as app, site(t1=app) as s:
        await s.say()
        async with s.lanes(s.hook("t1", secrets=("n" * 40, SECRET))):
            await until(lambda: len(app.events) == 1)
        app.verify(SECRET)
        app.verify("n" * 40)


async def test_of_two_processes_one_sends_and_the_other_goes_on_when_it_is_gone() -> None:
    async with receiving() as app, site(t1=app) as s:
        async with s.lanes(s.hook("t1")) as first, s.lanes(s.hook("t1")) as second:
            await until(lambda: bool(first.held or second.held))
            await s.say(10)
            await until(lambda: len(app.events) == 10)
            assert sorted([first.held, second.held]) == [[], ["t1"]]
        assert s.numbers() == [*range(1, 11)]
        async with s.lanes(s.hook("t1")):  # the first two released their leases, so this one need not wait
            await s.say()
            await until(lambda: len(app.events) == 11)


async def test_who_was_killed_is_followed_by_another_when_the_lease_ends() -> None:
    async with receiving() as app, site(t1=app) as s:
        await s.store.claim_hooks("killed", ["t1"], s.clock.now_ms(), round(LEASE_S * 1000))
        await s.say(3)
        async with s.lanes(s.hook("t1")) as lanes:
            await s.later(LEASE_S - 1)
            assert (lanes.held, app.requests) == ([], [])
            s.clock.advance(2)
            await until(lambda: s.numbers() == [1, 2, 3])


class HardToCount(SqliteStore):
    """Store whose counts fail, and whose third count never ends."""

    counts = claims = 0

    async def hook_depths(self, tenants: Sequence[str], most: int) -> list[HookDepth]:
        self.counts += 1
        if self.counts < 3:
            raise StoreUnavailable("too late") if self.counts == 1 else ZeroDivisionError
        return await asyncio.Future()

    async def claim_hooks(self, holder: str, tenants: Sequence[str], now: int, lease_ms: int) -> dict[str, Claim]:
        self.claims += 1
        return await super().claim_hooks(holder, tenants, now, lease_ms)


async def test_a_count_that_fails_or_never_ends_costs_no_queue_and_holds_up_nothing() -> None:
    with patch.object(records, "COUNT_S", 0.01), patch.object(records, "CLAIM_EVERY_S", 0.01):
        async with receiving() as app, site(HardToCount, t1=app) as s, s.lanes(s.hook("t1")) as lanes:
            assert isinstance(s.store, HardToCount)
            for counts in (1, 2, 3):
                await until(lambda counts=counts: s.store.counts == counts)
                assert lanes.held == ["t1"]
            claims = s.store.claims
            await until(lambda: s.store.claims > claims + 2)  # the leases are renewed
            await s.say()
            await until(lambda: s.numbers() == [1])
            assert lanes.held == ["t1"]


async def test_what_waits_and_what_was_given_up_is_shown() -> None:
    with patch.object(records, "COUNT_S", 0.01), patch.object(records, "CLAIM_EVERY_S", 0.01):
        async with receiving(lambda events: 500) as app, site(t1=app) as s, s.lanes(s.hook("t1")) as lanes:
            await s.say(3)
            await until(lambda: lanes.items()["webhooks_queue_waiting"] == 3)
            s.clock.advance(7)
            assert lanes.items()["webhooks_queue_oldest_s"] == 7
            assert lanes.items()["webhooks_dead_letters"] == 0


async def test_an_app_that_never_answers_costs_one_request_at_a_time() -> None:
    async with receiving(lambda events: "hang") as app, site(t1=app) as s:
        await s.say(3)
        async with s.lanes(s.hook("t1", timeout_s=0.2)):
            await until(lambda: len(app.requests) == 1)
            await asyncio.sleep(0.1)
            assert len(app.requests) == 1
            app.behave = lambda events: 200
            while s.numbers() != [1, 2, 3]:  # after any number of attempts
                await s.later(30)


async def test_a_notification_pruned_before_it_was_sent_to_the_app_is_not_sent() -> None:
    async with receiving() as app, site(t1=app) as s:
        await s.notify()
        await s.store.prune(s.clock.now_ms() + 10, keep_ms=0, limit=9)
        await s.say()
        async with s.lanes(s.hook("t1")):
            await until(lambda: len(app.events) == 1)

            async def is_settled() -> bool:
                return await s.store.waiting_hooks(["t1"], s.clock.now_ms()) == []

            await until_so(is_settled)
        assert [event["type"] for event in app.events] == ["room.message"]


async def test_nothing_secret_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        async with receiving(lambda events: 500) as app, site(t1=app) as s:
            await s.say()
            async with s.lanes(s.hook("t1")):
                await until(lambda: len(app.requests) >= 1)
                await s.later(5)
                app.behave = lambda events: 410
                await s.later(5)
            header = app.requests[0].headers["greendot-signature"]
    assert "webhook of tenant t1" in caplog.text
    ours = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("greendot"))
    for secret in (SECRET, header, "/hook", '"n"'):
        assert secret not in ours
    assert SECRET not in caplog.text
