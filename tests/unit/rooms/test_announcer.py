from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from greendot.engine.messages import Topic
from greendot.errors import StoreUnavailable
from greendot.node.channel import Channel, RoomKey
from greendot.node.context import NodeContext
from greendot.node.session import Connection
from greendot.node.time_slices import TimeSlices
from greendot.node.timers import Timers
from greendot.presence.profiles import ProfileService
from greendot.protocol.codec import encode_event
from greendot.protocol.events import Event, RoomCount, RoomEntered, RoomLeft
from greendot.rooms.announcer import COUNT_EVERY_S, CountThrottle, RoomAnnouncer
from greendot.testing import ManualClock
from greendot.visibility.cache import VisibilityCache
from greendot.visibility.model import VisibilityExceptions


class Counted:
    """A throttle with a clock that the test moves, and the times at which it sent."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timers = Timers(self.clock, driven=False)
        self.sent: list[float] = []
        self.is_fresh = True
        self.throttle = CountThrottle(self.timers, lambda: self.is_fresh)
        self.begun = self.timers.now()

    def soon(self) -> None:
        self.throttle.soon(lambda: self.sent.append(self.timers.now()))

    def pass_s(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.timers.tick()

    @property
    def after_s(self) -> list[float]:
        return [round(at - self.begun, 3) for at in self.sent]


def test_the_first_count_is_sent_at_once() -> None:
    counted = Counted()
    counted.soon()
    assert counted.after_s == [0.0]


def test_many_within_a_period_are_one_at_its_end() -> None:
    counted = Counted()
    for _ in range(5):
        counted.soon()
    assert counted.after_s == [0.0]
    counted.pass_s(COUNT_EVERY_S + 0.1)
    assert len(counted.sent) == 2
    assert counted.after_s[1] >= COUNT_EVERY_S
    counted.pass_s(10)
    assert len(counted.sent) == 2


def test_after_a_period_of_silence_the_next_is_sent_at_once() -> None:
    counted = Counted()
    counted.soon()
    counted.pass_s(COUNT_EVERY_S)
    counted.soon()
    assert len(counted.sent) == 2


def test_a_node_that_may_have_missed_removals_sends_the_count_later() -> None:
    counted = Counted()
    counted.is_fresh = False
    counted.soon()
    counted.pass_s(COUNT_EVERY_S)
    assert counted.sent == []
    counted.is_fresh = True
    counted.pass_s(COUNT_EVERY_S)
    assert counted.after_s == [2 * COUNT_EVERY_S]


def test_a_closed_throttle_sends_nothing_more() -> None:
    counted = Counted()
    counted.soon()
    counted.soon()
    counted.throttle.close()
    counted.pass_s(10)
    assert len(counted.sent) == 1


class Visibility:
    """Visibility in an open tenant, in which some users hide from others."""

    def __init__(self) -> None:
        self.hidden: set[tuple[str, str]] = set()  # viewer and target
        self.is_away = False
        self.freshness = SimpleNamespace(is_fresh=lambda: True)

    def view_exceptions(self, tenant: str) -> VisibilityExceptions:
        return VisibilityExceptions(is_open=True)

    def exceptions(self, tenant: str, target: str, viewers: Callable[[], Iterable[str]]) -> list[str]:
        return [viewer for viewer in viewers() if (viewer, target) in self.hidden]

    def hiders_from(self, tenant: str, viewer: str) -> list[str]:
        return [target for its, target in self.hidden if its == viewer]

    def is_certain(self, tenant: str) -> bool:
        return True

    def see(self, tenant: str, viewer: str, target: str, *, in_room: bool) -> str:
        return "hidden" if (viewer, target) in self.hidden else "full"

    async def know(self, tenant: str, viewers: Collection[str], targets: Collection[str]) -> None:
        if self.is_away:
            raise StoreUnavailable("away")


class Profiles:
    """Profiles of a tenant without any."""

    async def learn(self, tenant: str, users: Collection[str]) -> None:
        pass


class Hub:
    """Hub that records each frame with its key and its recipients."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.sent: list[tuple[str, dict[str, Any], set[str]]] = []
        self.keys: list[object] = []
        self.low: list[bool] = []

    def offer(
        self, channel: Channel, frame: bytes, *, key: object, skip: Collection[Connection] = (), low: bool = False
    ) -> None:
        assert channel is self._channel
        self._note(frame, [listener for listener in channel.listeners if listener not in skip], key)
        self.low.append(low)

    def send_each(self, connections: list[Connection], frame: bytes, *, key: object) -> None:
        self._note(frame, connections, key)

    def _note(self, frame: bytes, connections: list[Connection], key: object) -> None:
        event = json.loads(frame[frame.index(b"{") :])  # after the header of the WebSocket frame
        users = {connection.session.user for connection in connections if connection.session is not None}
        self.sent.append((event["type"], event["data"], users))
        self.keys.append(key)


