"""Channel to a push provider: failing providers are paused at little cost, and healthy ones are not affected."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from fake_providers import PlayedFcm, PlayedWebPush, playing
from fake_providers.fcm import refusal
from greendot.push.payload import PushPayload, SendResult
from greendot.push.provider_channel import DRY_RUN, ChannelLimits, ProviderChannel, SharedChannels
from greendot.push.providers.fcm import Fcm
from greendot.push.providers.google_auth import read_account
from greendot.push.providers.signing import new_vapid_key
from greendot.push.providers.webpush import Vapid, WebPush
from greendot.store.push import Device
from greendot.testing import ManualClock
from greendot.transport.http_client import Terms
from push_payloads import PAYLOAD, device, payload
from redis_servers.tls import Certificates

PHONE = device("fcm", "a-token")
AWAY = SendResult("failed", "it is away", is_away=True)


class Acted:
    """Provider controlled by the test. A device's host is the first letter of its token."""

    def __init__(self, does: Callable[[Device], SendResult]) -> None:
        self.does = does
        self.strangers = ""  # hosts, one letter each, that users chose
        self.asked: list[str] = []
        self.at_once = self.most_at_once = 0
        self.hold = asyncio.Event()
        self.hold.set()
        self.closed = False

    def place(self, device: Device) -> str:
        return device.token[0]

    def is_known(self, place: str) -> bool:
        return place not in self.strangers

    async def send(self, device: Device, payload: PushPayload) -> SendResult:
        self.asked.append(device.token)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.hold.wait()
            await asyncio.sleep(0)
            return self.does(device)
        finally:
            self.at_once -= 1

    async def close(self) -> None:
        self.closed = True


def channel(
    sender: Acted, clock: ManualClock | None = None, *, dry_run: bool = False, **bounds: float
) -> ProviderChannel:
    found = ChannelLimits(**bounds)  # type: ignore[arg-type]
    return ProviderChannel(sender, "default", "fcm", clock or ManualClock(), found, dry_run=dry_run)


async def test_concurrent_sends_of_a_channel_are_limited() -> None:
    sender = Acted(lambda device: SendResult("sent"))
    sent = await asyncio.gather(*(lane_.send(PHONE, PAYLOAD) for lane_ in [channel(sender, at_once=7)] * 100))
    assert {one.outcome for one in sent} == {"sent"}
    assert sender.most_at_once == 7


async def test_who_finds_no_room_in_time_is_put_off_without_an_attempt() -> None:
    sender = Acted(lambda device: SendResult("sent"))
    sender.hold.clear()
    slow = channel(sender, at_once=2, patience_s=0.05)
    first = [asyncio.create_task(slow.send(PHONE, PAYLOAD)) for _ in range(2)]
    put_off = await asyncio.gather(*(slow.send(PHONE, PAYLOAD) for _ in range(20)))
    assert {(one.outcome, one.is_tried) for one in put_off} == {("failed", False)}
    assert all(one.wait_s >= 0.05 for one in put_off)
    sender.hold.set()
    assert {one.outcome for one in await asyncio.gather(*first)} == {"sent"}
    assert len(sender.asked) == 2
    assert slow.counts.held == 20
    assert (await slow.send(PHONE, PAYLOAD)).outcome == "sent"


async def test_after_failures_in_a_row_it_rests_and_one_tries_whether_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "greendot.push")
    clock, sender = ManualClock(), Acted(lambda device: AWAY)
    resting = channel(sender, clock, rest_after=3, at_once=50)
    assert {(await resting.send(PHONE, PAYLOAD)).is_tried for _ in range(3)} == {True}
    held = await asyncio.gather(*(resting.send(PHONE, PAYLOAD) for _ in range(100)))
    assert {(one.outcome, one.is_tried) for one in held} == {("failed", False)}
    assert all(0 < one.wait_s <= 1.25 for one in held)
    assert (len(sender.asked), resting.resting()) == (3, 1)
    clock.advance(1)
    sender.does = lambda device: SendResult("sent")
    sent = await asyncio.gather(*(resting.send(PHONE, PAYLOAD) for _ in range(100)))
    assert [one.outcome for one in sent if one.is_tried] == ["sent"]  # one send as a trial
    sent = await asyncio.gather(*(resting.send(PHONE, PAYLOAD) for _ in range(100)))
    assert {one.outcome for one in sent} == {"sent"}
    assert [record.getMessage() for record in caplog.records] == [
        "pushes by fcm of tenant default paused: it is away",
        "pushes by fcm of tenant default resumed",
    ]


