"""Cached facts about visibility: number of reads, and no decision from outdated facts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection

import pytest

from greendot.errors import StoreUnavailable
from greendot.testing import hold
from greendot.visibility import cache
from unit.service_parts import DAY_MS, TENANT, Parts, in_virtual_time


class Consumer:
    """Service that shows these users."""

    def __init__(self, *users: str) -> None:
        self.users = {*users}

    async def in_use(self, tenant: str) -> AsyncIterator[list[str]]:
        yield await self.collected()

    async def collected(self) -> list[str]:
        return [*self.users]

    async def review(self, tenant: str, users: Collection[str] | None) -> None:
        raise NotImplementedError


@pytest.fixture
def unlisted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no list of users who hide something be short enough: facts are read for each user."""
    monkeypatch.setattr(cache, "MOST_LISTED", 0)


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
    assert parts.store.take_calls() == ["changes", "hiding"]
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


@in_virtual_time
async def test_users_who_are_not_listed_hide_nothing_and_are_not_read(parts: Parts) -> None:
    await hide(parts, "ann", "bob")
    await parts.store.put_privacy(TENANT, "dan", last_seen="hidden")
    visibility = parts.visibility
    await visibility.know(TENANT, ["bob"], ["ann"])
    assert parts.store.take_calls()[-4:] == ["changes", "hiding", "restricted", "restricted"]
    assert [visibility.see(TENANT, "bob", user) for user in ("ann", "cid", "dan")] == [
        "hidden",
        "full",
        "without_last_seen",
    ]
    assert (visibility.is_discreet(TENANT, "dan"), visibility.is_discreet(TENANT, "cid")) == (True, False)
    assert (visibility.knows(TENANT, "bob", ["cid"]), visibility.is_ready(TENANT, "cid")) == (True, True)
    await visibility.know(TENANT, ["bob"], [f"u{number}" for number in range(100)])
    assert parts.store.take_calls() == []
    assert (visibility.hiders_from(TENANT, "bob"), visibility.hiders_from(TENANT, "cid")) == ({"ann"}, frozenset())
    await hide(parts, "ann")
    await visibility.changed(TENANT, ["ann"])
    assert (visibility.see(TENANT, "bob", "ann"), visibility.hiders_from(TENANT, "bob")) == ("full", frozenset())


@in_virtual_time
async def test_where_facts_are_read_for_each_user_others_are_hidden(parts: Parts, unlisted: None) -> None:
    await hide(parts, "ann", "bob")
    visibility = parts.visibility
    await visibility.know(TENANT, ["bob"], ["cid"])
    assert (visibility.see(TENANT, "bob", "cid"), visibility.see(TENANT, "bob", "dan")) == ("full", "hidden")
    assert (visibility.is_ready(TENANT, "cid"), visibility.is_ready(TENANT, "dan")) == (True, False)
    assert visibility.is_discreet(TENANT, "dan")


@in_virtual_time
async def test_facts_are_read_once_and_those_of_one_moment_together(parts: Parts, unlisted: None) -> None:
    await hide(parts, "ann", "bob")
    visibility = parts.visibility
    await visibility.learn(TENANT, [], [])
    parts.store.take_calls()
    await asyncio.gather(*(visibility.know(TENANT, ["x"], [f"u{n}", "ann"]) for n in range(5)))
    assert parts.store.take_calls() == ["privacies"]
    await visibility.know(TENANT, ["y"], ["u1", "u2", "ann"])
    assert parts.store.take_calls() == []


@in_virtual_time
async def test_very_many_users_are_several_reads(parts: Parts, unlisted: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "FEW", 2)
    monkeypatch.setattr(cache, "AT_ONCE", 4)
    await hide(parts, "u5", "x")
    users = [f"u{number}" for number in range(9)]
    parts.store.take_calls()
    await parts.visibility.know(TENANT, ["x"], users)
    assert parts.store.take_calls() == ["changes", "hiding", "restricted", *["privacies"] * 3]
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
        assert parts.store.take_calls() == ["changes", "hiding", "privacies", read]
    await parts.visibility.know(TENANT, ["bob"], [])
    assert parts.store.take_calls() == ["changes", "hiding"]


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
async def test_facts_that_were_read_before_a_change_are_read_again(parts: Parts, unlisted: None) -> None:
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
async def test_a_refresh_reads_only_what_changed_since_the_last(parts: Parts) -> None:
    visibility = parts.visibility
    for tenant in (TENANT, "other", "gone"):
        await visibility.know(tenant, ["bob"], ["ann"])
    await hide(parts, "ann", "bob")  # no node received this change
    parts.store.take_calls()
    then = visibility.decided(TENANT)
    assert await visibility.refresh({TENANT, "other"}) == {TENANT: {"ann"}}
    assert parts.store.take_calls() == ["changes", "privacies"]
    assert (visibility.see(TENANT, "bob", "ann"), visibility.see("other", "bob", "ann")) == ("hidden", "full")
    assert visibility.decided_since(TENANT, "bob", ["ann", "cid"], then) == [0, 1]  # the tenant begins to matter
    assert await visibility.refresh({TENANT, "other"}) == {}
    assert parts.store.take_calls() == ["changes"]
    assert visibility.matters("gone")  # not in use: nothing is known
    await hide(parts, "ann")
    await visibility.changed(TENANT, ["ann"])
    assert await visibility.refresh({TENANT}) == {}  # the change was received
    assert not visibility.matters(TENANT)