class Guests(RoomAnnouncer):
    """Minimal announcer of occupants."""

    __slots__ = ("users",)

    ROLE, LAPSES = "guest", False

    def __init__(
        self,
        channel: Channel,
        context: NodeContext,
        visibility: VisibilityCache,
        profiles: ProfileService,
        large: int,
    ) -> None:
        super().__init__(channel, context, visibility, profiles, large, lambda: self.users)
        self.users: set[str] = set()

    def enter(self, user: str) -> None:
        self.users.add(user)
        self.room_view.appears(user)
        self._announce(user, self._event(user, seen=True), self.room_view.skipped(user))

    def leave(self, user: str) -> None:
        self.users.discard(user)
        self._announce_gone(user)

    async def look_up(self, *users: str) -> bool:
        return await self._look_up(users)

    def _event(self, user: str, *, seen: bool) -> Event:
        return RoomEntered(self._room, user) if seen else RoomLeft(self._room, user)

    def _announce_count(self) -> None:
        self.room_view.deliver_count(lambda count: encode_event(RoomCount(self._room, count), 0), "count", (), 0)


class Typists(Guests):
    """Announcer of occupants whose signals lapse."""

    LAPSES = True


class Place:
    """A room with three listeners. Above `large` listeners it counts as large."""

    def __init__(self, kind: type[Guests] = Guests, large: int = 10) -> None:
        self.clock = ManualClock()
        self.channel = Channel(Topic("room", "default", "lobby"))
        self.hub, self.visibility = Hub(self.channel), Visibility()
        for number, user in enumerate(("ann", "bob", "carl")):
            self.channel.listeners[cast(Connection, Listener(user))] = number
        self.guests = kind(
            self.channel,
            cast(
                NodeContext,
                SimpleNamespace(hub=self.hub, registry=self, clock=self.clock, timers=self.timers, slices=TimeSlices()),
            ),
            cast(VisibilityCache, self.visibility),
            cast(ProfileService, Profiles()),
            large,
        )

    @property
    def timers(self) -> Timers:
        return Timers(self.clock, driven=False)

    def connections_in(self, channel: Channel, user: str) -> list[Connection]:
        return [one for one in channel.listeners if one.session is not None and one.session.user == user]


class Listener:
    """A connection of a user."""

    def __init__(self, user: str) -> None:
        self.session = SimpleNamespace(user=user)


def test_a_small_room_is_sent_events_which_the_user_and_those_who_do_not_see_the_user_are_not() -> None:
    place = Place()
    place.visibility.hidden = {("bob", "ann")}
    place.guests.enter("ann")
    place.guests.enter("dora")
    place.guests.leave("ann")
    assert place.hub.sent == [
        ("room.entered", {"room": "lobby", "user": "ann", "name": None}, {"carl"}),
        ("room.entered", {"room": "lobby", "user": "dora", "name": None}, {"ann", "bob", "carl"}),
        ("room.left", {"room": "lobby", "user": "ann"}, {"carl"}),
    ]
    assert place.hub.keys == [RoomKey("lobby", ("guest", user)) for user in ("ann", "dora", "ann")]


@pytest.mark.parametrize(("kind", "low"), [(Guests, False), (Typists, True)])
def test_only_signals_that_lapse_may_be_shed(kind: type[Guests], low: bool) -> None:
    place = Place(kind)
    place.guests.enter("dora")
    assert place.hub.low == [low]


@pytest.mark.parametrize(("kind", "told"), [(Guests, []), (Typists, [{"room": "lobby", "count": 1}])])
def test_who_knows_the_count_by_names_is_not_sent_it_unless_it_lapses(
    kind: type[Guests], told: list[dict[str, Any]]
) -> None:
    place = Place(kind)
    place.guests.enter("dora")
    place.visibility.hidden = {("bob", "emil")}
    place.guests.enter("emil")
    place.hub.sent.clear()
    place.guests._announce_count()
    assert [data for _, data, users in place.hub.sent if users == {"bob"}] == told


def test_without_listeners_nothing_is_sent() -> None:
    place = Place()
    place.channel.listeners.clear()
    place.guests.enter("dora")
    place.guests.leave("dora")
    assert place.hub.sent == []


def test_a_large_room_is_sent_a_count() -> None:
    place = Place(large=2)
    place.guests.users = {"dora", "emil"}
    place.guests.leave("dora")
    assert [(kind, users) for kind, _, users in place.hub.sent] == [("room.count", {"ann", "bob", "carl"})]


async def test_a_review_announces_whom_listeners_see_from_now_on_or_no_longer() -> None:
    place = Place()
    place.guests.enter("dora")
    place.hub.sent.clear()
    place.visibility.hidden = {("bob", "dora")}
    await place.guests.review(None)
    await place.guests.review(["dora"])
    place.visibility.hidden = set()
    await place.guests.review(["bob"])
    assert place.hub.sent == [
        ("room.left", {"room": "lobby", "user": "dora"}, {"bob"}),
        ("room.entered", {"room": "lobby", "user": "dora", "name": None}, {"bob"}),
    ]
    assert place.hub.keys[-1] == RoomKey("lobby", ("guest", "dora"))


async def test_a_review_of_a_large_room_is_one_count() -> None:
    place = Place(large=2)
    place.guests.users = {"dora", "emil"}
    place.visibility.hidden = {("bob", "dora"), ("ann", "emil")}
    await place.guests.review(None)
    assert {kind for kind, _, _ in place.hub.sent} == {"room.count"}


async def test_a_look_up_returns_whether_the_store_could_be_read() -> None:
    place = Place()
    assert await place.guests.look_up("dora")
    place.visibility.is_away = True
    assert not await place.guests.look_up("dora")
