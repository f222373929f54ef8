"""Changes of inboxes by apps and devices: stored first, then published, by the promise of each kind."""

from __future__ import annotations

from typing import Any

import pytest

from greendot.engine.messages import Deliver, InboxChanged, Notified, Topic
from greendot.errors import Refused, StoreUnavailable
from greendot.inbox import service
from greendot.inbox.badges import EVERY_S
from greendot.inbox.kinds_model import NotificationKind
from greendot.inbox.service import TOGETHER
from greendot.protocol import commands as wire
from greendot.protocol.codes import Err
from greendot.push.policy_model import QueuePolicy
from greendot.store.inbox import Notice
from unit.service_parts import TENANT, TICK_S, Parts, RecordedConnection, in_virtual_time

ANN = Topic("user", TENANT, "ann")


async def devices(parts: Parts) -> tuple[RecordedConnection, RecordedConnection]:
    """Attach two devices of ann to the inbox."""
    phone, laptop = await parts.connect("ann"), await parts.connect("ann")
    for device in (phone, laptop):
        await parts.attach(device)
    return phone, laptop


async def mark(parts: Parts, connection: RecordedConnection, command: wire.InboxMark) -> tuple[int, int]:
    reply = await parts.inbox_service.mark(connection, connection.session, command)
    return reply.unread, reply.unseen


def sent(parts: Parts) -> list[tuple[str, list[tuple[int, bool, bool]]]]:
    """Return the published records by user: number, whether a frame is included, whether an ack is required."""
    return [
        (topic.name, [(seq, bool(frame), ack) for seq, frame, ack in message.records])
        for topic, message in parts.engine.published
        if isinstance(message, Notified)
    ]


@in_virtual_time
async def test_notifications_are_published_only_when_they_are_written(parts: Parts) -> None:
    parts.store.thread.failing["notify"] = StoreUnavailable("away")
    with pytest.raises(StoreUnavailable):
        await parts.inbox_service.notify([parts.notice("ann")])
    assert (parts.engine.published, parts.metrics.inbox_notified_total) == ([], 0)
    del parts.store.thread.failing["notify"]
    created = await parts.inbox_service.notify([parts.notice(user) for user in ("ann", "bob", "ann")])
    assert [made and made.notification.seq for made in created] == [1, 1, 2]
    assert sent(parts) == [("ann", [(1, True, False), (2, True, False)]), ("bob", [(1, True, False)])]
    assert (parts.store.calls, parts.metrics.inbox_notified_total) == (["notify"] * 2, 3)


@in_virtual_time
async def test_a_notification_with_a_known_key_is_published_again_and_counted_once(parts: Parts) -> None:
    for is_new in (True, False):
        (made,) = await parts.inbox_service.notify([parts.notice("ann", key="k1")])
        assert made is not None
        assert (made.new, made.notification.seq) == (is_new, 1)
    assert sent(parts) == [("ann", [(1, True, False)])] * 2
    assert parts.metrics.inbox_notified_total == 1


@in_virtual_time
async def test_kinds_that_are_not_kept_are_signals_and_the_recomputable_ones_replace_each_other(parts: Parts) -> None:
    parts.kinds |= {"poke": NotificationKind("ephemeral"), "score": NotificationKind("recomputable")}
    ann = await parts.connect("ann")
    ann.become_slow()
    notices = [Notice(TENANT, "ann", kind, b"%d" % n, "k", 0) for n, kind in enumerate(["poke", "score"] * 2)]
    assert await parts.inbox_service.notify(notices) == [None] * 4
    ann.keep_up()
    signals = ann.data("signal")
    assert sorted((data["kind"], data["body"]) for data in signals) == [("poke", 0), ("poke", 2), ("score", 3)]
    assert {data["from"] for data in signals} == {"system"}
    assert (parts.store.calls, parts.metrics.inbox_notified_total) == ([], 4)


@in_virtual_time
async def test_kept_and_unkept_kinds_of_one_call_are_answered_in_their_order(parts: Parts) -> None:
    parts.kinds["poke"] = NotificationKind("ephemeral")
    notices = [parts.notice("ann", kind=kind) for kind in ("poke", "mention", "poke", "mention")]
    created = await parts.inbox_service.notify(notices)
    assert [made and made.notification.seq for made in created] == [None, 1, None, 2]


@in_virtual_time
async def test_the_kind_decides_on_acknowledgement_and_whether_content_travels(parts: Parts) -> None:
    parts.kinds["secret"] = NotificationKind("durable", "hint")
    notices = [parts.notice("ann", kind=kind, ack=True) for kind in ("mention", "alarm", "secret")]
    await parts.inbox_service.notify(notices)
    assert sent(parts) == [("ann", [(1, True, False), (2, True, True), (3, False, False)])]
    kept = await parts.store.notifications(TENANT, "ann", limit=10)
    assert [notification.ack for notification in kept] == [False, True, False]
    await parts.store.mark(TENANT, "ann", "ack", through=3, at=1)
    parts.engine.published.clear()
    await parts.inbox_service.notify(notices[1:2])
    assert sent(parts) == [("ann", [(2, True, False)])]  # acknowledged meanwhile


