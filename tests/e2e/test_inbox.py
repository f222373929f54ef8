"""Inboxes: devices receive notifications and marks of other devices once and in order; counters equal a recount."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.processes import Answer, ask
from greendot.engine.messages import InboxChanged, Message, Notified, Part, Topic
from greendot.errors import StoreUnavailable
from greendot.inbox import badges, receipts
from greendot.inbox.kinds_model import RETRIED_S, TIMES
from greendot.node.stream import GAP_S, RECOVER
from greendot.testing import Served, WireClient, serving
from greendot.testing.server import API_KEY

BADGE_S = badges.EVERY_S + 0.01
KINDS = {
    "alarm": {"promise": "acknowledged"},
    "wave": {"promise": "ephemeral"},
    "count": {"promise": "recomputable"},
    "secret": {"bus": "hint"},
}


@asynccontextmanager
async def inboxed(**sections: dict[str, Any]) -> AsyncIterator[Served]:
    """Run a server and check at the end that its counters equal a recount."""
    async with serving(kinds=KINDS, **sections) as served:
        yield served
        await served.settle()
        assert await served.node.store.recount(fix=False) == []


async def post(served: Served, body: Any, **headers: str) -> Answer:
    return await ask(served.port, "POST", "/v1/notifications", body, Authorization=f"Bearer {API_KEY}", **headers)


async def notify(served: Served, user: str = "ann", kind: str = "news", body: Any = 0, **fields: Any) -> dict[str, Any]:
    answer = await post(served, {"user": user, "kind": kind, "body": body, **fields})
    assert answer.status in (200, 201), answer
    await served.settle()
    made: dict[str, Any] = answer.json()
    return made


async def shown(served: Served, query: str = "", user: str = "ann") -> dict[str, Any]:
    answer = await ask(served.port, "GET", f"/v1/users/{user}/inbox{query}", Authorization=f"Bearer {API_KEY}")
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json()
    return found


def of(frames: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [frame["data"] for frame in frames if frame["type"] == kind]


def numbers(frames: list[dict[str, Any]]) -> list[int]:
    return [data["seq"] for data in of(frames, "notification.created")]


class Bus:
    """Bus that holds messages to users until the test delivers them, in an order of its choice."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._deliver = served.node.engine.publish
        self.waiting: list[tuple[Topic, Message]] = []
        served.node.engine.publish = self.hold  # type: ignore[method-assign]

    def hold(self, topic: Topic, message: Message) -> None:
        if isinstance(message, Notified | InboxChanged):
            self.waiting.append((topic, message))
        else:
            self._deliver(topic, message)

    async def deliver(self, *order: int) -> None:
        for index in order:
            self._deliver(*self.waiting[index])
        await self._served.settle()


class Reads:
    """Counters of store reads. With `away` the store does not answer."""

    def __init__(self, served: Served, *names: str) -> None:
        self.counts = dict.fromkeys(names, 0)
        self.away = False
        for name in names:
            self._wrap(served.node.store, name)

    def _wrap(self, store: Any, name: str) -> None:
        asked = getattr(store, name)

        async def counted(*values: Any, **options: Any) -> Any:
            self.counts[name] += 1
            if self.away:
                raise StoreUnavailable("away")
            return await asked(*values, **options)

        setattr(store, name, counted)


# --- new notifications ---


async def test_a_notification_reaches_every_device_and_then_the_count() -> None:
    async with inboxed() as served:
        phone, laptop = await served.client("ann", device="phone"), await served.client("ann", device="laptop")
        bob = await served.client("bob")
        made = await notify(served, body={"text": "hi"})
        for client in (phone, laptop):
            frames = await client.quiet()
            (data,) = of(frames, "notification.created")
            assert len(frames) == 1
            created = data.pop("created_at")
            assert created == served.clock.now_ms()
            assert data == {"seq": 1, "id": made["id"], "kind": "news", "body": {"text": "hi"}, "ack": False}
        await served.advance(BADGE_S)
        for client in (phone, laptop):
            assert of(await client.quiet(), "inbox.badge") == [{"unread": 1, "unseen": 1}]
        assert await bob.quiet() == []
        assert (await served.client("ann")).welcome["unread"] == 1
        assert (await served.client("bob")).welcome["unread"] == 0


