"""Delivery of notifications to the Python client, with a real server."""

from __future__ import annotations

import asyncio

import pytest

from e2e.test_client import client, cut, next_of, until
from greendot.client import Cursors, Truncated, body_of
from greendot.protocol.events import NotificationCreated, NotificationUpdated
from greendot.store.inbox import Notice
from greendot.testing import Served, serving

KINDS = {"alarm": {"promise": "acknowledged"}}


async def notify(served: Served, first: int, last: int, kind: str = "news") -> None:
    await served.node.inbox_service.notify(
        [Notice("default", "bob", kind, b"%d" % number, f"k{number}", 0) for number in range(first, last + 1)]
    )


async def test_every_device_receives_each_notification_once_even_when_sockets_are_lost() -> None:
    async with serving() as served, client(served, "bob") as laptop, client(served, "bob", device="phone") as phone:
        told: dict[str, list[int]] = {"laptop": [], "phone": []}
        laptop.on("notification.created", lambda event: told["laptop"].append(event.seq))
        phone.on("notification.created", lambda event: told["phone"].append(event.seq))
        for turn in range(10):
            await notify(served, 5 * turn + 1, 5 * turn + 5)
            cut(served, "bob")
            await notify(served, 5 * turn + 1, 5 * turn + 5)  # the app retries because it does not know the result
        await until(lambda: all(len(numbers) >= 50 for numbers in told.values()))
        assert told == {"laptop": [*range(1, 51)], "phone": [*range(1, 51)]}
        await until(lambda: laptop.state == phone.state == "connected")
        events = phone.events()
        assert (await laptop.inbox.read(through=40)).unread == 10
        assert (await next_of(events, NotificationUpdated)).through == 40
        async with asyncio.timeout(10):
            while (phone.inbox.unread, phone.inbox.unseen) != (10, 10):
                await served.advance(0.3)  # badges are batched
        assert [body_of(entry) async for entry in phone.inbox][-1] == 50


@pytest.mark.parametrize("cursor", [0, 3])
async def test_a_notification_to_acknowledge_arrives_once_and_again_only_after_a_restart_of_the_program(
    cursor: int,
) -> None:
    async with serving(kinds=KINDS) as served:
        await notify(served, 1, 2)
        cursors: Cursors = {"rooms": {}, "inbox": 0}
        async with client(served, "bob", cursors=cursors) as bob:
            events = bob.events()
            await notify(served, 3, 3, "alarm")
            heard = [await next_of(events, NotificationCreated) for _ in range(3)]
            assert [(event.seq, event.ack) for event in heard] == [(1, False), (2, False), (3, True)]
            assert bob.cursors["inbox"] == 3
            await served.advance(6)  # redelivered
            await notify(served, 4, 4)
            assert (await next_of(events, NotificationCreated)).seq == 4
        # The notification was handled and perhaps saved, but the program died before the acknowledgement.
        async with client(served, "bob", cursors={"rooms": {}, "inbox": cursor}) as again:
            events = again.events()
            missed = [await next_of(events, NotificationCreated) for _ in range(2 if cursor else 4)]
            assert [event.seq for event in missed] == ([3, 4] if cursor else [1, 2, 3, 4])
            (alarm,) = [event for event in missed if event.ack]
            await again.inbox.ack(alarm.id)
            assert again.cursors["inbox"] == 4
        async with client(served, "bob", cursors={"rooms": {}, "inbox": 4}) as last:
            events = last.events()
            await notify(served, 5, 5)
            assert (await next_of(events, NotificationCreated)).seq == 5


async def test_an_inbox_far_behind_is_fetched_with_its_ack_flags_or_reported_as_truncated() -> None:
    async with serving(kinds=KINDS) as served:
        await notify(served, 1, 500)
        await notify(served, 501, 501, "alarm")
        await notify(served, 502, 700)
        async with client(served, "bob", cursors={"rooms": {}, "inbox": 10}) as bob:
            events = bob.events()
            told = [await next_of(events, NotificationCreated) for _ in range(690)]
            assert [event.seq for event in told] == [*range(11, 701)]
            assert [event.seq for event in told if event.ack] == [501]
            await notify(served, 701, 701)
            assert (await next_of(events, NotificationCreated)).seq == 701
        await notify(served, 702, 3100)
        async with client(served, "bob", cursors={"rooms": {}, "inbox": 10}) as far:
            events = far.events()
            skipped = await next_of(events, Truncated)
            assert (skipped.stream, skipped.after, skipped.head) == ("inbox", 10, 3100)
            await served.advance(6)  # unacknowledged notifications are redelivered
            alarm = await next_of(events, NotificationCreated)
            assert (alarm.seq, alarm.ack, far.cursors["inbox"]) == (501, True, 3100)
