"""Delivery of notifications to a user's devices: in order, each once, and without loss when a device returns."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greendot.engine.messages import InboxChanged, Notified, Part, Topic
from greendot.errors import StoreUnavailable
from greendot.inbox import delivery
from greendot.inbox.badges import EVERY_S
from greendot.inbox.delivery import COMPARE_S, InboxCatchUp
from greendot.node.stream import AGAIN_S, GAP_S
from greendot.protocol.codec import encode_event
from greendot.protocol.events import Refresh
from greendot.store.inbox import Notification
from greendot.store.wire import created_frame
from unit.service_parts import TENANT, TICK_S, Parts, RecordedConnection, in_virtual_time

ANN = Topic("user", TENANT, "ann")
CREATED = "notification.created"


async def devices(parts: Parts, count: int = 1) -> list[RecordedConnection]:
    """Attach devices of ann, then clear the list of the store's calls."""
    connections = [await parts.connect("ann") for _ in range(count)]
    for connection in connections:
        await parts.attach(connection)
    parts.store.take_calls()
    return connections


async def notify(parts: Parts, count: int = 1, **given: Any) -> list[Notification]:
    """Write notifications without publishing them."""
    notices = [parts.notice("ann", **given) for _ in range(count)]
    return [made.notification for made in await parts.store.notify(notices)]


def publish(parts: Parts, *notifications: Notification, hint: bool = False) -> None:
    """Deliver notifications, or hints of them, as the bus does."""
    records = [(n.seq, b"" if hint else created_frame(n, n.created_at), n.ack) for n in notifications]
    parts.receive(ANN, Notified(records))


def shown(caught_up: InboxCatchUp) -> list[Any]:
    """Return the events of a catch-up: the numbers of notifications, and the states of others."""
    return [getattr(event, "seq", None) or getattr(event, "state", event.type) for event in caught_up.events]


@in_virtual_time
async def test_notifications_reach_attached_devices_in_order_and_once(parts: Parts) -> None:
    phone, laptop = await devices(parts, 2)
    greeting = await parts.connect("ann")  # the device does not know the head of the inbox yet
    found = await notify(parts, 4)
    for number in (1, 0, 0, 3, 1, 2):
        publish(parts, found[number])
    await parts.settle()
    assert phone.seqs(CREATED) == laptop.seqs(CREATED) == [1, 2, 3, 4]
    assert greeting.seqs(CREATED) == []
    assert parts.metrics.notification_live_push_total == 8


@in_virtual_time
async def test_a_missing_notification_is_read_after_a_moment_once_for_all_devices(parts: Parts) -> None:
    phone, laptop = await devices(parts, 2)
    found = await notify(parts, 4)
    await parts.store.mark(TENANT, "ann", "archive", ids=[found[1].id], at=1)
    publish(parts, found[3])
    await parts.pass_s(GAP_S - TICK_S)
    assert phone.seqs(CREATED) == []
    await parts.pass_s(2 * TICK_S)
    assert phone.seqs(CREATED) == laptop.seqs(CREATED) == [1, 3, 4]  # the second was archived meanwhile
    await parts.pass_s(EVERY_S)
    assert parts.store.calls.count("notifications") == 1
    assert parts.metrics.inbox_gaps_total == 1


@in_virtual_time
async def test_a_hint_is_read_at_once_and_only_for_a_device(parts: Parts) -> None:
    (phone,) = await devices(parts)
    publish(parts, *await notify(parts), hint=True)
    await parts.settle()
    assert phone.seqs(CREATED) == [1]
    parts.disconnect(phone)
    parts.store.take_calls()
    publish(parts, *await notify(parts), hint=True)
    await parts.settle()
    assert "notifications" not in parts.store.take_calls()
    laptop = await parts.connect("ann")
    assert shown(await parts.attach(laptop, after=1)) == [2]


@in_virtual_time
async def test_a_gap_is_read_again_when_the_store_is_back(parts: Parts) -> None:
    (phone,) = await devices(parts)
    found = await notify(parts, 2)
    parts.store.thread.failing["notifications"] = StoreUnavailable("away")
    publish(parts, found[1])
    await parts.pass_s(GAP_S + 3 * AGAIN_S)
    assert phone.seqs(CREATED) == []
    assert 3 <= parts.store.calls.count("notifications") <= 8  # repeated, but with pauses
    del parts.store.thread.failing["notifications"]
    await parts.pass_s(AGAIN_S + TICK_S)
    assert phone.seqs(CREATED) == [1, 2]