async def test_the_badge_is_sent_at_most_four_times_a_second_and_ends_with_the_correct_count() -> None:
    async with inboxed() as served:
        ann = await served.client("ann")
        for number in range(50):
            await notify(served, body=number)
            await served.advance(0.02)
        frames = await ann.quiet()
        ((later),) = await served.advance(1, [ann])
        told = of(frames + later, "inbox.badge")
        assert len(told) <= 5
        assert told[-1] == {"unread": 50, "unseen": 50}


async def test_what_is_published_in_another_order_or_twice_is_seen_in_order_and_once() -> None:
    async with inboxed() as served:
        ann = await served.client("ann")
        bus, reads = Bus(served), Reads(served, "notifications")
        for number in range(4):
            await notify(served, body=number)
        await bus.deliver(1, 3, 0, 0, 2, 3, 1)
        assert numbers(await ann.quiet()) == [1, 2, 3, 4]
        await served.advance(1)
        assert numbers(await ann.quiet()) == []
        assert reads.counts["notifications"] == 0


async def test_what_is_missing_is_read_after_a_moment_once_for_all_devices() -> None:
    async with inboxed() as served:
        devices = [await served.client("ann", device=f"d{number}") for number in range(3)]
        bus, reads = Bus(served), Reads(served, "notifications")
        for number in range(3):
            await notify(served, body=number)
        await bus.deliver(0, 2)
        assert numbers(await devices[0].quiet()) == [1]
        await served.advance(GAP_S + 0.01)
        assert numbers(await devices[0].quiet()) == [2, 3]
        assert [numbers(await device.quiet()) for device in devices[1:]] == [[1, 2, 3]] * 2
        assert reads.counts["notifications"] == 1


async def test_a_lost_hint_is_found_within_seventy_seconds() -> None:
    async with inboxed() as served:
        ann, bob = await served.client("ann"), await served.client("bob")
        Bus(served)
        await notify(served)
        await notify(served, body=1)
        await notify(served, "bob")
        anns, bobs = await served.advance(70, [ann, bob])
        assert numbers(anns) == [1, 2]
        assert numbers(bobs) == [1]
        assert of(anns, "inbox.badge")[-1] == {"unread": 2, "unseen": 2}


async def test_a_badge_change_with_a_lost_message_is_sent_within_seventy_seconds() -> None:
    async with inboxed() as served:
        phone, laptop = await served.client("ann", device="phone"), await served.client("ann", device="laptop")
        await notify(served)
        await served.advance(BADGE_S)
        assert of(await laptop.quiet(), "inbox.badge") == [{"unread": 1, "unseen": 1}]
        Bus(served)
        await phone.request(type="inbox.read", through=1)
        (heard,) = await served.advance(70, [laptop])
        assert of(heard, "inbox.badge") == [{"unread": 0, "unseen": 0}]


async def test_after_a_gap_of_the_bus_everything_is_compared_at_once() -> None:
    async with inboxed() as served:
        ann = await served.client("ann")
        Bus(served)
        await notify(served)
        await served.node.inbox_delivery.resync(Part(), served.node.incarnation)
        ((frames),) = await served.advance(GAP_S + 0.01, [ann])
        assert numbers(frames) == [1]


async def test_while_the_store_is_away_a_gap_waits_and_is_read_later() -> None:
    async with inboxed() as served:
        ann = await served.client("ann")
        bus, reads = Bus(served), Reads(served, "notifications", "inboxes", "delivered")
        for number in range(2):
            await notify(served, body=number)
        reads.away = True
        await bus.deliver(1)
        await served.advance(5)
        assert await ann.quiet() == []
        reads.away = False
        ((frames),) = await served.advance(3, [ann])
        assert numbers(frames) == [1, 2]
        assert of(frames, "inbox.badge")[-1] == {"unread": 2, "unseen": 2}
        await served.advance(2)
        assert all(n["live_at"] for n in (await shown(served))["notifications"])


