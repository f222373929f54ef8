"""Push worker: due pushes are decided, sent and recorded in spite of failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from greendot.errors import StoreUnavailable
from greendot.push.payload import PushPayload, SendResult
from greendot.push.policy_model import HOUR_MS, PushPolicy, RecipientState
from greendot.push.worker import LEASE_MS, PushWorker, TenantPushConfig, WorkerPace
from greendot.store.inbox import Notice
from greendot.store.push import Choices, Device, PushRecord, Settled
from greendot.store.sqlite import SqliteStore
from greendot.testing.clock import START_MS, ManualClock

T = "t1"


class PlayedSender:
    """Sender with a scripted answer that records the payloads."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.payloads: list[PushPayload] = []
        self.answer: Callable[[Device], SendResult] = lambda device: SendResult("sent")
        self.gate = asyncio.Event()
        self.gate.set()

    async def send(self, device: Device, payload: PushPayload) -> SendResult:
        self.keys.append(payload.key)
        self.payloads.append(payload)
        await self.gate.wait()
        return self.answer(device)

    async def close(self) -> None: ...


class Bench:
    """A worker with a store, a sender, and a clock that the test moves."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.clock = ManualClock()
        self.sender = PlayedSender()
        self.policy = PushPolicy()
        self.seen: dict[str, RecipientState] = {}  # users without an entry are offline
        self.workers: list[PushWorker] = []

    def worker(self, **pace: Any) -> PushWorker:
        tenant_config = TenantPushConfig({"fcm": self.sender}, lambda kind: self.policy, lambda kind: kind == "secret")
        worker = PushWorker(self.store, lambda tenant: tenant_config, self._look, self.clock, WorkerPace(**pace))
        self.workers.append(worker)
        return worker

    async def _look(self, rooms: Mapping[tuple[str, str], object]) -> dict[tuple[str, str], RecipientState]:
        return {key: self.seen.get(key[1], RecipientState("offline")) for key in rooms}

    async def device(self, user: str, device: str = "phone") -> None:
        now = self.clock.now_ms()
        await self.store.put_device(Device(T, user, device, "fcm", f"token-{user}-{device}", now, now))

    async def notify(self, user: str = "ann", kind: str = "ping", **more: Any) -> str:
        """Create a notification and return its id. Register a device first if the user has none."""
        if not await self.store.devices(T, user):
            await self.device(user)
        key = f"k{self.clock.now_ms()}-{len(await self.store.notifications(T, user, limit=300))}"
        body = more.pop("body", b'{"title":"Hi","text":"there"}')
        made = await self.store.notify([Notice(T, user, kind, body, key, self.clock.now_ms(), **more)])
        return made[0].notification.id

    async def record(self, notification: str) -> PushRecord:
        (found,) = await self.store.push_of(T, notification)
        return found


@asynccontextmanager
async def benched() -> AsyncIterator[Bench]:
    store = SqliteStore(":memory:", pushed=(T,))
    await store.start()
    found = Bench(store)
    try:
        yield found
    finally:
        found.sender.gate.set()
        for worker in found.workers:
            await worker.close(1.0)
        await store.close()


async def test_who_is_away_is_pushed_at_once_with_what_is_to_be_shown() -> None:
    async with benched() as bench:
        made = await bench.notify()
        await bench.worker().once()
        (payload,) = bench.sender.payloads
        assert (payload.key, payload.id, payload.title, payload.text) == (f"{made}.phone", made, "Hi", "there")
        record = await bench.record(made)
        assert (record.reason, record.over_at, record.is_dead) == ("offline", START_MS, False)
        assert [(result.device, result.outcome) for result in record.results] == [("phone", "sent")]


async def test_what_a_kind_keeps_in_the_house_is_not_sent() -> None:
    async with benched() as bench:
        await bench.notify(kind="secret")
        await bench.worker().once()
        (payload,) = bench.sender.payloads
        assert (payload.title, payload.text, payload.body) == (None, None, None)


async def test_who_is_active_is_pushed_when_it_stays_unseen() -> None:
    async with benched() as bench:
        bench.seen["ann"] = RecipientState("online")
        made, worker = await bench.notify(), bench.worker()
        await worker.once()
        assert (await bench.record(made)).reason == "active"
        bench.clock.advance(59.999)
        await worker.once()
        assert bench.sender.keys == []
        bench.clock.advance(0.001)
        await worker.once()
        assert bench.sender.keys == [f"{made}.phone"]
        assert (await bench.record(made)).reason == "unseen"


async def test_what_was_seen_meanwhile_is_not_pushed() -> None:
    async with benched() as bench:
        bench.seen["ann"] = RecipientState("online")
        made, worker = await bench.notify(), bench.worker()
        await worker.once()
        await bench.store.mark(T, "ann", "seen", ids=[made], through=None, at=bench.clock.now_ms())
        bench.clock.advance(60)
        await worker.once()
        assert bench.sender.keys == []
        assert (await bench.record(made)).reason == "seen"


async def test_what_is_to_be_acknowledged_is_pushed_though_it_was_seen_unless_it_is_acknowledged() -> None:
    async with benched() as bench:
        bench.seen = {"ann": RecipientState("online"), "bob": RecipientState("online")}
        made, acked = await bench.notify(ack=True), await bench.notify("bob", ack=True)
        for user, one in (("ann", made), ("bob", acked)):
            await bench.store.mark(T, user, "archive", ids=[one], through=None, at=bench.clock.now_ms())
        worker = bench.worker()
        await worker.once()
        assert (await bench.record(made)).reason == "awaiting_ack"
        await bench.store.mark(T, "bob", "ack", ids=[acked], through=None, at=bench.clock.now_ms())
        for _ in range(9):
            assert bench.sender.keys == []
            bench.clock.advance(55)
            await worker.once()
        assert bench.sender.keys == [f"{made}.phone"]
        assert [(await bench.record(one)).reason for one in (made, acked)] == ["unacknowledged", "seen"]


async def test_who_leaves_without_an_acknowledgement_is_pushed_within_a_minute() -> None:
    async with benched() as bench:
        bench.seen["ann"] = RecipientState("online")
        made, worker = await bench.notify(ack=True), bench.worker()
        await bench.store.mark(T, "ann", "seen", ids=[made], through=None, at=bench.clock.now_ms())
        await worker.once()
        bench.seen.clear()
        bench.clock.advance(60)
        await worker.once()
        assert (bench.sender.keys, (await bench.record(made)).reason) == ([f"{made}.phone"], "offline")


async def test_quiet_hours_hold_what_is_not_critical() -> None:
    async with benched() as bench:
        # The time is 07:30 UTC, and the quiet hours extend from one hour before to one hour after.
        minute = START_MS // 60_000 % 1_440
        await bench.store.put_choices(T, "ann", Choices("UTC", minute - 60, minute + 60))
        made, worker = await bench.notify(), bench.worker()
        urgent = await bench.notify(importance="critical")
        await worker.once()
        assert bench.sender.keys == [f"{urgent}.phone"]
        assert (await bench.record(made)).reason == "quiet_hours"
        bench.clock.advance(3600)
        await worker.once()
        assert bench.sender.keys == [f"{urgent}.phone", f"{made}.phone"]


async def test_an_unknown_time_zone_delays_no_other_push() -> None:
    async with benched() as bench:
        await bench.store.put_choices(T, "ann", Choices("Atlantis/Sunken", 0, 1_439))
        other, made = await bench.notify("bob"), await bench.notify("ann")
        await bench.worker().once()
        assert bench.sender.keys == [f"{other}.phone"]
        assert (await bench.record(made)).reason == "quiet_hours", "an unknown time zone must count as UTC"


async def test_the_cap_holds_within_what_is_taken_together() -> None:
    async with benched() as bench:
        bench.policy = PushPolicy(per_hour=3)
        made = [await bench.notify() for _ in range(5)]
        await bench.notify("bob")
        worker = bench.worker()
        await worker.once()
        assert sorted(bench.sender.keys[:4]) == sorted(bench.sender.keys), "three pushes of ann and one of bob"
        assert len([key for key in bench.sender.keys if key.split(".")[0] in made]) == 3
        bench.clock.advance(3_599)
        await worker.once()
        assert len(bench.sender.keys) == 4
        bench.clock.advance(1)
        await worker.once()
        assert len(bench.sender.keys) == 6


async def test_the_cap_counts_what_is_still_being_sent() -> None:
    async with benched() as bench:
        bench.policy = PushPolicy(per_hour=1)
        bench.sender.gate.clear()
        await bench.notify()
        worker = bench.worker(poll_s=0.001)
        worker.start()
        await _until(lambda: len(bench.sender.keys) == 1)
        second = await bench.notify()
        worker.wake()
        await _until_awaited(lambda: _reason(bench, second), "over_the_cap")
        assert len(bench.sender.keys) == 1


async def test_what_has_no_device_is_over() -> None:
    async with benched() as bench:
        made = await bench.notify()
        await bench.store.drop_device(T, "ann", "phone")
        await bench.worker().once()
        assert (await bench.record(made)).reason == "no_device"


async def test_a_tenant_that_does_not_push_any_more_sends_nothing() -> None:
    async with benched() as bench:
        made = await bench.notify()
        worker = PushWorker(bench.store, lambda tenant: None, bench._look, bench.clock, WorkerPace())
        await worker.once()
        assert (await bench.record(made)).reason == "kind_off"


# --- failures ---


async def test_what_failed_is_tried_again_by_the_same_key_until_it_is_given_up() -> None:
    async with benched() as bench:
        bench.sender.answer = lambda device: SendResult("failed", "answered 500")
        made, worker = await bench.notify(), bench.worker(give_up_ms=HOUR_MS)
        for _ in range(40):
            await worker.once()
            record = await bench.record(made)
            if record.is_dead:
                break
            assert record.due_at is not None
            bench.clock.advance((record.due_at - bench.clock.now_ms()) / 1000)
        assert record.is_dead
        assert bench.clock.now_ms() - START_MS <= HOUR_MS
        assert {*bench.sender.keys} == {f"{made}.phone"}
        assert record.attempts == len(bench.sender.keys) >= 5
        assert record.results[0].reason == "answered 500"
        assert worker.counters.dead == 1
        # An operator replays the push.
        bench.sender.answer = lambda device: SendResult("sent")
        await bench.store.replay_pushes(None, None, bench.clock.now_ms())
        await worker.once()
        assert (await bench.record(made)).results[0].outcome == "sent"


async def test_what_was_held_for_days_is_not_given_up_at_the_first_failure() -> None:
    async with benched() as bench:
        bench.seen["ann"] = RecipientState("offline", busy=True)
        made, worker = await bench.notify(), bench.worker(give_up_ms=HOUR_MS)
        bench.clock.advance(7_200)
        bench.seen.clear()
        bench.sender.answer = lambda device: SendResult("failed", "answered 500")
        await worker.once()
        assert (await bench.record(made)).due_at is not None


async def test_the_wait_a_provider_asks_for_is_kept() -> None:
    async with benched() as bench:
        bench.sender.answer = lambda device: SendResult("failed", "answered 429", wait_s=120.0)
        made, worker = await bench.notify(), bench.worker()
        await worker.once()
        due_at = (await bench.record(made)).due_at
        assert due_at is not None
        assert due_at >= START_MS + 120_000


async def test_being_held_back_is_no_attempt() -> None:
    async with benched() as bench:
        bench.sender.answer = lambda device: SendResult("failed", "it rests", wait_s=5.0, is_tried=False)
        made, worker = await bench.notify(), bench.worker(give_up_ms=1_000)
        for _ in range(10):
            await worker.once()
            bench.clock.advance(5)
        record = await bench.record(made)
        assert (record.attempts, record.is_dead, len(bench.sender.keys)) == (0, False, 10)


async def test_each_device_gets_it_once_whatever_becomes_of_the_others() -> None:
    async with benched() as bench:
        await bench.device("ann", "laptop")
        await bench.device("ann", "tablet")
        await bench.device("ann", "watch")
        answers = {
            "laptop": SendResult("failed", "500"),
            "tablet": SendResult("gone", "410"),
            "watch": SendResult("refused", "403"),
        }
        bench.sender.answer = lambda device: answers.get(device.device, SendResult("sent"))
        await bench.device("ann")
        made, worker = await bench.notify(), bench.worker()
        await worker.once()
        assert len(bench.sender.keys) == 4
        assert "tablet" not in [device.device for device in await bench.store.devices(T, "ann")]
        answers.clear()
        bench.clock.advance(2)
        await worker.once()
        assert bench.sender.keys[4:] == [f"{made}.laptop"]
        record = await bench.record(made)
        outcomes = {result.device: result.outcome for result in record.results}
        assert outcomes == {"phone": "sent", "laptop": "sent", "tablet": "gone", "watch": "refused"}
        # A replay goes only to the device that did not get the push.
        bench.sender.keys.clear()
        await bench.store.replay_pushes(None, None, bench.clock.now_ms())
        await worker.once()
        assert bench.sender.keys == [f"{made}.watch"]


async def test_a_sender_that_raises_loses_no_push_and_does_not_stop_others() -> None:
    async with benched() as bench:

        def answer(device: Device) -> SendResult:
            if device.user == "ann":
                raise RuntimeError("a mistake in the sender")
            return SendResult("sent")

        bench.sender.answer = answer
        made, others = await bench.notify("ann"), [await bench.notify(f"u{number}") for number in range(5)]
        worker = bench.worker()
        await worker.once()
        assert [(await bench.record(other)).results[0].outcome for other in others] == ["sent"] * 5
        record = await bench.record(made)
        assert (record.due_at is not None, record.results[0].outcome) == (True, "failed")
        bench.sender.answer = lambda device: SendResult("sent")
        bench.clock.advance(2)
        await worker.once()
        assert (await bench.record(made)).results[0].outcome == "sent"


async def test_a_look_that_raises_lets_everything_through() -> None:
    async with benched() as bench:

        async def look(rooms: object) -> dict[tuple[str, str], RecipientState]:
            raise RuntimeError("a mistake in the look")

        made = await bench.notify()
        tenant_config = TenantPushConfig({"fcm": bench.sender}, lambda kind: PushPolicy(), lambda kind: False)
        await PushWorker(bench.store, lambda tenant: tenant_config, look, bench.clock, WorkerPace()).once()
        assert (await bench.record(made)).reason == "presence_unknown"


async def test_what_was_sent_and_could_not_be_noted_is_noted_later_and_not_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with benched() as bench:
        made, settle, failures = await bench.notify(), bench.store.settle_pushes, 0

        async def flaky(holder: str, settled: list[Settled], gone: list[Device], now: int) -> set[int]:
            nonlocal failures
            if settled and failures < 2:
                failures += 1
                raise StoreUnavailable("away")
            return await settle(holder, settled, gone, now)

        monkeypatch.setattr(bench.store, "settle_pushes", flaky)
        monkeypatch.setattr("greendot.push.worker.AWAY_S", 0.001)
        worker = bench.worker(poll_s=0.001)
        worker.start()
        await _until_awaited(lambda: _outcome(bench, made), "sent")
        assert failures == 2
        assert bench.sender.keys == [f"{made}.phone"]


async def test_a_worker_that_stood_still_sends_no_second_one_beside_its_own() -> None:
    async with benched() as bench:
        bench.sender.gate.clear()
        made, worker = await bench.notify(), bench.worker(poll_s=0.001)
        worker.start()
        await _until(lambda: len(bench.sender.keys) == 1)
        bench.clock.advance(LEASE_MS / 1000 + 1)
        for _ in range(10):
            await asyncio.sleep(0.002)
        bench.sender.gate.set()
        await _until_awaited(lambda: _outcome(bench, made), "sent")
        assert bench.sender.keys == [f"{made}.phone"]


async def test_what_a_worker_held_when_it_died_is_anothers_when_the_lease_ends() -> None:
    async with benched() as bench:
        made = await bench.notify()
        await bench.store.claim_pushes("one that dies", bench.clock.now_ms(), LEASE_MS, 10, since=0)
        worker = bench.worker()
        await worker.once()
        assert bench.sender.keys == []
        bench.clock.advance(LEASE_MS / 1000)
        await worker.once()
        assert bench.sender.keys == [f"{made}.phone"]


async def test_two_workers_send_each_push_once() -> None:
    async with benched() as bench:
        made = [await bench.notify(f"u{number}") for number in range(60)]
        workers = [bench.worker(at_once=7, poll_s=0.001) for _ in range(2)]
        for worker in workers:
            worker.start()
        await _until(lambda: len(bench.sender.keys) >= 60)
        for worker in workers:
            await worker.close(5.0)
        assert sorted(bench.sender.keys) == sorted(f"{one}.phone" for one in made)
        assert (await bench.store.push_counts(bench.clock.now_ms())).waiting == 0


async def test_no_more_is_taken_than_can_be_sent() -> None:
    async with benched() as bench:
        for number in range(20):
            await bench.notify(f"u{number}")
        bench.sender.gate.clear()
        worker = bench.worker(at_once=10, poll_s=0.001)  # half of them for one tenant
        worker.start()
        await _until(lambda: len(bench.sender.keys) == 5)
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert len(bench.sender.keys) == 5, "the rest must wait in the store for other workers"
        bench.sender.gate.set()
        await _until(lambda: len(bench.sender.keys) == 20)


async def test_a_worker_that_is_closed_finishes_what_it_sends() -> None:
    async with benched() as bench:
        bench.sender.gate.clear()
        made, worker = await bench.notify(), bench.worker(poll_s=0.001)
        worker.start()
        await _until(lambda: len(bench.sender.keys) == 1)
        closing = asyncio.create_task(worker.close(5.0))
        await asyncio.sleep(0)
        bench.sender.gate.set()
        await closing
        assert await _outcome(bench, made) == "sent"


async def test_what_was_decided_and_done_is_counted() -> None:
    async with benched() as bench:
        bench.seen["bob"] = RecipientState("idle")
        await bench.notify("ann")
        await bench.notify("bob")
        worker = bench.worker()
        await worker.once()
        assert worker.counters.decided == {("now", "offline"): 1, ("later", "idle"): 1}
        assert worker.counters.results == {("fcm", "sent"): 1}


# --- waiting ---


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  (the condition has no event)
            await asyncio.sleep(0.002)


async def _until_awaited(look: Callable[[], Awaitable[str]], expected: str) -> None:
    async with asyncio.timeout(10):
        while await look() != expected:  # noqa: ASYNC110  (the condition has no event)
            await asyncio.sleep(0.002)


async def _reason(bench: Bench, notification: str) -> str:
    return (await bench.record(notification)).reason


async def _outcome(bench: Bench, notification: str) -> str:
    results = (await bench.record(notification)).results
    return results[0].outcome if results else ""
