"""Cached facts about visibility: number of reads, and no decision from outdated facts."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest

from greendot.errors import StoreUnavailable
from greendot.testing import hold
from greendot.visibility import cache
from unit.service_parts import DAY_MS, TENANT, Parts, in_virtual_time


class Consumer:
    """Service that shows these users."""

    def __init__(self, *users: str) -> None:
        self.users = {*users}

    def in_use(self, tenant: str) -> set[str]:
        return self.users

    async def review(self, tenant: str, users: Collection[str] | None) -> None:
        raise NotImplementedError


async def hide(parts: Parts, user: str, *others: str, tenant: str = TENANT) -> None:
    """Hide a user from others, in the store only."""
    await parts.store.put_privacy(tenant, user, hide_from=frozenset(others))


async def befriend(parts: Parts, user: str, *others: str, tenant: str = "contacts") -> None:
    for other in others:
        await parts.store.put_contact(tenant, user, other, parts.clock.now_ms(), most=10)


@in_virtual_time
async def test_one_read_is_enough_for_all_users_if_no_user_hides(parts: Parts) -> None:
    visibility = parts.visibility
    await asyncio.gather(*(visibility.know(TENANT, [f"v{n}"], ["ann", "bob"]) for n in range(5)))
    await visibility.know(TENANT, ["cid"], ["dan"])
    assert parts.store.take_calls() == ["hiding"]
    assert not visibility.matters(TENANT)
    assert visibility.see(TENANT, "cid", "nobody-asked-for") == "full"
    assert visibility.knows(TENANT, "cid", ["x"])
    assert visibility.is_ready(TENANT, "x")
    await hide(parts, "ann")  # the user hides from no other user
    await visibility.changed(TENANT, ["ann"])
    assert not visibility.matters(TENANT)


@in_virtual_time
async def test_a_user_is_hidden_until_the_facts_are_known_and_never_from_oneself(parts: Parts) -> None:
    await hide(parts, "ann", "bob")
    visibility = parts.visibility
    assert (visibility.see(TENANT, "bob", "cid"), visibility.see(TENANT, "cid", "cid")) == ("hidden", "full")
    assert not visibility.knows(TENANT, "bob", ["cid"])
    await visibility.know(TENANT, ["bob", "cid"], ["ann", "cid"])
    seen = {viewer: visibility.see(TENANT, viewer, "ann") for viewer in ("bob", "cid")}
    assert seen == {"bob": "hidden", "cid": "full"}
    assert visibility.see(TENANT, "bob", "cid") == "full"
    assert (visibility.see(TENANT, "bob", "dan"), visibility.is_discreet(TENANT, "dan")) == ("hidden", True)


@in_virtual_time
async def test_facts_are_read_once_and_those_of_one_moment_together(parts: Parts) -> None:
    await hide(parts, "ann", "bob")
    visibility = parts.visibility
    await visibility.learn(TENANT, [], [])
    parts.store.take_calls()
    await asyncio.gather(*(visibility.know(TENANT, ["x"], [f"u{n}", "ann"]) for n in range(5)))
    assert parts.store.take_calls() == ["privacies"]
    await visibility.know(TENANT, ["y"], ["u1", "u2", "ann"])
    assert parts.store.take_calls() == []


@in_virtual_time
async def test_very_many_users_are_several_reads(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "FEW", 2)
    monkeypatch.setattr(cache, "AT_ONCE", 4)
    await hide(parts, "u5", "x")
    users = [f"u{number}" for number in range(9)]
    parts.store.take_calls()
    await parts.visibility.know(TENANT, ["x"], users)
    assert parts.store.take_calls() == ["hiding", *["privacies"] * 3]
    assert [user for user in users if parts.visibility.see(TENANT, "x", user) == "hidden"] == ["u5"]


@in_virtual_time
async def test_facts_of_the_viewer_are_read_where_the_policy_needs_them(parts: Parts) -> None:
    await befriend(parts, "ann", "bob")
    await befriend(parts, "bob", "ann")
    await parts.room("lobby", "ann", "bob", tenant="shared_rooms")
    parts.store.take_calls()
    for tenant, read in (("contacts", "contacts"), ("shared_rooms", "memberships")):
        await parts.visibility.know(tenant, ["bob"], ["ann"])
        assert parts.visibility.see(tenant, "bob", "ann") == parts.visibility.see(tenant, "ann", "bob") == "full"
        assert parts.store.take_calls() == ["hiding", "privacies", read]
    await parts.visibility.know(TENANT, ["bob"], [])
    assert parts.store.take_calls() == ["hiding"]


@in_virtual_time
async def test_a_recent_contact_ceases_to_be_one_without_a_read(parts: Parts) -> None:
    await befriend(parts, "ann", "bob", tenant="recent_contacts")
    await parts.visibility.know("recent_contacts", ["bob"], ["ann"])
    parts.store.take_calls()
    await parts.pass_s(DAY_MS / 1000 - 1)
    assert parts.visibility.see("recent_contacts", "bob", "ann") == "full"
    await parts.pass_s(2)
    assert parts.visibility.see("recent_contacts", "bob", "ann") == "hidden"
    assert parts.store.take_calls() == []


@in_virtual_time
async def test_the_first_user_of_a_tenant_who_hides_leaves_other_users_visible(parts: Parts) -> None:
    visibility = parts.visibility
    visibility.consumers.append(Consumer("ann", "cid"))
    await visibility.know(TENANT, ["bob"], ["ann", "cid"])
    await hide(parts, "ann", "bob")
    async with parts.store.holding("privacies", "after") as held:
        changing = asyncio.ensure_future(visibility.changed(TENANT, ["ann"]))
        await held.reached()
        assert visibility.see(TENANT, "bob", "ann") == "full"  # unchanged until the read has ended
    await changing
    assert (visibility.see(TENANT, "bob", "ann"), visibility.see(TENANT, "bob", "cid")) == ("hidden", "full")
    assert visibility.hides_from(TENANT, "ann") == {"bob"}
    assert visibility.only_hidden_from(TENANT, "cid") == frozenset()


@in_virtual_time
async def test_facts_that_were_read_before_a_change_are_read_again(parts: Parts) -> None:
    await hide(parts, "cid", "bob")
    visibility = parts.visibility
    async with parts.store.holding("privacies", "after") as held:
        learning = asyncio.ensure_future(visibility.know(TENANT, ["bob"], ["ann"]))
        await held.reached()
        await hide(parts, "ann", "bob")
        await visibility.changed(TENANT, ["ann"])
    await learning
    assert visibility.see(TENANT, "bob", "ann") == "hidden"


@in_virtual_time
async def test_an_answer_without_hiding_users_is_void_if_a_user_began_to_hide_meanwhile(parts: Parts) -> None:
    visibility = parts.visibility
    async with parts.store.holding("hiding", "after") as held:
        learning = asyncio.ensure_future(visibility.know(TENANT, ["bob"], ["ann"]))
        await held.reached()
        await hide(parts, "ann", "bob")
        await visibility.changed(TENANT, ["ann"])
    await learning
    assert visibility.see(TENANT, "bob", "ann") == "hidden"


@in_virtual_time
async def test_a_changed_user_who_cannot_be_read_is_hidden_until_it_can(parts: Parts) -> None:
    visibility = parts.visibility
    await visibility.know(TENANT, ["bob"], ["ann"])
    parts.store.thread.is_away = True
    with pytest.raises(StoreUnavailable):
        await visibility.changed(TENANT, ["ann"])
    visibility.doubt(TENANT, ["ann"])
    assert (visibility.see(TENANT, "bob", "ann"), visibility.see(TENANT, "bob", "cid")) == ("hidden", "full")
    assert visibility.is_discreet(TENANT, "ann")
    assert visibility.exceptions(TENANT, "ann", lambda: ["bob", "cid"]) == ["bob", "cid"]
    assert visibility.only_hidden_from(TENANT, "ann") is None
    parts.store.thread.is_away = False
    await visibility.changed(TENANT, ["ann"])
    assert visibility.see(TENANT, "bob", "ann") == "full"
    assert visibility.exceptions(TENANT, "ann", lambda: ["bob", "cid"]) == ()
    await hide(parts, "ann", "cid")
    await visibility.changed(TENANT, ["ann"])
    await visibility.know(TENANT, ["bob"], ["ann"])
    assert [*visibility.exceptions(TENANT, "ann", lambda: ["bob", "cid"])] == ["cid"]
    visibility.doubt(TENANT, ["ann"])
    assert visibility.exceptions(TENANT, "ann", lambda: ["bob", "cid"]) == ["bob", "cid"]


@in_virtual_time
async def test_decisions_are_known_to_be_old_after_a_change_of_the_viewer_or_a_target(parts: Parts) -> None:
    await hide(parts, "dan", "x")
    visibility, targets = parts.visibility, ["ann", "bob", "cid"]
    await visibility.know(TENANT, ["dan"], targets)
    then = visibility.decided(TENANT)
    assert visibility.decided_since(TENANT, "dan", targets, then) == []
    await visibility.changed(TENANT, ["bob", "eve"])
    assert visibility.decided_since(TENANT, "dan", targets, then) == [1]
    visibility.doubt(TENANT, ["cid"])
    assert visibility.decided_since(TENANT, "dan", targets, then) == [1, 2]
    await visibility.changed(TENANT, ["dan"])
    assert visibility.decided_since(TENANT, "dan", targets, then) == [0, 1, 2]
    assert visibility.decided_since(TENANT, "dan", targets, visibility.decided(TENANT)) == []


@in_virtual_time
async def test_users_in_a_room_are_decided_again_if_one_changed_meanwhile(parts: Parts) -> None:
    await hide(parts, "dan", "x")
    visibility, calls = parts.visibility, 0
    users = [f"u{number:03}" for number in range(201)]  # two slices
    await visibility.know(TENANT, ["bob"], users)

    def is_second_slice(*args: object) -> bool:
        nonlocal calls
        calls += 1
        return calls == 3  # the first call is for all users, then one for each slice

    async with hold(visibility, "learn", when=is_second_slice) as held:
        deciding = asyncio.ensure_future(visibility.visible(TENANT, "bob", users))
        await held.reached()
        await hide(parts, "u000", "bob")
        await visibility.changed(TENANT, ["u000"])
    assert await deciding == users[1:]


@in_virtual_time
async def test_a_comparison_finds_tenants_that_began_to_hide_and_forgets_those_not_named(parts: Parts) -> None:
    visibility = parts.visibility
    visibility.consumers.append(Consumer("ann"))
    for tenant in (TENANT, "other", "gone"):
        await visibility.know(tenant, ["bob"], ["ann"])
    await hide(parts, "ann", "bob")  # no node received this change
    parts.store.take_calls()
    assert await visibility.tenants_that_matter({TENANT, "other"}) == [TENANT]
    assert (visibility.see(TENANT, "bob", "ann"), visibility.see("other", "bob", "ann")) == ("hidden", "full")
    assert parts.store.take_calls() == ["hiding", "privacies"]
    assert visibility.matters("gone")
    await hide(parts, "ann")
    assert await visibility.tenants_that_matter({TENANT}) == [TENANT]  # the tenant had hidden users before this read
    assert not visibility.matters(TENANT)
    assert await visibility.tenants_that_matter({TENANT}) == []


@in_virtual_time
async def test_a_refresh_reads_users_in_use_again_and_forgets_the_others(parts: Parts) -> None:
    await hide(parts, "ann", "x")
    visibility = parts.visibility
    visibility.consumers.append(Consumer("ann"))
    await visibility.know(TENANT, ["bob"], ["ann", "cid"])
    await hide(parts, "ann", "bob")
    then = visibility.decided(TENANT)
    await visibility.refresh(TENANT)
    assert visibility.see(TENANT, "bob", "ann") == "hidden"
    assert visibility.decided_since(TENANT, "bob", ["ann", "cid"], then) == [0]
    assert not visibility.knows(TENANT, "bob", ["cid"])


@in_virtual_time
async def test_users_who_are_not_in_use_are_forgotten_when_too_many_are_known(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "MOST", 3)
    await hide(parts, "ann", "x")
    visibility = parts.visibility
    visibility.consumers.append(Consumer("ann"))
    await visibility.know(TENANT, ["bob"], ["ann", "u1", "u2"])
    await visibility.know(TENANT, ["bob"], ["u3"])
    assert visibility.knows(TENANT, "bob", ["ann", "u1", "u2", "u3"])
    await visibility.know(TENANT, ["bob"], ["u4"])
    assert visibility.knows(TENANT, "bob", ["ann", "u4"])
    assert not visibility.knows(TENANT, "bob", ["u1"])