async def test_numbers_that_are_gone_for_good_do_not_hold_up_the_rest() -> None:
    async with inboxed() as served:
        phone, laptop = await served.client("ann", device="phone"), await served.client("ann", device="laptop")
        bus = Bus(served)
        ids = [(await notify(served, body=number))["id"] for number in range(4)]
        await notify(served, body=4, ttl_s=1)
        await notify(served, body=5)
        await phone.request(type="inbox.archive", ids=[ids[0], ids[2]])
        await served.advance(2)
        await served.job("retention")
        await bus.deliver(5)
        await served.advance(GAP_S + 0.01)
        assert numbers(await laptop.quiet()) == [2, 4, 6]


async def test_too_large_a_gap_is_left_to_the_client() -> None:
    async with inboxed() as served:
        ann = await served.client("ann")
        bus = Bus(served)
        many = [{"user": "ann", "kind": "news", "body": number} for number in range(2 * RECOVER + 5)]
        assert (await post(served, {"notifications": many})).status == 201
        await bus.deliver(len(bus.waiting) - 1)
        await served.advance(GAP_S + 0.01)
        frames = await ann.quiet()
        assert numbers(frames) == [*range(1, RECOVER + 1)]
        assert of(frames, "resync") == [{"scope": "inbox"}]
        await notify(served)
        await bus.deliver(len(bus.waiting) - 1)
        assert numbers(await ann.quiet()) == [2 * RECOVER + 6]


async def test_a_list_reaches_each_of_its_users_in_order() -> None:
    async with inboxed() as served:
        users = [f"user{number}" for number in range(5)]
        clients = [await served.client(user) for user in users]
        many = [{"user": user, "kind": "news", "body": n} for n in range(120) for user in users]
        assert (await post(served, {"notifications": many})).status == 201
        await served.settle()
        for client in clients:
            frames = await client.quiet()
            assert numbers(frames) == [*range(1, 121)]
            assert [data["body"] for data in of(frames, "notification.created")] == [*range(120)]


# --- resume ---


async def test_a_device_that_returns_gets_what_it_missed_before_what_is_live() -> None:
    async with inboxed() as served:
        first = await served.client("ann")
        for number in range(5):
            await notify(served, body=number)
        await first.close()
        back = await served.client("ann", resume={"inbox": 3})
        assert back.welcome["unread"] == 5
        await notify(served, body=5)
        assert numbers(await back.quiet()) == [4, 5, 6]
        fresh = await served.client("ann", device="new")
        assert numbers(await fresh.quiet()) == []
        full = await served.client("ann", device="full", resume={"inbox": 0})
        assert numbers(await full.quiet()) == [1, 2, 3, 4, 5, 6]


async def test_what_was_marked_meanwhile_follows_what_was_missed() -> None:
    async with inboxed() as served:
        phone = await served.client("ann", device="phone")
        ids = [(await notify(served, body=number))["id"] for number in range(4)]
        await phone.request(type="inbox.seen", through=4)
        await phone.request(type="inbox.read", ids=[ids[1]])
        await phone.request(type="inbox.archive", ids=[ids[2]])
        await phone.request(type="inbox.ack", ids=[ids[3]])
        back = await served.client("ann", resume={"inbox": 0})
        frames = await back.quiet()
        assert numbers(frames) == [1, 2, 4]
        assert of(frames, "notification.updated") == [
            {"state": "seen", "ids": [ids[0]]},
            {"state": "read", "ids": [ids[1]]},
            {"state": "acked", "ids": [ids[3]]},
        ]


@pytest.mark.parametrize(("count", "after"), [(RECOVER + 1, 0), (3, 4), (3, 2**53)])
async def test_a_client_too_far_behind_or_ahead_receives_a_resync(count: int, after: int) -> None:
    async with inboxed() as served:
        many = [{"user": "ann", "kind": "news", "body": number} for number in range(count)]
        await post(served, {"notifications": many})
        back = await served.client("ann", resume={"inbox": after})
        frames = await back.quiet()
        assert [(frame["type"], frame["data"]) for frame in frames] == [("resync", {"scope": "inbox"})]
        await notify(served)
        assert numbers(await back.quiet()) == [count + 1]


async def test_who_is_just_not_too_far_behind_gets_it_all() -> None:
    async with inboxed() as served:
        many = [{"user": "ann", "kind": "news", "body": number} for number in range(RECOVER)]
        await post(served, {"notifications": many})
        back = await served.client("ann", resume={"inbox": 0})
        assert numbers(await back.quiet()) == [*range(1, RECOVER + 1)]


