"""Contract of every store for mutes, bans and slow mode."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from greendot.auth.model import LIFTED, Revocation
from greendot.errors import Restricted, SlowMode, StaleMembers, Unstorable
from greendot.store.audit import AuditAction, AuditNote
from greendot.store.port import Store
from greendot.store.restrictions import (
    EVERYWHERE,
    FOREVER,
    LIFTED_MS,
    PACE_MS,
    Restriction,
    RestrictionKind,
    RestrictionWritten,
)
from greendot.store.rooms import Draft, MemberState, Written
from greendot.testing.store_harness import BAD_TEXTS, NOW, StoreHarness, T, draft, numbers, seq
from greendot.testing.user_data_suite import all_of, erase

ACTIONS: dict[RestrictionKind, tuple[AuditAction, AuditAction]] = {
    "mute": ("user.muted", "user.unmuted"),
    "ban": ("user.banned", "user.unbanned"),
}


def made(
    kind: RestrictionKind = "mute", room: str = "r1", user: str = "ann", until: int = FOREVER, at: int = NOW
) -> Restriction:
    return Restriction(T, room, user, kind, until, at, "desk", "spam")


async def restrict(store: Store, restriction: Restriction) -> RestrictionWritten | None:
    room, kind = restriction.room or None, restriction.kind
    note = AuditNote(T, restriction.at, "desk", ACTIONS[kind][0], room, restriction.user, until=restriction.until)
    return await store.restrict(restriction, note)


async def lift(store: Store, restriction: Restriction, at: int = NOW + 1) -> RestrictionWritten | None:
    _, room, user, kind, *_ = restriction
    return await store.lift(T, room, user, kind, AuditNote(T, at, "desk", ACTIONS[kind][1], room or None, user))


async def revision(store: Store, room: str = "r1") -> int:
    found = await store.room(T, room)
    assert found is not None
    return found.members_rev


async def by_user(store: Store, room: str = "r1", **values: Any) -> Draft:
    """Return a draft as a node makes it for a user who may be in the room."""
    return replace(draft(**values), members_rev=await revision(store, room))


async def sent(store: Store, *drafts: Draft, room: str = "r1") -> list[Any]:
    """Write the drafts at the same time; return the type of each result that is no number."""
    results = await asyncio.gather(*(store.append(T, room, one) for one in drafts), return_exceptions=True)
    return [type(of) if isinstance(of, BaseException) else seq(of) for of in results if of is not None]


async def actions(store: Store) -> list[tuple[str, str | None, str | None]]:
    return [(entry.action, entry.room, entry.user) for entry in await store.audit(T, limit=100)]


class RestrictionSuite(StoreHarness):
    """Contract of `RestrictionStore`, as tests."""

    # --- in a room ---

    async def test_a_restriction_in_a_room_raises_the_revision_and_is_in_the_state_of_the_user(self) -> None:
        async with self.opened() as store:
            await store.put_room(T, "r1", open=True)
            await store.put_member(T, "r1", "ann", "admin")
            before = await revision(store)
            assert await restrict(store, made("mute", until=NOW + 5)) == RestrictionWritten(True, before + 1)
            assert await restrict(store, made("ban", user="bob")) == RestrictionWritten(True, before + 2)
            asked = [(T, "r1", user) for user in ("ann", "bob", "eve")]
            assert await store.member_states(asked) == {
                asked[0]: MemberState("admin", 0, NOW + 5, 0),
                asked[1]: MemberState(None, 0, 0, FOREVER),
            }
            found = await store.user_rooms(asked)
            assert {user: (of.role, of.muted, of.banned) for (_, _, user), of in found.items()} == {
                "ann": ("admin", NOW + 5, 0),
                "bob": (None, 0, FOREVER),
                "eve": (None, 0, 0),
            }
            assert [(of.role, of.banned) for of in await store.rooms_of(T, "bob")] == [(None, FOREVER)]
            assert await actions(store) == [("user.muted", "r1", "ann"), ("user.banned", "r1", "bob")]

    async def test_the_same_restriction_again_changes_nothing_and_another_end_replaces_it(self) -> None:
        async with self.opened() as store:
            await store.put_room(T, "r1")
            first = await restrict(store, made(until=NOW + 5))
            assert first is not None
            assert await restrict(store, made(until=NOW + 5, at=NOW + 1)) == first._replace(changed=False)
            later = await restrict(store, made(until=NOW + 9, at=NOW + 2))
            assert later == RestrictionWritten(True, first.members_rev + 1)
            assert await store.restrictions(T, "r1", "mute", None, 9, NOW) == [made(until=NOW + 9, at=NOW + 2)]
            assert len(await actions(store)) == 2

    async def test_a_lifted_restriction_raises_the_revision_once(self) -> None:
        async with self.opened() as store:
            await store.put_room(T, "r1")
            await restrict(store, made("ban"))
            await restrict(store, made("mute"))
            before = await revision(store)
            assert await lift(store, made("ban")) == RestrictionWritten(True, before + 1)
            assert await lift(store, made("ban")) == RestrictionWritten(False, before + 1)
            assert await store.member_states([(T, "r1", "ann")]) == {(T, "r1", "ann"): MemberState(None, 0, FOREVER, 0)}
            assert [action for action, _, _ in await actions(store)] == ["user.banned", "user.muted", "user.unbanned"]

    async def test_lifting_a_restriction_that_has_ended_is_no_change(self) -> None:
        async with self.opened() as store:
            await store.put_room(T, "r1")
            await restrict(store, made(until=NOW + 5))
            before = await revision(store)
            assert await lift(store, made(), at=NOW + 5) == RestrictionWritten(False, before)
            assert await store.restrictions(T, "r1", "mute", None, 9, NOW) == []

    async def test_a_room_that_does_not_exist_has_no_restrictions(self) -> None:
        async with self.opened() as store:
            assert await restrict(store, made(room="none")) is None
            assert await lift(store, made(room="none")) is None
            assert await actions(store) == []

    async def test_a_message_admitted_before_a_restriction_is_refused_by_its_revision(self) -> None:
        async with self.opened_twice() as (one, two):
            await one.put_room(T, "r1")
            stale = await by_user(one)
            await restrict(two, made("mute"))
            assert await sent(one, stale) == [StaleMembers]
            assert await numbers(one) == []

    async def test_restrictions_are_listed_by_user_until_they_end(self) -> None:
        async with self.opened() as store:
            await store.put_room(T, "r1")
            await store.put_room(T, "r2")
            for number, user in enumerate(("d", "b", "c", "a")):
                await restrict(store, made(user=user, until=NOW + 1 + number))
            await restrict(store, made("ban", user="e"))
            await restrict(store, made(room="r2", user="f"))
            await restrict(store, made(room=EVERYWHERE, user="g"))

            async def users(room: str, kind: RestrictionKind, after: str | None, limit: int, now: int) -> list[str]:
                return [one.user for one in await store.restrictions(T, room, kind, after, limit, now)]

            assert await users("r1", "mute", None, 3, NOW) == ["a", "b", "c"]
            assert await users("r1", "mute", "b", 3, NOW) == ["c", "d"]
            assert await users("r1", "mute", None, 9, NOW + 2) == ["a", "c"]
            assert await users("r1", "ban", None, 9, NOW) == ["e"]
            assert await users(EVERYWHERE, "mute", None, 9, NOW) == ["g"]
            assert await store.restrictions("t2", "r1", "mute", None, 9, NOW) == []

    # --- in the tenant ---

    async def test_a_restriction_in_the_tenant_refuses_messages_of_users_in_every_room_until_its_end(self) -> None:
        async with self.opened_twice() as (one, two):
            for room in ("r1", "r2"):
                await one.put_room(T, room)
            await two.put_room("t2", "r1")
            earlier = await by_user(one, key="earlier")
            assert await sent(one, earlier) == [1]
            for kind in ("mute", "ban"):
                limited = made("mute" if kind == "mute" else "ban", EVERYWHERE, until=NOW + 50)
                await restrict(two, limited)
                assert await sent(one, await by_user(one, key=kind, at=NOW + 49)) == [Restricted]
                assert await sent(two, await by_user(two, "r2", key=kind), room="r2") == [Restricted]
                edit = replace(await by_user(one, key="e"), op="edit", ref=1)
                react = replace(await by_user(one, key="x"), op="react", ref=1, reaction="+")
                assert await sent(one, edit, react) == [Restricted] * 2
                assert await sent(one, earlier) == [1], "a repeat gets its first result"
                assert isinstance(await one.append("t2", "r1", replace(draft(key=kind), members_rev=0)), Written)
                before = len(await numbers(one))
                others = [await by_user(one, user="bob", key=kind), draft(key=f"{kind} by the app")]
                assert sorted(await sent(one, *others)) == [before + 1, before + 2]
                await lift(two, limited)
            assert await sent(one, await by_user(one, key="lifted")) == [6]
            await restrict(two, made("mute", EVERYWHERE, until=NOW + 50))
            assert await sent(one, await by_user(one, key="ended", at=NOW + 50)) == [7]

    async def test_the_refusal_names_the_restriction_and_its_end(self) -> None:
        async with self.opened() as store:
            await store.put_room(T, "r1")
            await restrict(store, made("mute", EVERYWHERE, until=NOW + 50))
            with pytest.raises(Restricted) as mute:
                await store.append(T, "r1", await by_user(store))
            assert (mute.value.kind, mute.value.until) == ("mute", NOW + 50)
            await restrict(store, made("ban", EVERYWHERE))
            with pytest.raises(Restricted) as ban:
                await store.append(T, "r1", await by_user(store))
            assert (ban.value.kind, ban.value.until) == ("ban", FOREVER)

    async def test_after_a_restriction_in_the_tenant_no_message_of_the_user_is_committed(self) -> None:
        async with self.opened_twice() as (one, two):
            rooms = [f"r{number}" for number in range(8)]
            for room in rooms:
                await one.put_room(T, room)
            for attempt in range(10):
                await asyncio.gather(*(lift(two, made("mute", EVERYWHERE, user)) for user in ("ann",)))
                drafts = [(room, draft(key=f"{attempt}-{number}")) for room in rooms for number in range(5)]
                writes = [
                    asyncio.create_task(one.append(T, room, replace(sending, members_rev=0)))
                    for room, sending in drafts
                ]
                await asyncio.sleep(0.001 * attempt)
                await restrict(two, made("mute", EVERYWHERE))
                heads = {room: (await numbers(two, room)) for room in rooms}
                await asyncio.gather(*writes, return_exceptions=True)
                assert {room: (await numbers(two, room)) for room in rooms} == heads

    async def test_a_restriction_in_the_tenant_is_in_the_log_of_revocations_until_it_is_lifted(self) -> None:
        async with self.opened() as store:
            first = await restrict(store, made("ban", EVERYWHERE, until=NOW + 50))
            assert first is not None
            (entry,) = await store.revocations(0, 10, NOW)
            assert entry.revocation == first.entry == Revocation(T, "ban", "ann", NOW + 50, 0, entry.number)
            assert await store.revocations(0, 10, NOW + 50) == []
            again = await restrict(store, made("ban", EVERYWHERE, until=NOW + 50))
            assert again == first._replace(changed=False)
            longer = await restrict(store, made("ban", EVERYWHERE))
            assert longer is not None
            assert longer.entry is not None
            assert (longer.entry.expires_at, longer.entry.number > entry.number) == (FOREVER, True)
            lifted = await lift(store, made("ban", EVERYWHERE))
            assert lifted is not None
            assert lifted.entry is not None
            assert (lifted.changed, lifted.entry.before, lifted.entry.expires_at) == (True, LIFTED, NOW + 1 + LIFTED_MS)
            assert [of.revocation for of in await store.revocations(0, 10, NOW)] == [lifted.entry]
            assert await lift(store, made("ban", EVERYWHERE)) == lifted._replace(changed=False)
            assert await store.remove_revocations(NOW + 1 + LIFTED_MS, limit=10) == 1
            assert await lift(store, made("mute", EVERYWHERE)) == RestrictionWritten(False, 0, None)

    async def test_texts_that_no_store_keeps_are_refused(self) -> None:
        async with self.opened() as store:
            await store.put_room(T, "r1")
            for text in BAD_TEXTS:
                for wrong in (
                    made()._replace(reason=text),
                    made(user=text),
                    made(room=EVERYWHERE)._replace(actor=text),
                ):
                    with pytest.raises(Unstorable):
                        await store.restrict(wrong, AuditNote(T, NOW, "desk", "user.muted"))
            assert await actions(store) == []

    # --- slow mode ---

    async def test_slow_mode_admits_one_paced_message_per_user_and_period_also_of_two_nodes(self) -> None:
        async with self.opened_twice() as (one, two):
            await one.put_room(T, "r1")
            note = AuditNote(T, NOW, "desk", "room.slow_mode", "r1")
            room = await one.set_slow_mode(T, "r1", 30, note)
            assert room == await two.room(T, "r1")
            assert room is not None
            assert room.slow_mode_s == 30
            assert await one.set_slow_mode(T, "r1", 30, note) == room
            assert await one.set_slow_mode(T, "none", 30, note) is None
            assert await actions(one) == [("room.slow_mode", "r1", None)]

            async def at_once(at: int, user: str = "ann") -> list[Any]:
                drafts = [replace(draft(user, key=f"{at}-{n}", at=at), paced=True) for n in range(4)]
                results = await asyncio.gather(
                    *((one, two)[n % 2].append(T, "r1", paced) for n, paced in enumerate(drafts)),
                    return_exceptions=True,
                )
                return sorted((type(of).__name__ for of in results), reverse=True)

            assert await at_once(NOW) == ["Written", "SlowMode", "SlowMode", "SlowMode"]
            assert await at_once(NOW + 29_999) == ["SlowMode"] * 4
            assert await at_once(NOW + 29_999, "bob") == ["Written", "SlowMode", "SlowMode", "SlowMode"]
            assert await at_once(NOW + 30_000) == ["Written", "SlowMode", "SlowMode", "SlowMode"]
            assert await numbers(one) == [1, 2, 3]

    async def test_slow_mode_names_the_wait_and_spares_repeats_and_drafts_that_are_not_paced(self) -> None:
        async with self.opened() as store:
            await store.put_room(T, "r1")
            await store.put_room(T, "r2")
            first = replace(draft(), paced=True)
            assert await sent(store, first) == [1], "before slow mode began"
            await store.set_slow_mode(T, "r1", 30, AuditNote(T, NOW, "desk", "room.slow_mode", "r1"))
            second = replace(draft(key="k2", at=NOW + 1), paced=True)
            assert await sent(store, second) == [2], "messages from before slow mode do not count"
            with pytest.raises(SlowMode) as slow:
                await store.append(T, "r1", replace(draft(key="k3", at=NOW + 10_001), paced=True))
            assert slow.value.wait_ms == 20_000
            with pytest.raises(SlowMode) as slow:  # the clock of another node is behind
                await store.append(T, "r1", replace(draft(key="k3", at=NOW - 60_000), paced=True))
            assert slow.value.wait_ms == 30_000
            assert await sent(store, first) == [1]
            assert await sent(store, second) == [2]
            assert await sent(store, draft(key="by the app", at=NOW + 2)) == [3]
            assert await sent(store, second, room="r2") == [1]
            await store.set_slow_mode(T, "r1", 0, AuditNote(T, NOW, "desk", "room.slow_mode", "r1"))
            assert await sent(store, replace(draft(key="k4", at=NOW + 3), paced=True)) == [4]

    async def test_a_record_is_found_by_the_key_of_its_author(self) -> None:
        async with self.opened() as store:
            await store.put_room(T, "r1")
            written = await store.append(T, "r1", draft())
            assert written is not None
            assert await store.message_by_key(T, "r1", "ann", "k1") == written.record
            for missing in ((T, "r1", "bob", "k1"), (T, "r1", "ann", "k2"), (T, "r2", "ann", "k1")):
                assert await store.message_by_key(*missing) is None
            assert await store.message_by_key("t2", "r1", "ann", "k1") is None

    # --- removal ---

    async def test_ended_restrictions_and_times_of_slow_mode_are_pruned_in_steps(self) -> None:
        async with self.opened() as store:
            await store.put_room(T, "r1")
            for number in range(3):
                await restrict(store, made(user=f"u{number}", until=NOW + number + 1))
            await restrict(store, made("ban"))
            await store.set_slow_mode(T, "r1", 30, AuditNote(T, NOW, "desk", "room.slow_mode", "r1"))
            await sent(store, replace(draft(), paced=True))
            assert await store.prune_restrictions(NOW, 10) == 0
            assert await store.prune_restrictions(NOW + 2, 1) == 1
            assert await store.prune_restrictions(NOW + 2, 10) == 1
            assert await store.prune_restrictions(NOW + PACE_MS + 1, 10) == 2
            assert [one.user for one in await store.restrictions(T, "r1", "ban", None, 9, NOW)] == ["ann"]

    async def test_restrictions_are_exported_and_erased_with_the_user_and_a_ban_from_the_tenant_stays(self) -> None:
        async with self.opened() as store:
            await store.put_room(T, "r1")
            await restrict(store, made("mute"))
            await restrict(store, made("ban", EVERYWHERE))
            await restrict(store, made("mute", user="bob")._replace(actor="ann"))
            await store.set_slow_mode(T, "r1", 30, AuditNote(T, NOW, "desk", "room.slow_mode", "r1"))
            await sent(store, replace(draft(), paced=True))
            tables = [table for table, _ in await all_of(store, "ann")]
            assert sorted(tables) == ["audit", "audit", "messages", "restrictions", "restrictions", "slow_sends"]
            await erase(store, "ann")
            assert await all_of(store, "ann") == []
            assert await store.restrictions(T, "r1", "mute", None, 9, NOW) == [
                made("mute", user="bob")._replace(actor="")
            ]
            assert [of.revocation.value for of in await store.revocations(0, 10, NOW)] == ["ann"]
            lifted = await lift(store, made("ban", EVERYWHERE))
            assert lifted is not None
            assert lifted.changed

    async def test_restrictions_of_a_deleted_room_are_removed(self) -> None:
        async with self.opened() as store:
            await store.put_room(T, "r1")
            await restrict(store, made("ban"))
            await restrict(store, made("ban", EVERYWHERE))
            await store.delete_room(T, "r1", AuditNote(T, NOW, "desk", "room.deleted", "r1"))
            while not (await store.purge_rooms(NOW * 2, 10)).is_over:
                pass
            assert await store.restrictions(T, "r1", "ban", None, 9, NOW) == []
            assert [one.user for one in await store.restrictions(T, EVERYWHERE, "ban", None, 9, NOW)] == ["ann"]