@in_virtual_time
async def test_a_gap_that_is_too_large_is_left_to_clients(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "RECOVER", 3)
    (phone,) = await devices(parts)
    found = await notify(parts, 5)
    publish(parts, found[4], hint=True)
    await parts.settle()
    assert [frame["data"].get("seq") or frame["type"] for frame in phone.take()] == [1, 2, 3, "resync"]
    publish(parts, *await notify(parts))
    await parts.settle()
    assert phone.seqs(CREATED) == [6]


@in_virtual_time
async def test_a_gap_that_is_just_not_too_large_is_sent_whole(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "RECOVER", 3)
    (phone,) = await devices(parts)
    publish(parts, (await notify(parts, 3))[2], hint=True)
    await parts.settle()
    assert [frame["type"] for frame in phone.take()] == [CREATED] * 3


@in_virtual_time
async def test_an_expired_notification_is_not_announced_though_it_is_kept(parts: Parts) -> None:
    (phone,) = await devices(parts)
    await notify(parts, expires_at=parts.clock.now_ms() + 10)
    publish(parts, *await notify(parts))
    await parts.pass_s(1)
    assert phone.seqs(CREATED) == [2]
    laptop = await parts.connect("ann")
    assert shown(await parts.attach(laptop, after=0)) == [2]


@in_virtual_time
async def test_a_returning_device_gets_the_notifications_it_missed_and_their_states(parts: Parts) -> None:
    await devices(parts)
    found = await notify(parts, 4)
    publish(parts, *found)
    await parts.store.mark(TENANT, "ann", "read", ids=[found[1].id], at=1)
    await parts.store.mark(TENANT, "ann", "archive", ids=[found[2].id], at=1)
    caught_up = await parts.attach(await parts.connect("ann"), after=1)
    assert (shown(caught_up), caught_up.unread) == ([2, 4, "read"], 2)


@in_virtual_time
async def test_a_notification_that_comes_while_a_device_attaches_is_seen_once(parts: Parts) -> None:
    await devices(parts)
    publish(parts, *await notify(parts))
    laptop = await parts.connect("ann")
    async with parts.store.holding("inbox_page", "after") as held:
        attaching = asyncio.ensure_future(parts.attach(laptop, after=0))
        await held.reached()
        publish(parts, *await notify(parts))
    caught_up = await attaching
    publish(parts, *await notify(parts))
    await parts.settle()
    assert (shown(caught_up), laptop.seqs(CREATED)) == ([1, 2], [3])


@in_virtual_time
async def test_numbers_continue_behind_the_head_for_the_first_device(parts: Parts) -> None:
    found = await notify(parts, 3)
    phone = await parts.connect("ann")
    asked = parts.inboxes.ask(phone.session)
    publish(parts, found[2])  # received before the head was read
    caught_up = await parts.inboxes.attach(phone, phone.session, asked, None)
    more = await notify(parts, 2)
    publish(parts, more[1], more[0])
    await parts.settle()
    assert (shown(caught_up), caught_up.unread, phone.seqs(CREATED)) == ([], 3, [4, 5])


@in_virtual_time
async def test_a_gap_from_before_the_head_was_known_is_read_when_it_is(parts: Parts) -> None:
    phone = await parts.connect("ann")
    async with parts.store.holding("inboxes", "after") as held:
        attaching = asyncio.ensure_future(parts.attach(phone))
        await held.reached()
        publish(parts, (await notify(parts, 2))[1])
    assert shown(await attaching) == []
    await parts.pass_s(GAP_S + TICK_S)
    assert phone.seqs(CREATED) == [1, 2]


@pytest.mark.parametrize(("after", "seen"), [(1, [2, 3, 4]), (0, ["resync"]), (5, ["resync"])])
@in_virtual_time
async def test_a_device_too_far_behind_or_ahead_receives_a_resync(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, after: int, seen: list[Any]
) -> None:
    monkeypatch.setattr(delivery, "RECOVER", 3)
    await notify(parts, 4)
    assert shown(await parts.attach(await parts.connect("ann"), after=after)) == seen


@in_virtual_time
async def test_a_device_that_missed_too_many_bytes_receives_a_resync(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "RECOVER_BYTES", 4)
    await notify(parts, 2)
    assert shown(await parts.attach(await parts.connect("ann"), after=0)) == [1, 2]
    await notify(parts)
    assert shown(await parts.attach(await parts.connect("ann"), after=0)) == ["resync"]


@in_virtual_time
async def test_unacknowledged_notifications_are_given_once_to_a_device_that_comes(parts: Parts) -> None:
    await notify(parts, 2, ack=True)
    phone, laptop = await parts.connect("ann"), await parts.connect("ann")
    assert shown(await parts.attach(phone)) == [1, 2]
    assert shown(await parts.attach(laptop, after=1)) == [1, 2]
    await parts.pass_s(5 + TICK_S)
    assert phone.seqs(CREATED) == laptop.seqs(CREATED) == [1, 2]
    parts.receive(ANN, InboxChanged(acked=[1]))
    await parts.pass_s(10)
    assert phone.seqs(CREATED) == [2]