async def test_notifications_created_during_the_hello_of_a_device_arrive_once() -> None:
    async with inboxed() as served:
        watcher = await served.client("ann", device="watcher")
        for attempt in range(10):
            client = await served.socket()
            head = 5 * attempt
            client.send(type="hello", token=served.token("ann"), device=f"d{attempt}", resume={"inbox": head})
            await asyncio.gather(*(post(served, {"user": "ann", "kind": "news", "body": n}) for n in range(5)))
            await client.receive("welcome")
            await served.settle()
            assert numbers(await client.quiet()) == [*range(head + 1, head + 6)]
        assert numbers(await watcher.quiet()) == [*range(1, 51)]


async def test_a_device_that_is_ahead_of_the_others_here_sees_nothing_twice() -> None:
    async with inboxed() as served:
        slow = await served.client("ann", device="slow")
        bus = Bus(served)
        for number in range(3):
            await notify(served, body=number)
        # It received them on another connection.
        ahead = await served.client("ann", device="ahead", resume={"inbox": 3})
        await bus.deliver(0, 1, 2)
        assert numbers(await slow.quiet()) == [1, 2, 3]
        assert numbers(await ahead.quiet()) == []


async def test_a_thousand_who_return_at_once_are_a_few_reads() -> None:
    async with inboxed() as served:
        users = [f"user{number}" for number in range(300)]
        await post(served, {"notifications": [{"user": user, "kind": "alarm", "body": 1} for user in users]})
        reads = Reads(served, "inboxes", "pending")
        clients = await asyncio.gather(*(served.socket() for _ in users))
        for client, user in zip(clients, users, strict=True):
            client.send(type="hello", token=served.token(user))
        welcomes = [(await client.receive("welcome"))["data"]["unread"] for client in clients]
        assert welcomes == [1] * 300
        assert [numbers(await client.quiet()) for client in clients] == [[1]] * 300
        assert sum(reads.counts.values()) < 60


async def test_nothing_is_kept_of_a_user_who_has_left() -> None:
    async with inboxed() as served:
        ann = await served.client("ann")
        await notify(served, kind="alarm")
        await ann.quiet()
        await ann.close()
        await served.until_gone()
        await served.advance(60)
        assert served.node.inbox_delivery._local == {}
        assert served.timers == 0


# --- marks ---


async def test_marks_of_one_device_reach_the_others_and_all_devices_receive_the_badge() -> None:
    async with inboxed() as served:
        phone, laptop = await served.client("ann", device="phone"), await served.client("ann", device="laptop")
        ids = [(await notify(served, body=number))["id"] for number in range(4)]
        await served.advance(BADGE_S)
        for client in (phone, laptop):
            await client.quiet()
        assert await phone.request(type="inbox.seen", through=3) == {"unread": 4, "unseen": 1}
        assert await phone.request(type="inbox.read", ids=[ids[1], ids[0]]) == {"unread": 2, "unseen": 1}
        assert await phone.request(type="inbox.archive", ids=[ids[3]]) == {"unread": 1, "unseen": 0}
        assert await phone.request(type="inbox.ack", through=4) == {"unread": 0, "unseen": 0}
        assert await phone.request(type="inbox.ack", through=4) == {"unread": 0, "unseen": 0}
        assert of(await laptop.quiet(), "notification.updated") == [
            {"state": "seen", "ids": ids[:3], "through": 3},
            {"state": "read", "ids": ids[:2]},
            {"state": "archived", "ids": [ids[3]]},
            {"state": "acked", "ids": ids, "through": 4},
        ]
        assert await phone.quiet() == []
        await served.advance(BADGE_S)
        for client in (phone, laptop):
            assert of(await client.quiet(), "inbox.badge") == [{"unread": 0, "unseen": 0}]