@pytest.mark.parametrize("tenant", ["contacts", "shared_rooms"])
@in_virtual_time
async def test_missed_contacts_and_memberships_are_found_by_revision(parts: Parts, tenant: str) -> None:
    await parts.room("lobby", "bob", tenant=tenant)
    await befriend(parts, "bob", "ann", tenant=tenant)
    visibility = parts.visibility
    visibility.consumers.append(Consumer("ann", "bob"))
    await visibility.know(tenant, ["bob"], ["ann"])
    assert visibility.see(tenant, "bob", "ann") == "hidden"
    await befriend(parts, "ann", "bob", tenant=tenant)
    await parts.store.put_member(tenant, "lobby", "ann")
    await parts.store.put_member(tenant, "lobby", "not-in-use")
    assert await visibility.refresh({tenant}) == {tenant: {"ann"}}
    assert visibility.see(tenant, "bob", "ann") == "full"


@in_virtual_time
async def test_after_too_many_changes_all_facts_are_read(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("greendot.store.visibility.MOST_CHANGES", 3)
    await hide(parts, "ann", "x")
    visibility = parts.visibility
    for tenant in (TENANT, "contacts"):
        visibility.consumers.append(Consumer("ann"))
        await visibility.know(tenant, ["bob"], ["ann"])
    for tenant in (TENANT, "contacts"):
        for number in range(4):
            await hide(parts, f"u{number}", "bob", tenant=tenant)
        await hide(parts, "ann", "bob", tenant=tenant)
    assert await visibility.refresh({TENANT, "contacts"}) == {
        TENANT: {"ann", "u0", "u1", "u2", "u3"},
        "contacts": {"ann"},
    }
    assert {visibility.see(TENANT, "bob", user) for user in ("ann", "u0", "u3")} == {"hidden"}
    assert await visibility.refresh({TENANT, "contacts"}) == {}


@in_virtual_time
async def test_a_restored_backup_is_read_again(parts: Parts) -> None:
    await hide(parts, "ann", "bob")
    visibility = parts.visibility
    await visibility.know(TENANT, ["bob"], ["ann"])
    backup = parts.store.thread.db.serialize()
    await hide(parts, "ann")
    await visibility.changed(TENANT, ["ann"])
    assert await visibility.refresh({TENANT}) == {}
    parts.store.thread.db.deserialize(backup)
    await hide(parts, "cid", "bob")  # has the number of the lost change
    assert await visibility.refresh({TENANT}) == {TENANT: {"ann", "cid"}}
    assert [visibility.see(TENANT, "bob", user) for user in ("ann", "cid")] == ["hidden", "hidden"]


@in_virtual_time
async def test_a_refresh_that_fails_is_continued_by_the_next(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "TENANTS_AT_ONCE", 1)
    visibility = parts.visibility
    for tenant in (TENANT, "other"):
        await visibility.know(tenant, ["bob"], ["ann"])
    await hide(parts, "ann", "bob")
    async with hold(parts.store.thread, "do", when=lambda work: visibility.see(TENANT, "bob", "ann") != "full") as held:
        refreshing = asyncio.ensure_future(visibility.refresh({TENANT, "other"}))
        await held.reached()  # the first tenant is done
        parts.store.thread.is_away = True
    with pytest.raises(StoreUnavailable):
        await refreshing
    parts.store.thread.is_away = False
    assert await visibility.refresh({TENANT, "other"}) == {TENANT: {"ann"}}


@in_virtual_time
async def test_a_refresh_that_fails_reads_the_same_changes_again(parts: Parts) -> None:
    visibility = parts.visibility
    await visibility.know(TENANT, ["bob"], ["ann"])
    await hide(parts, "ann", "bob")
    parts.store.thread.failing["privacies"] = StoreUnavailable("away")
    with pytest.raises(StoreUnavailable):
        await visibility.refresh({TENANT})
    del parts.store.thread.failing["privacies"]
    assert await visibility.refresh({TENANT}) == {TENANT: {"ann"}}


@pytest.mark.parametrize("method", ["changes", "hiding", "restricted"])
@in_virtual_time
async def test_a_change_during_the_first_read_of_a_tenant_counts(parts: Parts, method: str) -> None:
    await hide(parts, "cid", "x")
    visibility = parts.visibility
    async with parts.store.holding(method, "after") as held:
        learning = asyncio.ensure_future(visibility.know(TENANT, ["bob"], ["ann"]))
        await held.reached()
        await hide(parts, "ann", "bob")
        await hide(parts, "cid")
        await visibility.changed(TENANT, ["ann", "cid"])
    await learning
    assert (visibility.see(TENANT, "bob", "ann"), visibility.see(TENANT, "x", "cid")) == ("hidden", "full")


@in_virtual_time
async def test_a_list_that_becomes_too_long_ends_and_no_user_in_use_is_hidden_meanwhile(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    visibility, consumer = parts.visibility, Consumer("ann", "cid")
    visibility.consumers.append(consumer)
    await visibility.know(TENANT, ["bob"], ["ann"])
    await hide(parts, "ann", "x")
    monkeypatch.setattr(cache, "MOST_LISTED", 0)
    async with hold(consumer, "collected", at="after") as held:
        refreshing = asyncio.ensure_future(visibility.refresh({TENANT}))
        await held.reached()
        await visibility.know(TENANT, ["bob"], ["dan"])
        assert {visibility.see(TENANT, "bob", user) for user in ("ann", "cid", "dan")} == {"full"}
    assert await refreshing == {TENANT: {"ann"}}
    assert {visibility.see(TENANT, "bob", user) for user in ("ann", "cid", "dan")} == {"full"}
    assert (visibility.see(TENANT, "x", "ann"), visibility.see(TENANT, "bob", "eve")) == ("hidden", "hidden")


@in_virtual_time
async def test_users_who_are_not_in_use_are_forgotten_when_too_many_are_known(
    parts: Parts, unlisted: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "MOST", 3)
    await hide(parts, "ann", "x")
    visibility = parts.visibility
    visibility._most = 3
    visibility.consumers.append(Consumer("ann"))
    await visibility.know(TENANT, ["bob"], ["ann", "u1", "u2"])
    await visibility.know(TENANT, ["bob"], ["u3"])
    assert visibility.knows(TENANT, "bob", ["ann", "u1", "u2", "u3"])
    await visibility.know(TENANT, ["bob"], ["u4"])
    assert visibility.knows(TENANT, "bob", ["ann", "u4"])
    assert not visibility.knows(TENANT, "bob", ["u1"])


@in_virtual_time
async def test_a_user_who_comes_into_use_while_others_are_forgotten_is_kept(
    parts: Parts, unlisted: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "MOST", 1)
    await hide(parts, "ann", "x")
    visibility, consumer = parts.visibility, Consumer("ann")
    visibility.consumers.append(consumer)
    await visibility.know(TENANT, ["bob"], ["ann", "u1", "u2"])
    async with hold(consumer, "collected", at="after") as held:
        refreshing = asyncio.ensure_future(visibility.refresh({TENANT}))
        await held.reached()
        assert visibility.knows(TENANT, "bob", ["u1"])
    await refreshing
    assert (visibility.knows(TENANT, "bob", ["ann", "u1"]), visibility.knows(TENANT, "bob", ["u2"])) == (True, False)


@in_virtual_time
async def test_one_user_who_hides_does_not_cause_a_read_of_those_in_use(parts: Parts) -> None:
    visibility = parts.visibility
    visibility.consumers.append(Consumer(*(f"u{number}" for number in range(5_000))))
    await visibility.know(TENANT, ["bob"], ["u1"])
    parts.store.take_calls()
    await hide(parts, "u1", "bob")
    await visibility.changed(TENANT, ["u1"])
    assert parts.store.take_calls() == ["put_privacy", "privacies"]
    assert (visibility.see(TENANT, "bob", "u1"), visibility.see(TENANT, "bob", "u2")) == ("hidden", "full")
    for _ in range(2):
        assert await visibility.refresh({TENANT}) == {}
    assert parts.store.take_calls() == ["changes", "privacies", "changes"]
