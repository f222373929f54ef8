"""Rooms that are closed while a user joins or reads them, step by step on each engine and store."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from backends import on_each_pair, serving_on
from e2e.processes import until
from greendot.engine.messages import Topic
from greendot.rooms.local_room import LocalRoom
from greendot.store.rooms import Draft
from greendot.testing import Held, Served, WireClient, hold, serving

CLUB = Topic("room", "default", "club")


async def open_club(served: Served) -> WireClient:
    """Make the open room `club` and return a client of its only member, who listens there."""
    await served.node.room_messages.put_room("default", "club", open=True, bus=None)
    await served.node.room_messages.put_member("default", "club", "alice", "member")
    return await served.joined("alice", "club")


def club(served: Served) -> LocalRoom:
    local = served.node.rooms.local(CLUB)
    assert local is not None
    return local


async def close_club(served: Served) -> int:
    """Close the room and return the new revision of its members."""
    return (await served.node.room_messages.put_room("default", "club", open=False, bus=None)).members_rev


async def closed_club_with_bob(served: Served) -> tuple[WireClient, WireClient]:
    """Return alice and bob, both members of the closed club who have joined it."""
    alice = await open_club(served)
    await close_club(served)
    await served.node.room_messages.put_member("default", "club", "bob", "member")
    return alice, await served.joined("bob", "club")


def hold_admitted(served: Served) -> AbstractAsyncContextManager[Held]:
    """Hold joins after the store has admitted them, before they are attached."""
    membership = served.node.rooms.membership
    return hold(membership, "admit", at="after", when=lambda *args, fresh=False, **kwargs: fresh)


async def hears_nothing_of_a_message(served: Served, alice: WireClient, bob: WireClient) -> None:
    await alice.request(type="room.send", room="club", body="for members")
    assert (await alice.receive("room.message"))["data"]["body"] == "for members"
    assert [frame for frame in await bob.quiet() if frame["type"] == "room.message"] == []


@on_each_pair
async def test_a_join_admitted_before_the_room_was_closed_is_refused(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        alice, bob = await open_club(served), await served.client("bob")
        async with hold_admitted(served) as held:
            bob.send(type="room.join", room="club", id="j")
            await held.reached()
            revision = await close_club(served)
            await until(lambda: club(served).members_rev == revision and club(served).unchecked is None)
        assert (await bob.receive("error"))["code"] == "not_a_member"
        await hears_nothing_of_a_message(served, alice, bob)


@on_each_pair
async def test_a_join_while_the_members_are_looked_up_is_decided_by_the_newest_members(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        alice, bob = await open_club(served), await served.client("bob")
        async with hold(served.node.store, "member_states", at="after") as looking, hold_admitted(served) as entering:
            bob.send(type="room.join", room="club", id="j")
            await entering.reached()
            await close_club(served)
            await looking.reached()
            # The join continues first: it must not be attached after the lookup has taken its list of members.
            entering.release()
            await alice.request(type="presence.get", users=["bob"])
        assert (await bob.receive("error"))["code"] == "not_a_member"
        await hears_nothing_of_a_message(served, alice, bob)


@on_each_pair
async def test_history_read_while_the_room_is_closed_is_not_sent(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        await served.node.room_messages.put_room("default", "club", open=True, bus=None)
        bob = await served.client("bob")
        async with hold(served.node.store, "room_page") as held:
            bob.send(type="room.history", room="club", id="h")
            await held.reached()
            await close_club(served)
            secret = Draft("app", None, b'"for members"', "k1", served.clock.now_ms())
            await served.node.room_messages.append("default", "club", secret)
        assert (await bob.receive("error"))["code"] == "not_a_member"


@on_each_pair
async def test_a_member_removed_while_the_room_is_closed_receives_nothing_after_the_removal(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        alice = await open_club(served)
        await served.node.room_messages.put_member("default", "club", "bob", "member")
        bob = await served.joined("bob", "club")
        seen_open = await served.node.store.room("default", "club")
        assert seen_open is not None
        await close_club(served)
        # The lookup of members is held: the removal itself must take effect.
        async with hold(served.node.store, "member_states"):
            await served.node.room_messages.remove_member("default", seen_open, "bob")
            assert bob_is_out(served)
        await hears_nothing_of_a_message(served, alice, bob)


def bob_is_out(served: Served) -> bool:
    return not any("club" in (c.rooms or ()) for c in served.node.registry.connections_of("default", "bob"))


@on_each_pair
async def test_a_record_does_not_reach_a_member_whose_removal_was_never_announced(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        alice, bob = await closed_club_with_bob(served)
        await served.node.store.remove_member("default", "club", "bob")
        alice.send(type="room.send", room="club", body="for members")
        await alice.request(type="presence.get", users=["bob"])
        assert [frame for frame in await bob.quiet() if frame["type"] == "room.message"] == []
        await until(lambda: bool(club(served).unchecked))  # the record waits for the announcement
        await served.advance(0.1)
        assert (await alice.receive("room.message"))["data"]["body"] == "for members"
        assert [frame["type"] for frame in await bob.quiet()] == ["room.changed"]


@on_each_pair
async def test_a_member_removed_while_the_role_is_read_again_receives_nothing_that_waited(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        alice, bob = await closed_club_with_bob(served)
        room = await served.node.store.room("default", "club")
        assert room is not None
        async with hold(served.node.store, "member_states", at="after") as held:
            await served.node.room_messages.put_member("default", "club", "bob", "reader")
            await held.reached()  # the read of bob's role saw a member
            await served.node.room_messages.remove_member("default", room, "bob")
            assert bob_is_out(served)
            await served.node.room_messages.append(
                "default", "club", Draft("app", None, b'"for members"', "k1", served.clock.now_ms())
            )
        assert (await alice.receive("room.message"))["data"]["body"] == "for members"
        assert [frame["type"] for frame in await bob.quiet()] == ["room.changed"]


@on_each_pair
async def test_changes_of_other_members_read_no_listener(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        alice = await open_club(served)
        async with hold(served.node.store, "member_states") as reading:
            for number in range(5):
                await served.node.room_messages.put_member("default", "club", f"u{number}", "member")
            await alice.request(type="room.send", room="club", body="hello")
            assert (await alice.receive("room.message"))["data"]["seq"] == 1
            assert reading.calls == 0
        stored = await served.node.store.room("default", "club")
        assert stored is not None
        assert club(served).members_rev == stored.members_rev


@on_each_pair
async def test_a_message_on_its_way_while_its_author_is_removed_is_refused(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        alice = await open_club(served)
        await close_club(served)
        room = await served.node.store.room("default", "club")
        assert room is not None
        async with hold(served.node.store, "append") as held:
            alice.send(type="room.send", room="club", body="too late", id="s")
            await held.reached()
            await served.node.room_messages.remove_member("default", room, "alice")
        assert (await alice.receive("room.changed"))["data"]["removed"]
        assert (await alice.receive("error"))["code"] == "not_a_member"
        assert await served.node.store.messages("default", "club", limit=10) == []


@on_each_pair
async def test_a_message_on_its_way_while_others_come_and_go_is_written(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        alice = await open_club(served)
        async with hold(served.node.store, "append") as held:
            alice.send(type="room.send", room="club", body="hello", id="s")
            await held.reached()
            await served.node.room_messages.put_member("default", "club", "carol", "member")
        assert (await alice.receive("reply"))["data"]["seq"] == 1


@on_each_pair
async def test_a_change_on_its_way_while_its_author_becomes_a_reader_is_refused(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        alice = await open_club(served)
        await alice.request(type="room.send", room="club", body="one")
        await alice.receive("room.message")
        async with hold(served.node.store, "append") as held:
            alice.send(type="room.edit", room="club", ref=1, body="two", id="e")
            await held.reached()
            await served.node.room_messages.put_member("default", "club", "alice", "reader")
        assert (await alice.receive("error"))["code"] == "forbidden"


@on_each_pair
async def test_a_join_waits_for_the_members_and_does_not_ask_the_store_meanwhile(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        await open_club(served)
        bob, carol = await served.client("bob"), await served.client("carol")
        membership = served.node.rooms.membership
        async with hold(membership, "refresh") as looking, hold(membership, "admit") as asked:
            asked.release()  # admissions are only counted
            await served.node.room_messages.put_room("default", "club", open=True, bus=None)
            await looking.reached()
            bob.send(type="room.join", room="club", id="j")
            await until(lambda: asked.calls >= 2)
            for _ in range(20):
                await carol.request(type="presence.get", users=["bob"])
            assert asked.calls == 2
        assert (await bob.receive("reply"))["data"]["room"] == "club"


async def test_a_join_is_put_off_where_the_members_never_stay_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as served:
        await open_club(served)
        bob = await served.client("bob")
        monkeypatch.setattr(served.node.rooms, "_is_current", lambda local, admitted, revision: False)
        bob.send(type="room.join", room="club", id="j")
        assert (await bob.receive("error"))["code"] == "unavailable"
        monkeypatch.undo()
        assert (await bob.request(type="room.join", room="club"))["room"] == "club"