async def test_of_very_many_that_were_marked_the_newest_thousand_are_named_and_the_rest_is_to_be_fetched() -> None:
    async with inboxed() as served:
        phone, laptop = await served.client("ann", device="phone"), await served.client("ann", device="laptop")
        bus = Bus(served)  # holds the frames of the new notifications
        many = [{"user": "ann", "kind": "news", "body": 0} for _ in range(1_200)]
        ids = [made["id"] for made in (await post(served, {"notifications": many})).json()["notifications"]]
        assert await phone.request(type="inbox.read", through=1_200) == {"unread": 0, "unseen": 0}
        await bus.deliver(len(bus.waiting) - 1)
        frames = await laptop.quiet()
        assert [frame["type"] for frame in frames] == ["notification.updated", "refresh"]
        assert frames[1]["data"] == {"of": "notification.updated"}
        (told,) = of(frames, "notification.updated")
        assert told == {"state": "read", "ids": ids[200:], "through": 1_200}


async def test_pages_go_both_ways_and_by_filter() -> None:
    async with inboxed() as served:
        ann = await served.client("ann")
        ids = [(await notify(served, body={"n": number}))["id"] for number in range(1, 8)]
        await ann.request(type="inbox.read", ids=[ids[0], ids[1]])
        await ann.request(type="inbox.archive", ids=[ids[2]])

        async def listed(**fields: Any) -> list[int]:
            return [entry["seq"] for entry in (await ann.request(type="inbox.list", **fields))["notifications"]]

        assert await listed() == [1, 2, 4, 5, 6, 7]
        assert await listed(limit=2) == [6, 7]
        assert await listed(before=6, limit=2) == [4, 5]
        assert await listed(after=1, limit=2) == [2, 4]
        assert await listed(after=7) == []
        assert await listed(filter="unread") == [4, 5, 6, 7]
        assert await listed(filter="archived") == [3]
        page = await ann.request(type="inbox.list", filter="archived")
        assert (page["head"], page["unread"], page["unseen"]) == (7, 4, 4)
        (entry,) = page["notifications"]
        now = served.clock.now_ms()
        assert entry == {
            "seq": 3,
            "id": ids[2],
            "kind": "news",
            "body": {"n": 3},
            "created_at": now,
            "seen_at": now,
            "read_at": now,
            "archived_at": now,
            "acked_at": None,
            "ack": False,
        }


