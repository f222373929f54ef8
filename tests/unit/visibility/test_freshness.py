"""Freshness: a node that may have missed changes reads them before it shows users."""

from __future__ import annotations

import asyncio

from greendot.engine.messages import Message, StatusChanged, Topic, VisibilityChanged
from greendot.errors import StoreUnavailable
from greendot.visibility.freshness import FRESH_S, LONGEST_S, VisibilityFreshness
from unit.service_parts import TENANT, TICK_S, Parts, in_virtual_time

HALL, NODE = Topic("room", TENANT, "hall"), Topic("node", "", "here")


class Lab:
    """Freshness whose reads and reviews are under control. `events` has what happened, in order."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.events: list[str] = []
        self.may_read, self.may_review = asyncio.Event(), asyncio.Event()
        self.may_read.set()
        self.may_review.set()
        self.found: dict[str, set[str]] = {}
        self.failure: Exception | None = None
        parts.heard_at = parts.now()
        self.freshness = made = VisibilityFreshness(lambda: parts.heard_at, parts.context)
        made.read, made.review, made.deliver = self.read, self.review, self.deliver

    async def read(self) -> dict[str, set[str]]:
        self.events.append("reads")
        await self.may_read.wait()
        if self.failure is not None:
            raise self.failure
        return self.found

    async def review(self, changed: object) -> None:
        self.events.append(f"reviews {changed}")
        await self.may_review.wait()

    def deliver(self, topic: Topic, message: Message) -> None:
        self.events.append(topic.kind)

    def receive(self, topic: Topic = HALL) -> None:
        self.freshness.receive(topic, StatusChanged())

    def take(self) -> list[str]:
        taken, self.events = self.events, []
        return taken


@in_virtual_time
async def test_a_node_is_fresh_for_some_time_after_a_beat(parts: Parts) -> None:
    lab = Lab(parts)
    assert lab.freshness.is_fresh()
    await parts.pass_s(FRESH_S - TICK_S)
    lab.receive()
    parts.heard_at = parts.now()
    await parts.pass_s(FRESH_S - TICK_S)
    lab.receive()
    assert lab.take() == ["room", "room"]
    await parts.pass_s(2 * TICK_S)
    assert not lab.freshness.is_fresh()


@in_virtual_time
async def test_messages_wait_until_changes_are_read_and_reviewed_and_keep_their_order(parts: Parts) -> None:
    lab = Lab(parts)
    lab.found = {TENANT: {"ann"}}
    lab.may_read.clear()
    lab.may_review.clear()
    await parts.pass_s(FRESH_S + TICK_S)
    for kind in ("room", "watch", "node", "user"):
        lab.receive(Topic(kind, TENANT, "x"))  # type: ignore[arg-type]
    await parts.settle()
    assert lab.take() == ["node", "reads"]
    lab.may_read.set()
    await parts.settle()
    assert lab.freshness.is_fresh()
    lab.receive(Topic("inbox", TENANT, "x"))  # type: ignore[arg-type]
    assert lab.take() == [f"reviews {lab.found}"]
    lab.may_review.set()
    await parts.settle()
    lab.receive()
    assert lab.take() == ["room", "watch", "user", "inbox", "room"]


@in_virtual_time
async def test_who_needs_facts_waits_for_the_read_and_not_for_the_review(parts: Parts) -> None:
    lab = Lab(parts)
    await asyncio.wait_for(lab.freshness.known(), TICK_S)
    lab.may_read.clear()
    lab.may_review.clear()
    lab.freshness.doubt()
    waiting = [asyncio.ensure_future(lab.freshness.known()) for _ in range(2)]
    lab.receive()
    await parts.settle()
    assert not any(waiter.done() for waiter in waiting)
    waiting.pop().cancel()
    lab.may_read.set()
    await parts.settle()
    assert waiting[0].done()
    assert lab.take() == ["reads", "reviews {}"]


@in_virtual_time
async def test_a_doubt_during_a_read_or_a_review_needs_another_read(parts: Parts) -> None:
    lab = Lab(parts)
    lab.may_read.clear()
    lab.may_review.clear()
    lab.freshness.doubt()
    await parts.settle()
    lab.freshness.doubt()
    lab.receive()
    lab.may_read.set()
    await parts.settle()
    assert lab.take() == ["reads", "reads", "reviews {}"]
    lab.found = {TENANT: {"ann"}}
    lab.may_read.clear()
    lab.freshness.doubt()
    lab.may_review.set()
    await parts.settle()
    assert lab.take() == ["reads"]  # the message waits for this read
    lab.may_read.set()
    await parts.settle()
    assert lab.take() == [f"reviews {lab.found}", "room"]


@in_virtual_time
async def test_many_messages_are_delivered_in_slices(parts: Parts) -> None:
    lab = Lab(parts)
    lab.freshness.doubt()
    for _ in range(1_000):
        lab.receive()
    await parts.settle()
    assert lab.take() == ["reads", "reviews {}", *["room"] * 1_000]
    lab.receive()
    assert lab.take() == ["room"]


@in_virtual_time
async def test_without_the_store_messages_do_not_wait(parts: Parts) -> None:
    lab = Lab(parts)
    lab.failure = StoreUnavailable("away")
    lab.freshness.doubt()
    lab.receive()
    await parts.settle()
    assert lab.take() == ["reads", "reviews {}", "room"]
    assert lab.freshness.is_fresh()


@in_virtual_time
async def test_a_slow_read_or_review_continues_while_users_are_shown_again(parts: Parts) -> None:
    lab = Lab(parts)
    lab.found = {TENANT: {"ann"}}
    lab.may_read.clear()
    lab.freshness.doubt()
    lab.receive()
    await parts.pass_s(LONGEST_S - TICK_S)
    assert lab.take() == ["reads"]
    await parts.pass_s(2 * TICK_S)
    assert lab.take() == ["reviews {}", "room"]
    assert lab.freshness.is_fresh()
    lab.may_review.clear()
    lab.may_read.set()
    await parts.settle()
    lab.receive()
    assert lab.take() == [f"reviews {lab.found}"]
    await parts.pass_s(LONGEST_S)
    assert lab.take() == ["room"]


# --- with the cache ---


async def bob_looks(parts: Parts, tenant: str = TENANT) -> None:
    parts.heard_at = parts.now()
    assert parts.visibility_updates  # sets what the freshness needs
    await parts.connect("bob", tenant=tenant)
    await parts.visibility.know(tenant, ["bob"], ["cid"])


@in_virtual_time
async def test_the_cache_does_not_decide_before_the_changes_of_a_pause_are_read(parts: Parts) -> None:
    await bob_looks(parts)
    assert parts.visibility.knows(TENANT, "bob", ["ann"])
    assert parts.visibility.is_ready(TENANT, "ann")
    await parts.store.put_privacy(TENANT, "ann", hide_from=frozenset(["bob"]))
    await parts.pass_s(FRESH_S)  # as if the process had been stopped
    assert not parts.visibility.knows(TENANT, "bob", ["ann"])
    assert not parts.visibility.is_ready(TENANT, "ann")
    assert parts.visibility.see(TENANT, "bob", "ann") == "full"  # the old facts
    await parts.visibility.learn(TENANT, ["bob"], ["ann"])
    assert parts.visibility.see(TENANT, "bob", "ann") == "hidden"


@in_virtual_time
async def test_facts_that_were_read_before_a_pause_are_read_again(parts: Parts) -> None:
    await bob_looks(parts, "contacts")
    await parts.store.put_contact("contacts", "ann", "bob", 1, most=9)
    await parts.store.put_contact("contacts", "bob", "ann", 1, most=9)
    await parts.visibility.changed("contacts", ["bob"])
    async with parts.store.holding("contacts") as held:
        learning = asyncio.ensure_future(parts.visibility.learn("contacts", ["bob"], ["ann"]))
        await held.reached()
        await parts.store.put_privacy("contacts", "ann", hide_from=frozenset(["bob"]))  # its message is lost
        await parts.pass_s(FRESH_S)
    await learning
    assert parts.visibility.see("contacts", "bob", "ann") == "hidden"


@in_virtual_time
async def test_a_change_that_is_being_applied_is_reviewed_before_messages_are_delivered(parts: Parts) -> None:
    reviewed: list[str] = []

    class Consumer:
        async def in_use(self, tenant: str) -> set[str]:
            return set()

        async def review(self, tenant: str, users: object) -> None:
            reviewed.append(f"{users}")

    parts.visibility.consumers.append(Consumer())
    parts.freshness.deliver = lambda topic, message: reviewed.append(topic.kind)
    async with parts.store.holding("privacies") as held:
        await parts.visibility.know(TENANT, ["bob"], ["ann"])
        parts.visibility_updates.receive(VisibilityChanged(TENANT, "ann", "asker", 7), "here")
        await held.reached()
        parts.freshness.doubt()
        parts.freshness.receive(HALL, StatusChanged())
        await parts.settle()
    await parts.settle()
    assert reviewed[:2] == ["{'ann'}", "room"]


# --- reads of members, after a long pause ---


@in_virtual_time
async def test_changes_are_applied_although_the_members_of_rooms_cannot_be_read(parts: Parts) -> None:
    lab = Lab(parts)

    async def fail() -> None:
        lab.events.append("members")
        raise StoreUnavailable("away")

    lab.freshness.read_members, lab.found = fail, {TENANT: {"bob"}}
    assert lab.freshness.is_fresh()
    await parts.pass_s(20)
    lab.receive()
    await parts.settle()
    assert (sorted(lab.events[:2]), lab.events[2:]) == (["members", "reads"], ["reviews {'acme': {'bob'}}", "room"])


@in_virtual_time
async def test_slow_reads_of_members_do_not_delay_the_read_of_changes(parts: Parts) -> None:
    lab, answered = Lab(parts), asyncio.Event()

    async def wait() -> None:
        await answered.wait()

    lab.freshness.read_members, lab.found = wait, {TENANT: {"bob"}}
    assert lab.freshness.is_fresh()
    await parts.pass_s(20)
    lab.receive()
    await parts.pass_s(LONGEST_S + TICK_S)
    assert lab.take() == ["reads", "reviews {'acme': {'bob'}}", "room"]
    answered.set()
