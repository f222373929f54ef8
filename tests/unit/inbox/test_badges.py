"""Badges: the stored counters of an inbox, sent to all devices of its user, rarely and in order."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from greendot.ids import Key
from greendot.inbox import badges
from greendot.inbox.badges import AGAIN_S, EVERY_S, Badges
from greendot.store.inbox import Inbox
from unit.service_parts import TENANT, TICK_S, Parts, RecordedConnection, in_virtual_time

ANN, BOB, CID = (TENANT, "ann"), (TENANT, "bob"), (TENANT, "cid")


def make(parts: Parts) -> tuple[Badges, list[Mapping[Key, Inbox]]]:
    """Make badges, and a list of the inboxes they have read."""
    read: list[Mapping[Key, Inbox]] = []
    return Badges(parts.store, parts.context, parts.metrics, read.append), read


async def notify(parts: Parts, user: str, count: int = 1) -> None:
    await parts.store.notify([parts.notice(user) for _ in range(count)])


def counts(connection: RecordedConnection) -> list[int]:
    return [data["unread"] for data in connection.data("inbox.badge")]


@in_virtual_time
async def test_changes_of_one_period_are_one_badge_for_each_device(parts: Parts) -> None:
    phone, laptop, bob = [await parts.connect(user) for user in ("ann", "ann", "bob")]
    sending, read = make(parts)
    await notify(parts, "ann", 3)
    await parts.store.mark(TENANT, "ann", "seen", through=2, at=1)
    parts.store.take_calls()
    for _ in range(3):
        sending.changed([ANN])
    await parts.pass_s(EVERY_S + TICK_S)
    assert phone.data() == laptop.data() == [{"unread": 3, "unseen": 1}]
    assert bob.take() == []
    assert read == [{ANN: Inbox(3, 3, 1)}]
    await parts.pass_s(4 * EVERY_S)
    assert (parts.store.take_calls(), phone.take()) == (["inboxes"], [])


@in_virtual_time
async def test_the_moment_of_a_badge_does_not_depend_on_who_changed_first(parts: Parts) -> None:
    ann, bob = await parts.connect("ann"), await parts.connect("bob")
    sending, _ = make(parts)
    await parts.pass_s(EVERY_S - parts.now() % EVERY_S + EVERY_S / 2)
    sending.changed([ANN])
    await parts.pass_s(EVERY_S / 2 - TICK_S)
    sending.changed([BOB])
    assert ann.take() == []
    await parts.pass_s(2 * TICK_S)
    assert (counts(ann), counts(bob)) == ([0], [0])  # an inbox without notifications has no unread ones


@in_virtual_time
async def test_a_change_during_a_read_is_read_after_it_and_sent_last(parts: Parts) -> None:
    ann = await parts.connect("ann")
    sending, _ = make(parts)
    await notify(parts, "ann")
    sending.changed([ANN])
    async with parts.store.holding("inboxes", "after") as held:
        await held.reached()
        await notify(parts, "ann")
        sending.changed([ANN])
        await parts.pass_s(4 * EVERY_S)
        assert held.calls == 1  # one read at a time
    await parts.pass_s(EVERY_S + TICK_S)
    assert counts(ann) == [1, 2]


@in_virtual_time
async def test_badges_are_sent_when_the_store_is_back(parts: Parts) -> None:
    ann, bob = await parts.connect("ann"), await parts.connect("bob")
    sending, read = make(parts)
    parts.store.thread.is_away = True
    sending.changed([ANN])
    async with parts.store.holding("inboxes") as held:
        await held.reached()
        sending.changed([BOB])
    await parts.pass_s(AGAIN_S + TICK_S)
    assert (parts.store.take_calls(), read) == (["inboxes"] * 2, [])
    parts.store.thread.is_away = False
    await parts.pass_s(AGAIN_S)
    assert (counts(ann), counts(bob)) == ([0], [0])


@in_virtual_time
async def test_many_inboxes_are_several_reads_and_only_those_that_failed_are_read_again(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(badges, "AT_ONCE", 2)
    connections = [await parts.connect(user) for user in ("ann", "bob", "cid")]
    sending, _ = make(parts)
    sending.changed([ANN, BOB, CID])
    async with parts.store.holding("inboxes", "after") as held:
        await held.reached()
        parts.store.thread.is_away = True
    await parts.settle()
    parts.store.thread.is_away = False
    await parts.pass_s(AGAIN_S + TICK_S)
    assert [counts(connection) for connection in connections] == [[0]] * 3
    assert parts.store.take_calls() == ["inboxes"] * 3


@in_virtual_time
async def test_a_slow_device_gets_the_last_badge_only(parts: Parts) -> None:
    ann = await parts.connect("ann")
    sending, _ = make(parts)
    ann.become_slow()
    for _ in range(3):
        await notify(parts, "ann")
        sending.changed([ANN])
        await parts.pass_s(EVERY_S + TICK_S)
    ann.keep_up()
    assert counts(ann) == [3]
    assert parts.metrics.inbox_badges_total == 3
