"""View of a room: the users and the count that each listener sees."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from greendot.engine.messages import Topic
from greendot.protocol.codec import encode_event
from greendot.protocol.events import RoomCount
from greendot.visibility.room_view import RoomView, VisibilityChange
from unit.service_parts import TENANT, Parts, RecordedConnection, in_virtual_time


class Viewed:
    """A room with these targets, its view and its listeners."""

    def __init__(self, parts: Parts, *targets: str, tenant: str = TENANT) -> None:
        self.parts = parts
        self.tenant = tenant
        self.targets = [*targets]
        self.channel = parts.hub.channel(Topic("room", tenant, "lobby"))
        self.view = RoomView(self.channel, parts.context, parts.visibility, lambda: self.targets)

    async def listen(self, *users: str) -> list[RecordedConnection]:
        """Attach listeners. Each gets the count on attaching."""
        connections = [await self.parts.connect(user, tenant=self.tenant) for user in users]
        await self.parts.visibility.know(self.tenant, users, self.targets)
        for connection in connections:
            self.parts.hub.attach(self.channel, connection)
            self.view.came(connection.session.user)
        return connections

    async def appear(self, target: str) -> None:
        """Add a user to the room once the facts about the user are known."""
        self.targets.append(target)
        await self.parts.visibility.know(self.tenant, self.view.viewers(), [target])
        self.view.appears(target)

    async def hide(self, user: str, *others: str) -> None:
        """Hide a user from others, in the store and in the cache of this node."""
        await self.parts.store.put_privacy(self.tenant, user, hide_from=frozenset(others))
        await self.parts.visibility.changed(self.tenant, [user])
        await self.parts.visibility.know(self.tenant, self.view.viewers(), self.targets)

    def review(self, users: Sequence[str] | None) -> list[VisibilityChange]:
        """Decide again about these users, or about all, and return the differences."""
        pairs = [*self.view.pairs(self.view.everyone() if users is None else users, users or ())]
        return [change for pair in pairs if (change := self.view.decide(*pair)) is not None]

    async def counted(
        self, *connections: RecordedConnection, others: Sequence[str] = (), also: int = 0
    ) -> list[list[int]]:
        """Deliver counts and return those that each connection received."""
        return await self._deliver(connections, others, also, lapses=False)

    async def repeated(self, *connections: RecordedConnection) -> list[list[int]]:
        """Deliver counts that lapse at the client and return those that each connection received."""
        return await self._deliver(connections, (), 0, lapses=True)

    async def _deliver(
        self, connections: Sequence[RecordedConnection], others: Sequence[str], also: int, *, lapses: bool
    ) -> list[list[int]]:
        self.view.deliver_count(
            lambda count: encode_event(RoomCount("lobby", count), 0), "count", others, also, lapses=lapses
        )
        await self.parts.settle()
        return [[data["count"] for data in connection.data("room.count")] for connection in connections]


@in_virtual_time
async def test_all_listeners_receive_the_same_count_if_no_user_hides(parts: Parts) -> None:
    room = Viewed(parts, "ann", "bob")
    ann, cid = await room.listen("ann", "cid")
    assert await room.counted(ann, cid) == [[2], [2]]
    assert await room.counted(ann, cid) == [[2], [2]]
    assert (room.view.blind("ann"), room.view.skipped("ann")) == ([], [ann])
    assert room.review(None) == []


@in_virtual_time
async def test_a_listener_who_does_not_see_a_user_is_left_out_and_gets_a_smaller_count(parts: Parts) -> None:
    room = Viewed(parts, "ann", "dan")
    await room.hide("ann", "bob")
    bob, laptop, cid = await room.listen("bob", "bob", "cid")
    assert (room.view.sees("bob", "ann"), room.view.sees("cid", "ann")) == (False, True)
    assert room.view.blind("ann") == [bob, laptop]
    assert (room.view.count("bob"), room.view.count("cid")) == (1, 2)
    assert await room.counted(bob, laptop, cid) == [[], [], []]  # they got the count on attaching
    await room.appear("eve")
    assert await room.counted(bob, laptop, cid) == [[2], [2], [3]]


@in_virtual_time
async def test_an_unchanged_count_is_not_repeated_for_viewers_with_hidden_users(parts: Parts) -> None:
    room = Viewed(parts, "dan")
    await room.hide("ann", "bob")
    bob, cid = await room.listen("bob", "cid")
    assert await room.counted(bob, cid) == [[], []]  # both got the count on attaching
    await room.appear("ann")
    assert await room.counted(bob, cid) == [[], [2]]  # the count of bob is unchanged
    await room.appear("eve")
    assert await room.counted(bob, cid) == [[2], [3]]


@in_virtual_time
async def test_a_user_who_leaves_is_no_longer_an_exception_of_any_viewer(parts: Parts) -> None:
    room = Viewed(parts, "ann", "dan")
    await room.hide("ann", "bob")
    bob, cid = await room.listen("bob", "cid")
    room.targets.remove("ann")
    room.view.goes("ann")
    assert (room.view.count("bob"), room.view.blind("ann")) == (1, [])
    assert await room.counted(bob, cid) == [[], [1]]


@in_virtual_time
async def test_users_who_do_not_count_themselves_get_another_count(parts: Parts) -> None:
    room = Viewed(parts, "ann", "bob")
    ann, cid = await room.listen("ann", "cid")
    for _ in range(2):
        assert await room.counted(ann, cid, others=["ann"], also=-1) == [[1], [2]]
    await room.hide("bob", "cid")
    room.review(["bob"])
    assert await room.counted(ann, cid, others=["ann"], also=-1) == [
        [1],
        [1],
    ]  # the count of cid changed because bob hides


@in_virtual_time
async def test_a_count_that_lapses_is_repeated_unless_it_is_nothing(parts: Parts) -> None:
    room = Viewed(parts, "ann", "dan")
    await room.hide("ann", "bob")
    (bob,) = await room.listen("bob")
    assert await room.repeated(bob) == [[1]]
    assert await room.repeated(bob) == [[1]]
    room.targets.remove("dan")
    assert await room.repeated(bob) == [[0]]
    assert await room.repeated(bob) == [[]]


@in_virtual_time
async def test_a_review_returns_what_is_different_for_the_users_named(parts: Parts) -> None:
    room = Viewed(parts, "ann", "dan")
    await room.hide("eve", "x")  # from now on the tenant has hidden users
    await room.listen("bob", "cid")
    await room.hide("ann", "bob")
    await room.hide("dan", "cid")
    assert room.review(["ann"]) == [VisibilityChange("bob", "ann", False)]
    assert room.review(["ann"]) == []
    assert room.review(["cid"]) == [VisibilityChange("cid", "dan", False)]  # found by the viewer
    await room.hide("ann")
    await room.hide("dan")
    assert sorted(room.review(None)) == [("bob", "ann", True), ("cid", "dan", True)]


@in_virtual_time
async def test_a_review_of_all_forgets_viewers_who_are_gone(parts: Parts) -> None:
    room = Viewed(parts, "ann")
    await room.hide("ann", "bob", "cid")
    bob, cid = await room.listen("bob", "cid")
    parts.hub.detach(room.channel, bob)
    assert room.review(None) == []
    assert (room.view.sees("bob", "ann"), room.view.sees("cid", "ann")) == (True, False)
    assert room.view.blind("ann") == [cid]


@in_virtual_time
async def test_a_listener_who_returns_sees_what_is_decided_now(parts: Parts) -> None:
    room = Viewed(parts, "ann", "dan")
    await room.hide("ann", "bob")
    (bob,) = await room.listen("bob")
    await room.hide("ann")
    await room.hide("dan", "bob")
    room.view.came("bob")
    assert (room.view.sees("bob", "ann"), room.view.sees("bob", "dan")) == (True, False)
    assert await room.counted(bob) == [[]]


@in_virtual_time
async def test_where_contacts_see_each_other_each_listener_has_a_count_of_their_own(parts: Parts) -> None:
    room = Viewed(parts, "ann", "bob", "dan", tenant="contacts")
    for user, other in (("ann", "bob"), ("bob", "ann"), ("dan", "bob")):
        await parts.store.put_contact("contacts", user, other, 1, most=10)
    ann, bob, cid = await room.listen("ann", "bob", "cid")
    assert [room.view.count(user) for user in ("ann", "bob", "cid")] == [2, 2, 0]  # oneself and contacts
    assert room.view.blind("ann") == [cid]
    assert await room.counted(ann, bob, cid) == [[], [], []]
    room.targets.remove("ann")
    room.view.goes("ann")
    assert await room.counted(ann, bob, cid) == [[1], [1], []]


@in_virtual_time
async def test_listeners_that_received_names_do_not_receive_an_equal_count(parts: Parts) -> None:
    room = Viewed(parts, "dan")
    await room.hide("ann", "bob")
    bob, cid = await room.listen("bob", "cid")
    for target in ("ann", "eve"):
        await room.appear(target)
    room.view.named()
    assert await room.counted(bob, cid) == [[], [3]]
    await room.appear("fay")
    room.view.named()
    await room.hide("gus", "cid")
    await room.appear("gus")
    assert await room.counted(bob, cid) == [[4], []]  # cid received four names, and still sees four


@in_virtual_time
async def test_a_user_of_unknown_visibility_is_seen_by_no_member(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("greendot.visibility.cache.MOST_LISTED", 0)  # facts are read for each user
    room = Viewed(parts, "dan")
    await room.hide("eve", "x")
    bob, cid = await room.listen("bob", "cid")
    room.targets.append("ann")
    room.view.appears("ann")
    assert {*room.view.blind("ann")} == {bob, cid}
    assert [room.view.count(user) for user in ("bob", "cid")] == [1, 1]
    eve = await parts.connect("eve")
    parts.hub.attach(room.channel, eve)
    room.view.came("eve")
    assert not room.view.sees("eve", "ann")


@in_virtual_time
async def test_a_join_decides_about_the_users_who_hide_from_the_viewer_and_no_others(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = Viewed(parts, *(f"u{number}" for number in range(200)))
    await room.hide("u1", "bob")
    await room.hide("u2", "cid")
    await room.hide("elsewhere", "bob")
    decided: list[str] = []
    see = parts.visibility.see

    def counted(tenant: str, viewer: str, target: str, *, in_room: bool = False) -> str:
        decided.append(target)
        return see(tenant, viewer, target, in_room=in_room)

    monkeypatch.setattr(parts.visibility, "see", counted)
    parts.store.take_calls()
    await room.listen("bob", "dan")
    assert (decided, parts.store.take_calls()) == (["u1"], [])
    assert (room.view.count("bob"), room.view.count("dan")) == (199, 200)
    decided.clear()
    assert room.review(["u1", "u2"]) == []
    assert decided == ["u1"]


@in_virtual_time
async def test_a_pair_that_left_the_room_before_the_decision_is_no_difference(parts: Parts) -> None:
    room = Viewed(parts, "ann", "dan")
    await room.hide("eve", "x")
    (bob,) = await room.listen("bob")
    await room.hide("ann", "bob")
    await room.hide("dan", "bob")
    pairs = [*room.view.pairs(["ann", "dan"], [])]
    assert sorted(pairs) == [("bob", "ann"), ("bob", "dan")]
    room.targets.remove("ann")
    assert room.view.decide("bob", "ann") is None
    parts.hub.detach(room.channel, bob)
    assert room.view.decide("bob", "dan") is None
    assert room.view.sees("bob", "dan")  # nothing is kept about a viewer who is gone
