"""The view of a room: which of its users each listener sees, and how many."""

from __future__ import annotations

from collections.abc import Sequence

from greendot.engine.messages import Topic
from greendot.protocol.codec import encode_event
from greendot.protocol.events import RoomCount
from greendot.visibility.room_view import RoomView, VisibilityChange
from unit.service_parts import TENANT, Parts, RecordedConnection, in_virtual_time


class Viewed:
    """A room with these targets, a view of it, and its listeners."""

    def __init__(self, parts: Parts, *targets: str, tenant: str = TENANT) -> None:
        self.parts = parts
        self.tenant = tenant
        self.targets = [*targets]
        self.channel = parts.hub.channel(Topic("room", tenant, "lobby"))
        self.view = RoomView(self.channel, parts.context, parts.visibility, lambda: self.targets)

    async def listen(self, *users: str) -> list[RecordedConnection]:
        """Have users listen, who are told what they see."""
        connections = [await self.parts.connect(user, tenant=self.tenant) for user in users]
        await self.parts.visibility.know(self.tenant, users, self.targets)
        for connection in connections:
            self.parts.hub.attach(self.channel, connection)
            self.view.came(connection.session.user)
        return connections

    async def appear(self, target: str) -> None:
        """Have a user come into the room, once it is known who may see them."""
        self.targets.append(target)
        await self.parts.visibility.know(self.tenant, self.view.viewers(), [target])
        self.view.appears(target)

    async def hide(self, user: str, *others: str) -> None:
        """Hide a user from others, and have this node know it."""
        await self.parts.store.put_privacy(self.tenant, user, hide_from=frozenset(others))
        await self.parts.visibility.changed(self.tenant, [user])
        await self.parts.visibility.know(self.tenant, self.view.viewers(), self.targets)

    async def counted(
        self, *connections: RecordedConnection, others: Sequence[str] = (), also: int = 0
    ) -> list[list[int]]:
        """Deliver counts, and return those that each connection got."""
        return await self._deliver(connections, others, also, lapses=False)

    async def repeated(self, *connections: RecordedConnection) -> list[list[int]]:
        """The same for counts that lapse at the client."""
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
async def test_where_nobody_hides_all_listeners_get_the_same_count(parts: Parts) -> None:
    it = Viewed(parts, "ann", "bob")
    ann, cid = await it.listen("ann", "cid")
    assert await it.counted(ann, cid) == [[2], [2]]
    assert await it.counted(ann, cid) == [[2], [2]]
    assert (it.view.blind("ann"), it.view.skipped("ann")) == ([], [ann])
    assert it.view.review(None) == []


@in_virtual_time
async def test_a_listener_who_does_not_see_a_user_is_left_out_and_gets_a_smaller_count(parts: Parts) -> None:
    it = Viewed(parts, "ann", "dan")
    await it.hide("ann", "bob")
    bob, laptop, cid = await it.listen("bob", "bob", "cid")
    assert (it.view.sees("bob", "ann"), it.view.sees("cid", "ann")) == (False, True)
    assert it.view.blind("ann") == [bob, laptop]
    assert (it.view.count("bob"), it.view.count("cid")) == (1, 2)
    assert await it.counted(bob, laptop, cid) == [[], [], []]  # they were told when they came
    await it.appear("eve")
    assert await it.counted(bob, laptop, cid) == [[2], [2], [3]]


@in_virtual_time
async def test_a_count_that_stays_is_not_repeated_for_those_who_do_not_see_everybody(parts: Parts) -> None:
    it = Viewed(parts, "dan")
    await it.hide("ann", "bob")
    bob, cid = await it.listen("bob", "cid")
    assert await it.counted(bob, cid) == [[], []]  # both were told when they came
    await it.appear("ann")
    assert await it.counted(bob, cid) == [[], [2]]  # for bob nothing has changed
    await it.appear("eve")
    assert await it.counted(bob, cid) == [[2], [3]]


@in_virtual_time
async def test_a_user_who_goes_is_nobodys_exception_any_more(parts: Parts) -> None:
    it = Viewed(parts, "ann", "dan")
    await it.hide("ann", "bob")
    bob, cid = await it.listen("bob", "cid")
    it.targets.remove("ann")
    it.view.goes("ann")
    assert (it.view.count("bob"), it.view.blind("ann")) == (1, [])
    assert await it.counted(bob, cid) == [[], [1]]