@in_virtual_time
async def test_many_notifications_of_one_user_are_a_few_messages(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    await parts.inbox_service.notify([parts.notice("ann") for _ in range(2 * TOGETHER + 1)])
    assert [len(records) for _, records in sent(parts)] == [TOGETHER, TOGETHER, 1]
    parts.engine.published.clear()
    monkeypatch.setattr(service, "TOGETHER_BYTES", 200)
    await parts.inbox_service.notify([parts.notice("ann") for _ in range(4)])
    assert [len(records) for _, records in sent(parts)] == [2, 2]


@in_virtual_time
async def test_the_push_worker_is_called_for_kinds_and_tenants_that_push(parts: Parts) -> None:
    parts.queue_policies |= {"": QueuePolicy(True, frozenset({"quiet"})), "silent": QueuePolicy()}
    await parts.inbox_service.notify(
        [
            parts.notice("ann", kind="quiet"),
            parts.notice("ann", push=False),
            parts.notice("ann", tenant="silent"),
        ]
    )
    assert parts.pushes == 0
    await parts.inbox_service.notify([parts.notice("ann"), parts.notice("bob")])
    assert parts.pushes == 1


@in_virtual_time
async def test_a_page_has_one_bound_and_shows_the_counters_of_its_moment(parts: Parts) -> None:
    phone, laptop = await devices(parts)
    await parts.store.notify([parts.notice("ann") for _ in range(3)])
    await parts.store.mark(TENANT, "ann", "seen", through=2, at=1)
    page = await parts.inbox_service.page(phone.session, wire.InboxList(before=3, limit=1))
    assert [entry.seq for entry in page.notifications] == [2]
    assert (page.head, page.unread, page.unseen) == (3, 3, 1)
    await parts.pass_s(EVERY_S + TICK_S)
    assert [data["unread"] for data in laptop.data("inbox.badge")] == [3]  # the devices had older counters
    with pytest.raises(Refused) as refused:
        await parts.inbox_service.page(phone.session, wire.InboxList(before=3, after=1))
    assert refused.value.code == Err.BAD_FIELD


@pytest.mark.parametrize("given", [{}, {"ids": ["1-a"], "through": 1}])
@in_virtual_time
async def test_a_mark_names_ids_or_a_number_and_not_both(parts: Parts, given: dict[str, Any]) -> None:
    ann = await parts.connect("ann")
    with pytest.raises(Refused) as refused:
        await mark(parts, ann, wire.InboxRead(**given))
    assert (refused.value.code, parts.store.calls) == (Err.BAD_FIELD, [])


@in_virtual_time
async def test_a_mark_is_published_to_the_other_devices_and_its_reply_has_the_counters(parts: Parts) -> None:
    phone, laptop = await devices(parts)
    created = await parts.store.notify([parts.notice("ann") for _ in range(3)])
    ids = [made.notification.id for made in created]
    assert await mark(parts, phone, wire.InboxRead(ids=[ids[1], "9-unknown"])) == (2, 2)
    assert await mark(parts, phone, wire.InboxSeen(through=2)) == (2, 1)
    await parts.settle()
    assert laptop.data("notification.updated") == [
        {"state": "read", "ids": [ids[1]]},
        {"state": "seen", "ids": [ids[0]], "through": 2},
    ]
    assert phone.take() == []


@in_virtual_time
async def test_a_mark_that_changes_nothing_is_not_published(parts: Parts) -> None:
    phone, laptop = await devices(parts)
    await parts.store.notify([parts.notice("ann")])
    await parts.store.mark(TENANT, "ann", "read", through=1, at=1)  # no device received this change
    parts.engine.published.clear()
    assert await mark(parts, phone, wire.InboxRead(through=1)) == (0, 0)
    assert parts.engine.published == []
    await parts.store.notify([parts.notice("ann")])
    assert await mark(parts, phone, wire.InboxRead(through=1)) == (1, 1)
    await parts.pass_s(EVERY_S + TICK_S)
    badges = [data["unread"] for data in laptop.data("inbox.badge")]
    assert badges == [1]  # the counters in the reply differ from those of the devices


@in_virtual_time
async def test_only_an_acknowledgement_ends_redelivery_on_other_nodes(parts: Parts) -> None:
    ann = await parts.connect("ann")
    created = await parts.store.notify([parts.notice("ann", ack=True) for _ in range(4)])
    ids = [made.notification.id for made in created]
    await mark(parts, ann, wire.InboxRead(ids=ids[:1]))
    await mark(parts, ann, wire.InboxAck(ids=ids[1:2]))
    await mark(parts, ann, wire.InboxAck(through=3))
    told = parts.engine.sent(InboxChanged)
    assert [(message.acked, message.acked_through) for message in told] == [([], 0), ([2], 0), ([], 3)]


@in_virtual_time
async def test_of_very_many_marked_notifications_the_newest_are_named_and_the_rest_is_to_be_fetched(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MOST_IDS", 2)
    phone, laptop = await devices(parts)
    created = await parts.store.notify([parts.notice("ann") for _ in range(5)])
    ids = [made.notification.id for made in created]
    await mark(parts, phone, wire.InboxSeen(through=2))
    await parts.settle()
    assert [frame["type"] for frame in laptop.take()] == ["notification.updated"]
    await mark(parts, phone, wire.InboxSeen(through=5))
    await parts.settle()
    updated, refresh = laptop.take()
    assert (updated["data"]["ids"], refresh["data"]) == (ids[3:], {"of": "notification.updated"})
    assert parts.engine.sent(Deliver) == []