async def test_those_who_wait_for_room_do_not_try_a_provider_that_rests_meanwhile() -> None:
    sender = Acted(lambda device: AWAY)
    resting = channel(sender, at_once=5, rest_after=5)
    sent = await asyncio.gather(*(resting.send(PHONE, PAYLOAD) for _ in range(100)))
    assert len(sender.asked) == 5
    assert sum(one.is_tried for one in sent) == 5
    assert resting.counts.rests == 1


async def test_what_is_wrong_with_devices_or_messages_does_not_make_it_rest() -> None:
    answers = [SendResult("gone"), SendResult("refused"), SendResult("failed", "too many to this device")]
    sender = Acted(lambda device: answers[len(sender.asked) % 3])
    well = channel(sender, rest_after=2)
    assert {(await well.send(PHONE, PAYLOAD)).is_tried for _ in range(30)} == {True}


async def test_a_provider_that_asks_for_a_delay_gets_it_for_all_sends() -> None:
    clock, sender = ManualClock(), Acted(lambda device: AWAY._replace(wait_s=30))
    asked = channel(sender, clock)
    assert (await asked.send(PHONE, PAYLOAD)).wait_s == 30
    held = await asked.send(PHONE, PAYLOAD)
    assert (held.is_tried, 30 <= held.wait_s <= 37.5) == (False, True)
    clock.advance(29.9)
    assert not (await asked.send(PHONE, PAYLOAD)).is_tried
    clock.advance(0.1)
    sender.does = lambda device: SendResult("sent")
    assert (await asked.send(PHONE, PAYLOAD)).outcome == "sent"


async def test_each_place_is_on_its_own() -> None:
    sender = Acted(lambda device: AWAY if device.token.startswith("b") else SendResult("sent"))
    places = channel(sender, rest_after=1)
    for _ in range(5):
        await places.send(device("webpush", "bad"), PAYLOAD)
        assert (await places.send(device("webpush", "good"), PAYLOAD)).outcome == "sent"
    assert sender.asked.count("bad") == 1


async def test_places_are_bounded_in_number_and_those_in_use_are_not_forgotten() -> None:
    sender = Acted(lambda device: SendResult("sent"))
    few = channel(sender, most_places=2)
    for token in "abcdefgh":
        assert (await few.send(device("webpush", token), PAYLOAD)).outcome == "sent"
    assert len(few._places) == 2
    sender.hold.clear()
    busy = [asyncio.create_task(few.send(device("webpush", token), PAYLOAD)) for token in "xy"]
    await asyncio.sleep(0)
    assert not (await few.send(device("webpush", "z"), PAYLOAD)).is_tried
    sender.hold.set()
    assert {one.outcome for one in await asyncio.gather(*busy)} == {"sent"}


async def test_once_a_send_waited_in_vain_others_do_not_wait_until_one_is_answered() -> None:
    sender = Acted(lambda device: SendResult("sent"))
    sender.hold.clear()
    slow = channel(sender, at_once=1, patience_s=0.05)
    first = asyncio.create_task(slow.send(PHONE, PAYLOAD))
    await asyncio.sleep(0)
    assert not (await slow.send(PHONE, PAYLOAD)).is_tried
    slow._bounds = ChannelLimits(at_once=1, patience_s=60.0)
    async with asyncio.timeout(10):
        assert not (await slow.send(PHONE, PAYLOAD)).is_tried, "the send must fail without waiting"
    sender.hold.set()
    assert (await first).outcome == "sent"
    sent = await asyncio.gather(*(slow.send(PHONE, PAYLOAD) for _ in range(5)))
    assert {one.outcome for one in sent} == {"sent"}


async def test_hosts_that_users_chose_are_few_at_once_until_they_answer() -> None:
    sender = Acted(lambda device: SendResult("sent"))
    sender.strangers = "bcdefgh"
    sender.hold.clear()
    whole = channel(sender, at_once=10, unproven=3, unproven_each=2, patience_s=0.05)
    silent = [asyncio.create_task(whole.send(device("webpush", token), PAYLOAD)) for token in "bcdefgh" * 3]
    known = [asyncio.create_task(whole.send(PHONE, PAYLOAD)) for _ in range(10)]
    for _ in range(3):
        await asyncio.sleep(0)
    assert sender.asked.count(PHONE.token) == 10
    assert len(sender.asked) == 13
    sender.hold.set()
    await asyncio.gather(*silent, *known)
    assert all(task.result().outcome == "sent" for task in known)


async def test_a_send_that_was_not_tried_does_not_count_against_the_host() -> None:
    busy = SendResult("failed", "no connection is free", 5.0, is_tried=False)
    sender = Acted(lambda device: busy)
    resting = channel(sender, rest_after=2)
    for _ in range(5):
        assert await resting.send(PHONE, PAYLOAD) == busy
    assert (len(sender.asked), resting.resting()) == (5, 0)