@in_virtual_time
async def test_a_receipt_is_noted_only_for_notifications_that_a_device_got(parts: Parts) -> None:
    async def noted() -> list[int]:
        found = await parts.store.notifications(TENANT, "ann", limit=10)
        return [n.seq for n in found if n.live_at is not None]

    (phone,) = await devices(parts)
    publish(parts, *await notify(parts))
    await parts.pass_s(2)
    parts.disconnect(phone)
    publish(parts, *await notify(parts))
    await parts.pass_s(2)
    assert await noted() == [1]
    closing = await parts.connect("ann")
    closing.closing = True
    assert shown(await parts.attach(closing, after=1)) == []
    await parts.pass_s(2)
    assert (await noted(), closing.gets_inbox) == ([1], False)
    await parts.attach(await parts.connect("ann"), after=1)
    await parts.pass_s(2)
    assert await noted() == [1, 2]


@in_virtual_time
async def test_a_mark_is_shown_to_all_devices_but_the_one_that_made_it(parts: Parts) -> None:
    phone, laptop = await devices(parts, 2)
    parts.receive(ANN, InboxChanged(encode_event(Refresh("x"), 0), phone.id))
    await parts.pass_s(EVERY_S + TICK_S)
    assert [frame["type"] for frame in phone.take()] == ["inbox.badge"]
    assert [frame["type"] for frame in laptop.take()] == ["refresh", "inbox.badge"]


@in_virtual_time
async def test_lost_notifications_and_marks_are_found_by_comparing(parts: Parts) -> None:
    (phone,) = await devices(parts)
    await notify(parts, 2)
    await parts.pass_s(COMPARE_S + 1)
    frames = [(frame["type"], frame["data"]) for frame in phone.take()]
    assert [data["seq"] for kind, data in frames if kind == CREATED] == [1, 2]
    assert [data["unread"] for kind, data in frames if kind == "inbox.badge"][-1] == 2
    await parts.store.mark(TENANT, "ann", "read", through=1, at=1)
    await parts.pass_s(COMPARE_S + 1)
    assert [data["unread"] for data in phone.data("inbox.badge")] == [1]
    await parts.pass_s(COMPARE_S + 1)
    assert phone.take() == []


@in_virtual_time
async def test_a_reply_with_other_counters_than_the_last_badge_has_them_counted_again(parts: Parts) -> None:
    (phone,) = await devices(parts)
    publish(parts, *await notify(parts))
    await parts.pass_s(1)
    assert [data["unread"] for data in phone.data("inbox.badge")] == [1]
    parts.inboxes.answered((TENANT, "ann"), await parts.store.inbox(TENANT, "ann"))
    await parts.pass_s(1)
    assert phone.take() == []
    marked = await parts.store.mark(TENANT, "ann", "seen", through=1, at=1)
    parts.inboxes.answered((TENANT, "ann"), marked.inbox)
    await parts.pass_s(1)
    assert [data["unseen"] for data in phone.data("inbox.badge")] == [0]


@in_virtual_time
async def test_after_a_gap_of_the_bus_inboxes_of_the_part_are_compared(parts: Parts) -> None:
    class Nowhere(Part):
        def covers(self, tenant: str, name: str) -> bool:
            return name == parts.incarnation and self.is_home

        def __init__(self, *, is_home: bool) -> None:
            self.is_home = is_home

    (phone,) = await devices(parts)
    await notify(parts)
    await parts.inboxes.resync(Nowhere(is_home=False), parts.incarnation)
    await parts.pass_s(1)
    assert phone.take() == []
    await parts.inboxes.resync(Nowhere(is_home=True), parts.incarnation)
    await parts.pass_s(1)
    assert phone.seqs(CREATED) == [1]


@in_virtual_time
async def test_nothing_is_read_or_sent_for_a_user_who_has_left(parts: Parts) -> None:
    (phone,) = await devices(parts)
    found = await notify(parts, 3, ack=True)
    publish(parts, found[0])
    publish(parts, found[2])
    parts.inboxes.left((TENANT, "ann"))
    publish(parts, found[1])
    parts.store.take_calls()
    await parts.pass_s(3 * COMPARE_S)
    assert phone.seqs(CREATED) == [1]
    assert sorted(parts.store.take_calls()) == ["delivered", "inboxes"]  # the receipt and the badge of the first