async def test_counts_equal_a_recount_whatever_happens_at_once() -> None:
    async with inboxed(limits={"enabled": False}) as served:
        devices = [await served.client("ann", device=f"d{number}") for number in range(3)]
        ids = [(await notify(served, body=number))["id"] for number in range(30)]

        async def mark(device: WireClient, number: int) -> None:
            marks: Sequence[dict[str, Any]] = (
                {"type": "inbox.read", "through": number},
                {"type": "inbox.archive", "ids": ids[number : number + 3]},
                {"type": "inbox.seen", "through": 2 * number},
                {"type": "inbox.ack", "ids": ids[: number // 2 + 1]},
            )
            await device.request(**marks[number % 4])

        async def marks(device: WireClient, first: int) -> None:
            for number in range(first, 28, 3):
                await mark(device, number)

        creating = [post(served, {"user": "ann", "kind": "news", "body": n}) for n in range(20)]
        await asyncio.gather(*creating, *(marks(device, first) for first, device in enumerate(devices)))
        everything = await asyncio.gather(*(d.request(type="inbox.read", through=2**53) for d in devices))
        assert everything[-1] == {"unread": 0, "unseen": 0}
        await served.advance(1)
        for device in devices:
            assert of(await device.quiet(), "inbox.badge")[-1] == {"unread": 0, "unseen": 0}


# --- kinds ---


async def test_ephemeral_kinds_are_signals_and_never_kept() -> None:
    async with inboxed() as served:
        ann = await served.client("ann")
        for body in (1, 2):
            assert await notify(served, kind="wave", body=body) == {"id": None, "seq": None, "new": True}
        signals = of(await ann.quiet(), "signal")
        assert [(s["from"], s["kind"], s["body"]) for s in signals] == [("system", "wave", 1), ("system", "wave", 2)]
        assert (await shown(served))["head"] == 0
        await served.advance(BADGE_S)
        assert await ann.quiet() == []


async def test_of_recomputable_kinds_the_latest_of_a_key_wins_for_a_slow_reader() -> None:
    async with inboxed() as served:
        client = await served.client("ann")
        (connection,) = served.node.registry.connections.values()
        connection.hold()  # as for a slow reader
        for number in range(5):
            await notify(served, kind="count", body=number)
            await notify(served, kind="count", body=10 + number, key="other")
            await notify(served, kind="wave", body=number)
        connection.release([])
        frames = await client.quiet()
        assert [s["body"] for s in of(frames, "signal") if s["kind"] == "count"] == [4, 14]
        assert [s["body"] for s in of(frames, "signal") if s["kind"] == "wave"] == [0, 1, 2, 3, 4]


async def test_content_of_a_kind_that_is_only_hinted_at_stays_off_the_bus() -> None:
    async with inboxed() as served:
        ann = await served.client("ann")
        bus = Bus(served)
        await notify(served, kind="secret", body={"pin": 1234})
        await notify(served, kind="news", body=2)
        assert bus.waiting[0][1] == Notified([(1, b"", False)])
        await bus.deliver(0, 1)
        await served.advance(0.02)
        assert [d["body"] for d in of(await ann.quiet(), "notification.created")] == [{"pin": 1234}, 2]


async def test_what_is_to_be_acknowledged_comes_again_until_it_is() -> None:
    async with inboxed() as served:
        phone, laptop = await served.client("ann", device="phone"), await served.client("ann", device="laptop")
        made = await notify(served, kind="alarm")
        (first,) = of(await phone.quiet(), "notification.created")
        assert (first["ack"], first["id"]) == (True, made["id"])
        times, start = [], served.clock.now_ms()
        for _ in range(40):
            frames, _ = await served.advance(1, [phone, laptop])
            times += [served.clock.now_ms() - start for _ in of(frames, "notification.created")]
        assert times == [5_000, 15_000, 35_000]
        await laptop.request(type="inbox.read", ids=[made["id"]])  # read is not acknowledged
        frames, _ = await served.advance(40, [phone, laptop])
        assert numbers(frames) == [1]
        await laptop.request(type="inbox.ack", ids=[made["id"]])
        frames, others = await served.advance(300, [phone, laptop])
        assert numbers(frames) == numbers(others) == []
        assert of(frames, "notification.updated") == [{"state": "acked", "ids": [made["id"]]}]


async def test_it_comes_again_at_its_moment_also_where_the_sum_of_seconds_lies_a_hair_beyond() -> None:
    moment_ms = next(ms for ms in range(1, 10_000) if ms / 1000 + 5.0 > (ms + 5_000) / 1000)
    async with inboxed() as served:
        ann = await served.client("ann")
        await served.advance(moment_ms / 1000, [ann])
        await notify(served, kind="alarm")
        assert numbers(await ann.quiet()) == [1]
        ((frames),) = await served.advance(5, [ann])
        assert numbers(frames) == [1]


async def test_an_acknowledgement_that_this_node_was_not_notified_of_counts() -> None:
    async with inboxed() as served:
        ann = await served.client("ann")
        made = await notify(served, kind="alarm")
        await served.node.store.mark("default", "ann", "ack", ids=[made["id"]], at=served.clock.now_ms())
        ((frames),) = await served.advance(300, [ann])
        assert numbers(frames) == [1]  # the first delivery only


async def test_what_is_never_acknowledged_is_given_up_and_counted_after_the_last_time() -> None:
    async with inboxed() as served:
        ann = await served.client("ann")
        await notify(served, kind="alarm")
        await notify(served, "bob", kind="alarm")  # not redelivered: the user is offline
        ((frames),) = await served.advance(RETRIED_S - 61, [ann])
        assert numbers(frames) == [1] * TIMES
        assert served.node.metrics.inbox_unacknowledged_total == 0
        ((frames),) = await served.advance(600, [ann])
        assert numbers(frames) == [1]  # the tenth delivery
        assert served.node.metrics.inbox_unacknowledged_total == 1


async def test_what_is_not_acknowledged_when_the_last_device_leaves_is_not_counted_as_given_up() -> None:
    async with inboxed() as served:
        ann = await served.client("ann")
        await notify(served, kind="alarm")
        await ann.close()
        await served.until_gone()
        await served.advance(2 * RETRIED_S)
        assert served.node.metrics.inbox_unacknowledged_total == 0


async def test_what_waits_to_be_acknowledged_is_sent_to_a_device_that_comes() -> None:
    async with inboxed() as served:
        for number in range(4):
            await notify(served, kind="alarm" if number != 1 else "news", body=number)
        fresh = await served.client("ann", device="fresh")
        assert numbers(await fresh.quiet()) == [1, 3, 4]
        back = await served.client("ann", device="back", resume={"inbox": 1})
        frames = await back.quiet()
        assert numbers(frames) == [1, 2, 3, 4]
        assert [d["ack"] for d in of(frames, "notification.created")] == [True, False, True, True]
        await back.request(type="inbox.ack", through=3)
        later = await served.client("ann", device="later", resume={"inbox": 4})
        assert numbers(await later.quiet()) == [4]
        frames, _ = await served.advance(5.01, [later, back])
        assert numbers(frames) == [4]


async def test_what_waits_to_be_acknowledged_survives_a_restart(tmp_path: Path) -> None:
    store = {"url": f"sqlite:///{tmp_path / 'greendot.db'}"}
    async with inboxed(store=store) as served:
        ann = await served.client("ann")
        ids = [(await notify(served, kind="alarm", body=number))["id"] for number in range(2)]
        await ann.request(type="inbox.ack", ids=[ids[0]])
    async with inboxed(store=store) as served:
        ann = await served.client("ann", resume={"inbox": 2})
        assert numbers(await ann.quiet()) == [2]
        ((frames),) = await served.advance(5.01, [ann])
        assert numbers(frames) == [2]
        assert await ann.request(type="inbox.ack", ids=[ids[1]]) == {"unread": 0, "unseen": 0}
        ((frames),) = await served.advance(100, [ann])
        assert numbers(frames) == []


async def test_very_many_that_wait_to_be_acknowledged_are_sent_again_in_turns() -> None:
    async with inboxed() as served:
        ann = await served.client("ann")
        many = [{"user": "ann", "kind": "alarm", "body": number} for number in range(150)]
        await post(served, {"notifications": many})
        await served.settle()
        assert numbers(await ann.quiet()) == [*range(1, 151)]
        ((frames),) = await served.advance(6, [ann])
        assert numbers(frames) == [*range(1, 101)]
        await ann.request(type="inbox.ack", through=100)
        await ann.quiet()
        ((frames),) = await served.advance(130, [ann])
        assert {*numbers(frames)} == {*range(101, 151)}
        await ann.request(type="inbox.ack", through=150)
        await ann.quiet()
        ((frames),) = await served.advance(300, [ann])
        assert numbers(frames) == []
        assert served.node.inbox_delivery._local["default", "ann"].pending_acks is None


# --- history of a notification ---


async def test_when_it_was_given_to_a_device_is_noted_together() -> None:
    async with inboxed() as served:
        await notify(served, body=0)
        ann = await served.client("ann")
        reads = Reads(served, "delivered")
        for number in range(1, 20):
            await notify(served, body=number)
            await notify(served, "bob")
        given = served.clock.now_ms()
        await served.advance(receipts.EVERY_S + 0.01)
        await ann.request(type="inbox.seen", through=2)
        found = (await shown(served))["notifications"]
        assert [n["live_at"] is not None for n in found] == [False] + [True] * 19
        assert given <= found[1]["live_at"] <= served.clock.now_ms()
        assert [n["seen_at"] is not None for n in found] == [True, True] + [False] * 18
        assert {n["push_at"] for n in found} == {None}
        assert reads.counts["delivered"] == 1
        bobs = (await shown(served, user="bob"))["notifications"]
        assert {n["live_at"] for n in bobs} == {None}
        await served.client("ann", device="other", resume={"inbox": 0})
        await served.advance(receipts.EVERY_S + 0.01)
        assert all(n["live_at"] for n in (await shown(served))["notifications"])


# --- expiry ---


async def test_what_has_expired_or_is_old_goes_and_is_no_longer_counted() -> None:
    async with inboxed(inbox={"keep_days": 1}) as served:
        ann = await served.client("ann")
        await notify(served, body=0, ttl_s=60)
        await notify(served, body=1, expires_at=served.clock.now_ms() + 90_000)
        await notify(served, body=2)
        await served.advance(91, [ann])
        await served.job("retention")
        ((frames),) = await served.advance(badges.EVERY_S, [ann])
        assert of(frames, "inbox.badge")[-1] == {"unread": 1, "unseen": 1}
        assert [n["body"] for n in (await shown(served))["notifications"]] == [2]
        await ann.close()
        served.clock.advance(86_400)
        await served.job("retention")
        assert (await shown(served)) == {"notifications": [], "head": 3, "unread": 0, "unseen": 0}
        assert (await served.client("ann", resume={"inbox": 0})).welcome["unread"] == 0


async def test_what_has_expired_is_not_announced_any_more_though_it_is_still_kept() -> None:
    async with inboxed() as served:
        await notify(served, body=0, ttl_s=5, kind="alarm")
        await notify(served, body=1)
        await served.advance(6)
        back = await served.client("ann", resume={"inbox": 0})
        assert numbers(await back.quiet()) == [2]
        fresh = await served.client("ann")
        assert numbers(await fresh.quiet()) == []


# --- random sequences ---


class Device:
    """Client that keeps its cursor and resumes with it."""

    def __init__(self, name: str, cursor: int) -> None:
        self.name = name
        self.seen: list[int] = []
        self.cursor = self.first = cursor
        self.client: WireClient | None = None

    async def come(self, served: Served) -> None:
        self.client = await served.client("ann", device=self.name, resume={"inbox": self.cursor})

    async def go(self) -> None:
        await self.look()
        if self.client is not None:
            await self.client.reset()
            self.client = None

    async def look(self) -> None:
        if self.client is not None:
            self.seen += numbers(await self.client.quiet())
            self.cursor = max([self.cursor, *self.seen])


class Weather(Bus):
    """Bus that loses three of ten messages, duplicates some and delays some."""

    def __init__(self, served: Served, chance: random.Random) -> None:
        super().__init__(served)
        self._chance = chance
        self.lost_from = 0.7

    def hold(self, topic: Topic, message: Message) -> None:
        if not isinstance(message, Notified | InboxChanged):
            self._deliver(topic, message)
            return
        fate = self._chance.random()
        if fate >= self.lost_from:
            return
        if fate < 0.5:
            self._deliver(topic, message)
        else:
            self.waiting.append((topic, message))
        if fate < 0.1 or (self.waiting and self._chance.random() < 0.5):
            self._deliver(
                *self.waiting.pop(self._chance.randrange(len(self.waiting))) if self.waiting else (topic, message)
            )


@pytest.mark.parametrize("seed", range(25))
async def test_whatever_becomes_of_signals_and_sockets_each_device_sees_all_once_and_in_order(seed: int) -> None:
    chance = random.Random(seed)
    async with inboxed(limits={"enabled": False}, presence={"grace_s": 1.0, "clean_grace_s": 1.0}) as served:
        weather = Weather(served, chance)
        devices = [Device(f"d{number}", 0) for number in range(3)]
        head = 0
        for _ in range(60):
            device = chance.choice(devices)
            match chance.choice(("notify", "notify", "many", "come", "go", "mark", "wait", "wait")):
                case "notify":
                    head = (await notify(served, kind=chance.choice(("news", "secret")), body=0))["seq"]
                case "many":
                    many = [{"user": "ann", "kind": "news", "body": n} for n in range(chance.randrange(1, 8))]
                    head = (await post(served, {"notifications": many})).json()["notifications"][-1]["seq"]
                case "come" if device.client is None:
                    await device.come(served)
                case "go":
                    await device.go()
                case "mark" if device.client is not None:
                    await device.client.request(
                        type=chance.choice(("inbox.seen", "inbox.read")), through=chance.randrange(head + 2)
                    )
                case "wait":
                    await served.advance(chance.choice((0.01, 0.06, 1.0, 3.0)))
            await device.look()
        for device in devices:
            if device.client is None:
                await device.come(served)
        weather.lost_from = 0.0 if seed % 2 else weather.lost_from  # with odd seeds all later messages are lost
        for _ in range(3):
            head = (await notify(served))["seq"]
        there = [device.client for device in devices if device.client is not None]
        for device, frames in zip(devices, await served.advance(70, there), strict=True):
            device.seen += numbers(frames)
            assert device.seen == [*range(1, head + 1)], f"seed {seed}"
            assert of(frames, "inbox.badge")[-1:] in ([], [of_all(await shown(served))])


def of_all(inbox: dict[str, Any]) -> dict[str, int]:
    return {"unread": inbox["unread"], "unseen": inbox["unseen"]}