@in_virtual_time
async def test_users_who_do_not_count_themselves_get_another_count(parts: Parts) -> None:
    it = Viewed(parts, "ann", "bob")
    ann, cid = await it.listen("ann", "cid")
    for _ in range(2):
        assert await it.counted(ann, cid, others=["ann"], also=-1) == [[1], [2]]
    await it.hide("bob", "cid")
    it.view.review(["bob"])
    assert await it.counted(ann, cid, others=["ann"], also=-1) == [[1], [1]]  # the count of cid is another for a reason


@in_virtual_time
async def test_a_count_that_lapses_is_repeated_unless_it_is_nothing(parts: Parts) -> None:
    it = Viewed(parts, "ann", "dan")
    await it.hide("ann", "bob")
    (bob,) = await it.listen("bob")
    assert await it.repeated(bob) == [[1]]
    assert await it.repeated(bob) == [[1]]
    it.targets.remove("dan")
    assert await it.repeated(bob) == [[0]]
    assert await it.repeated(bob) == [[]]


@in_virtual_time
async def test_a_review_returns_what_is_different_for_the_users_named(parts: Parts) -> None:
    it = Viewed(parts, "ann", "dan")
    await it.hide("eve", "x")  # from now on there is something to decide
    await it.listen("bob", "cid")
    await it.hide("ann", "bob")
    await it.hide("dan", "cid")
    assert it.view.review(["ann"]) == [VisibilityChange("bob", "ann", False)]
    assert it.view.review(["ann"]) == []
    assert it.view.review(["cid"]) == [VisibilityChange("cid", "dan", False)]  # by the viewer
    await it.hide("ann")
    await it.hide("dan")
    assert sorted(it.view.review(None)) == [("bob", "ann", True), ("cid", "dan", True)]


@in_virtual_time
async def test_a_review_of_all_forgets_viewers_who_are_gone(parts: Parts) -> None:
    it = Viewed(parts, "ann")
    await it.hide("ann", "bob", "cid")
    bob, cid = await it.listen("bob", "cid")
    parts.hub.detach(it.channel, bob)
    assert it.view.review(None) == []
    assert (it.view.sees("bob", "ann"), it.view.sees("cid", "ann")) == (True, False)
    assert it.view.blind("ann") == [cid]


@in_virtual_time
async def test_a_listener_who_returns_sees_what_is_decided_now(parts: Parts) -> None:
    it = Viewed(parts, "ann", "dan")
    await it.hide("ann", "bob")
    (bob,) = await it.listen("bob")
    await it.hide("ann")
    await it.hide("dan", "bob")
    it.view.came("bob")
    assert (it.view.sees("bob", "ann"), it.view.sees("bob", "dan")) == (True, False)
    assert await it.counted(bob) == [[]]


@in_virtual_time
async def test_where_contacts_see_each_other_each_listener_has_a_count_of_their_own(parts: Parts) -> None:
    it = Viewed(parts, "ann", "bob", "dan", tenant="contacts")
    for user, other in (("ann", "bob"), ("bob", "ann"), ("dan", "bob")):
        await parts.store.put_contact("contacts", user, other, 1, most=10)
    ann, bob, cid = await it.listen("ann", "bob", "cid")
    assert [it.view.count(user) for user in ("ann", "bob", "cid")] == [2, 2, 0]  # one's self, and contacts
    assert it.view.blind("ann") == [cid]
    assert await it.counted(ann, bob, cid) == [[], [], []]
    it.targets.remove("ann")
    it.view.goes("ann")
    assert await it.counted(ann, bob, cid) == [[1], [1], []]


@in_virtual_time
async def test_those_who_were_told_names_know_the_count(parts: Parts) -> None:
    it = Viewed(parts, "dan")
    await it.hide("ann", "bob")
    bob, cid = await it.listen("bob", "cid")
    for target in ("ann", "eve"):
        await it.appear(target)
    it.view.named()
    assert await it.counted(bob, cid) == [[], [3]]
    await it.appear("fay")
    it.view.named()
    await it.hide("gus", "cid")
    await it.appear("gus")
    assert await it.counted(bob, cid) == [[4], []]  # cid was told four names, and sees four still


@in_virtual_time
async def test_a_user_nothing_is_known_of_is_seen_by_nobody(parts: Parts) -> None:
    it = Viewed(parts, "dan")
    await it.hide("eve", "x")
    bob, cid = await it.listen("bob", "cid")
    it.targets.append("ann")
    it.view.appears("ann")
    assert {*it.view.blind("ann")} == {bob, cid}
    assert [it.view.count(user) for user in ("bob", "cid")] == [1, 1]