async def test_tenants_that_share_an_account_have_lanes_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("greendot.push.provider_channel.MOST_LANES", 2)
    sender, clock = Acted(lambda device: AWAY if device.tenant == "t0" else SendResult("sent")), ManualClock()
    made: list[str] = []

    def make(tenant: str) -> ProviderChannel:
        made.append(tenant)
        return ProviderChannel(sender, tenant, "fcm", clock, ChannelLimits(rest_after=1))

    channels = SharedChannels(make, sender)
    sent = [await channels.send(PHONE._replace(tenant=tenant), PAYLOAD) for tenant in ("t0", "t1", "t0", "t2", "t1")]
    assert [(one.outcome, one.is_tried) for one in sent] == [
        ("failed", True),
        ("sent", True),
        ("failed", False),  # the circuit breaker is open for this tenant
        ("sent", True),
        ("sent", True),
    ]
    assert made == ["t0", "t1", "t2", "t1"], "the channels used last must be kept"
    await channels.close()
    assert sender.closed


async def test_a_try_that_is_cancelled_lets_another_try() -> None:
    clock, sender = ManualClock(), Acted(lambda device: AWAY)
    resting = channel(sender, clock, rest_after=1)
    await resting.send(PHONE, PAYLOAD)
    clock.advance(2)
    sender.hold.clear()
    trying = asyncio.create_task(resting.send(PHONE, PAYLOAD))
    await asyncio.sleep(0)
    trying.cancel()
    await asyncio.gather(trying, return_exceptions=True)
    sender.hold.set()
    assert (await resting.send(PHONE, PAYLOAD)).is_tried


async def test_an_error_of_ours_is_an_outcome_too(caplog: pytest.LogCaptureFixture) -> None:
    def wrong(device: Device) -> SendResult:
        raise ZeroDivisionError

    sent = await channel(Acted(wrong)).send(PHONE, PAYLOAD)
    assert (sent.outcome, sent.is_away) == ("failed", True)
    assert "ZeroDivisionError" in caplog.text


async def test_in_a_dry_run_nothing_is_sent_and_everything_is_as_if() -> None:
    sender = Acted(lambda device: AWAY)
    dry = channel(sender, dry_run=True)
    assert await dry.send(PHONE, PAYLOAD) == SendResult("sent", DRY_RUN)
    assert sender.asked == []
    await dry.close()
    assert sender.closed


# --- with real connections ---


async def test_an_outage_of_fcm_is_asked_about_a_few_times_and_ends_by_itself(made: Certificates, terms: Terms) -> None:
    clock = ManualClock()
    async with playing(PlayedFcm(clock), made) as fcm:
        fcm.behave = lambda asked: refusal(500, "INTERNAL")
        whole = ProviderChannel(Fcm(read_account(fcm.account()), terms, clock, url=fcm.url), "default", "fcm", clock)
        try:
            for n in range(60):  # one minute of an outage
                await asyncio.gather(*(whole.send(PHONE, payload(key=f"{n}-{m}")) for m in range(3)))
                clock.advance(1)
            assert len(fcm.asked) < 15
            fcm.behave = lambda asked: None
            clock.advance(60)
            assert (await whole.send(PHONE, payload(key="after"))).outcome == "sent"
            assert fcm.keys == {"after": 1}
        finally:
            await whole.close()


async def test_a_browser_whose_service_hangs_does_not_hold_up_the_others(made: Certificates, terms: Terms) -> None:
    terms.timeout_s = 3.0
    clock = ManualClock()
    private, public = new_vapid_key()
    async with playing(PlayedWebPush(clock), made) as good, playing(PlayedWebPush(clock), made) as bad:
        bad.behave = lambda asked: "hang"
        whole = ProviderChannel(WebPush(Vapid(private, "mailto:x", clock), terms, clock), "default", "webpush", clock)
        try:
            hostile = device("webpush", bad.subscribe(public))
            browser = device("webpush", good.subscribe(public))
            hanging = [asyncio.create_task(whole.send(hostile, PAYLOAD)) for _ in range(30)]
            sent = await asyncio.gather(*(whole.send(browser, PAYLOAD) for _ in range(10)))
            assert {one.outcome for one in sent} == {"sent"}
            assert not any(task.done() for task in hanging)
            assert {one.outcome for one in await asyncio.gather(*hanging)} == {"failed"}
            assert not (await whole.send(hostile, PAYLOAD)).is_tried
            assert (await whole.send(browser, PAYLOAD)).outcome == "sent"
        finally:
            await whole.close()
