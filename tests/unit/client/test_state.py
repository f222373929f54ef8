from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from greendot.client.codec import Truncated
from greendot.client.state import People, Throttle, Typists, View
from greendot.protocol.events import (
    InboxBadge,
    Resync,
    RoomChanged,
    TypingCount,
    TypingStarted,
    TypingStopped,
    TypingTimes,
)
from greendot.protocol.replies import Typer

from .wire import a_join, a_message, a_presence, a_welcome

TIMES = TypingTimes()


def test_presence_only_moves_forward() -> None:
    people = People()
    assert people.apply(a_presence(version=5))
    assert not people.apply(a_presence(version=4, state="offline"))
    assert not people.apply(a_presence(version=5))
    assert people.apply(a_presence(version=6, state="idle"))
    assert people.known["bob"].state == "idle"


@given(st.lists(st.integers(1, 20)))
def test_in_any_order_the_newest_presence_wins_and_each_version_is_news_once(versions: list[int]) -> None:
    people = People()
    news = [version for version in versions if people.apply(a_presence(version=version))]
    assert news == sorted(set(news))
    if versions:
        assert people.known["bob"].version == max(versions)


def test_a_server_that_knows_nothing_of_a_user_any_more_is_believed() -> None:
    people = People()
    people.apply(a_presence(version=5))
    assert people.apply(a_presence(version=0, state="offline"))
    assert not people.apply(a_presence(version=0, state="offline"))
    assert people.apply(a_presence(version=6))


def test_a_server_that_restores_lost_records_makes_no_user_offline() -> None:
    people = People()
    people.apply(a_presence(version=5))
    assert people.apply(replace(a_presence(version=0, state="offline"), stale=True))
    assert (people.known["bob"].state, people.known["bob"].version, people.known["bob"].stale) == ("online", 5, True)
    assert people.apply(replace(a_presence(version=0, state="idle"), stale=True)), "restored sessions count"
    assert people.known["bob"].state == "idle"
    assert people.apply(a_presence(version=6, state="offline"))
    assert people.known["bob"].state == "offline"


def test_a_snapshot_of_the_same_version_adds_the_devices_without_being_news() -> None:
    people = People()
    people.apply(a_presence(version=5))
    assert not people.apply(replace(a_presence(version=5), devices=["phone"]))
    assert people.known["bob"].devices == ["phone"]


def test_a_new_name_or_info_is_news_although_the_version_is_the_same() -> None:
    people = People()
    known = a_presence("ann", 5)
    assert people.apply(known)
    assert people.apply(replace(known, info={"colour": "blue"}))
    assert not people.apply(replace(known, info={"colour": "blue"}))
    assert people.apply(replace(known, info={"colour": "red"}, name="Anne"))
    assert not people.apply(replace(known, version=4, info={"colour": "blue"}))
    assert people.known["ann"].info == {"colour": "red"}


def test_a_change_of_the_mode_is_an_event_and_replies_update_watched_users_only() -> None:
    view = View()
    view.watch([a_presence("bob", version=5)])
    polled = replace(a_presence("bob", version=5), mode="poll", recently_active=True)
    assert view.apply(polled, 0)
    assert not view.apply(polled, 0)
    view.asked([replace(polled, version=6, recently_active=False), a_presence("ann")])
    assert (view.people.known["bob"].mode, view.people.known["bob"].recently_active) == ("poll", False)
    assert [*view.people.known] == ["bob"]
    view.asked([polled])  # an outdated answer
    assert view.people.known["bob"].version == 6


def test_what_people_see_cannot_be_changed_from_outside() -> None:
    with pytest.raises(TypeError):
        People().known["bob"] = a_presence()  # type: ignore[index]


def test_a_joined_room_goes_on_behind_its_head() -> None:
    view = View()
    view.joined(a_join(head=3), None, 0)
    assert [seq for seq in (3, 4, 4, 5, 2, 6) if view.apply(a_message(seq), 0)] == [4, 5, 6]
    assert view.records.rooms == {"lobby": 6}


def test_joining_again_neither_loses_the_cursor_nor_skips_undelivered_messages() -> None:
    view = View()
    view.joined(a_join(head=9), None, 0)
    view.joined(a_join(head=7), None, 0)
    view.joined(a_join(head=12), None, 0)
    assert view.records.rooms["lobby"] == 9


def test_messages_in_the_reply_of_a_join_are_not_delivered_again() -> None:
    view = View()
    assert view.joined(a_join(head=9, messages=(a_message(8), a_message(9))), 7, 0) is None
    assert [seq for seq in (8, 9, 10) if view.apply(a_message(seq), 0)] == [10]


def test_the_newest_messages_of_a_join_are_not_delivered_again() -> None:
    view = View()
    view.joined(a_join(head=9, messages=(a_message(8), a_message(9))), None, 0)
    assert [seq for seq in (8, 9, 10) if view.apply(a_message(seq), 0)] == [10]
    # A room that was joined before: the reply has all undelivered messages.
    view.joined(a_join(head=12, messages=(a_message(11), a_message(12))), None, 0)
    assert [seq for seq in (11, 12, 13) if view.apply(a_message(seq), 0)] == [13]


def test_undelivered_messages_before_the_newest_ones_of_a_join_are_still_delivered() -> None:
    view = View()
    view.joined(a_join(head=5), None, 0)
    view.joined(a_join(head=9, messages=(a_message(8), a_message(9))), None, 0)
    assert [seq for seq in (6, 7, 8, 9, 10) if view.apply(a_message(seq), 0)] == [6, 7, 8, 9, 10]


def test_messages_too_many_for_the_reply_of_a_join_are_fetched() -> None:
    view = View()
    assert view.joined(a_join(head=900, truncated=True, recovered=False), 100, 0) is None
    assert view.records.behind() == "room:lobby"
    assert view.records.rooms == {"lobby": 100}


def test_a_cursor_beyond_the_head_is_given_up() -> None:
    view = View()
    skipped = view.joined(a_join(head=40, truncated=True, recovered=False), 100, 0)
    assert skipped == Truncated("room:lobby", 100, 40)
    assert view.apply(a_message(41), 0)


def test_a_resync_of_a_stream_that_is_followed_is_the_clients_own_business() -> None:
    view = View()
    view.joined(a_join(head=9), None, 0)
    assert not view.apply(Resync("room:lobby"), 0)
    assert view.records.behind() == "room:lobby"
    assert view.apply(Resync("room:elsewhere"), 0)


def test_the_badge_is_news_when_it_changes() -> None:
    view = View()
    assert not view.apply(InboxBadge(0, 0), 0)
    assert view.apply(InboxBadge(2, 1), 0)
    assert not view.apply(InboxBadge(2, 1), 0)
    assert (view.badge.unread, view.badge.unseen) == (2, 1)


def test_a_room_that_was_left_is_not_resumed() -> None:
    view = View()
    view.joined(a_join(head=3, typing=[Typer("bob", "Bob", 5000)]), None, 0)
    view.leave("lobby")
    assert view.records.rooms == {}
    assert view.typists.current("lobby", 0) == {}


def test_a_room_taken_away_is_not_resumed() -> None:
    view = View()
    view.joined(a_join(head=3), None, 0)
    assert view.apply(RoomChanged("lobby"), 0)
    assert "lobby" in view.records.rooms
    assert view.apply(RoomChanged("lobby", removed=True), 0)
    assert view.records.rooms == {}


def test_a_typer_stops_one_second_after_the_time_given_even_if_nothing_more_arrives() -> None:
    view = View()
    view.apply(TypingStarted("lobby", "bob", "Bob", 5000), 100.0)
    assert view.typists.current("lobby", 105.9) == {"bob": "Bob"}
    assert view.typists.current("lobby", 106.0) == {}
    assert view.typists.next_end() == 106.0
    assert view.typists.expire(105.9) == []
    assert view.typists.expire(106.0) == [TypingStopped("lobby", "bob")]
    assert view.typists.next_end() is None


def test_a_repeated_start_holds_the_typer_and_the_order() -> None:
    view = View()
    view.apply(TypingStarted("lobby", "bob", "Bob", 5000), 0)
    view.apply(TypingStarted("lobby", "ann", None, 5000), 1)
    view.apply(TypingStarted("lobby", "bob", "Bob", 5000), 3)
    assert list(view.typists.current("lobby", 6.5).items()) == [("bob", "Bob"), ("ann", "ann")]
    assert view.typists.expire(8) == [TypingStopped("lobby", "ann")]


def test_a_stop_stops() -> None:
    view = View()
    view.apply(TypingStarted("lobby", "bob", "Bob", 5000), 0)
    assert view.apply(TypingStopped("lobby", "bob"), 1)
    assert view.typists.current("lobby", 1) == {}
    # The client already removed bob, after a message or a timeout. A second stop changes nothing.
    assert not view.apply(TypingStopped("lobby", "bob"), 1)
    assert not view.apply(TypingStopped("elsewhere", "bob"), 1)


def test_those_who_are_only_counted_are_over_like_the_others() -> None:
    view = View()
    view.apply(TypingStarted("hall", "bob", "Bob", 5000), 0)
    view.apply(TypingCount("hall", 7, 5000), 1)  # the room became large: names are replaced by a count
    assert (view.typists.current("hall", 1), view.typists.count("hall", 6.9)) == ({}, 7)
    assert (view.typists.count("hall", 7.0), view.typists.next_end()) == (0, 7.0)
    assert view.typists.expire(7.0) == [TypingCount("hall", 0, 0)]
    view.apply(TypingCount("hall", 2, 5000), 8)
    view.apply(TypingCount("hall", 0, 0), 9)
    assert (view.typists.count("hall", 9), view.typists.next_end()) == (0, None)
    view.apply(TypingStarted("lobby", "bob", "Bob", 5000), 9)
    assert view.typists.count("lobby", 9) == 1


def test_presence_becomes_stale_once_until_it_is_confirmed() -> None:
    view = View()
    view.watch([a_presence("bob", version=5), a_presence("ann", version=2)])
    assert [(entry.user, entry.stale) for entry in view.people.age()] == [("bob", True), ("ann", True)]
    assert view.people.age() == []
    assert view.people.known["bob"].stale is True
    assert view.apply(a_presence("bob", version=5), 0)  # the same version, but confirmed
    assert view.people.known["bob"].stale is UNSET


def test_a_join_reply_replaces_the_typing_users() -> None:
    view = View()
    view.apply(TypingStarted("lobby", "bob", "Bob", 5000), 0)
    view.joined(a_join(typing=[Typer("ann", "Ann", 2000)]), None, 0)
    assert view.typists.current("lobby", 2.9) == {"ann": "Ann"}
    assert view.typists.current("lobby", 3.0) == {}


def test_unwatched_people_are_forgotten() -> None:
    view = View()
    view.watch([a_presence("bob"), a_presence("ann")])
    view.unwatch(["bob", "nobody"])
    assert list(view.watched) == ["ann"]
    assert list(view.people.known) == ["ann"]


def test_typing_is_announced_once_in_three_seconds_and_room() -> None:
    throttle = Throttle()
    said = [throttle.start("lobby", now, TIMES) for now in (0, 1, 2.9, 3, 4, 6)]
    assert said == [True, False, False, True, False, True]
    assert throttle.start("elsewhere", 4, TIMES)


def test_typing_is_announced_at_the_pace_the_server_asks_for() -> None:
    throttle, times = Throttle(), TypingTimes(repeat_ms=1_000, hold_ms=2_000, throttle_ms=500)
    assert [throttle.start("lobby", now, times) for now in (0, 0.9, 1, 1.5, 2)] == [True, False, True, False, True]
    throttle.stop("lobby")
    assert not throttle.start("lobby", 2.5, times)  # a margin: commands may arrive closer together than they were sent
    assert throttle.start("lobby", 2.6, times)


def test_the_typing_count_of_a_large_room_comes_from_the_join_and_lasts_as_long_as_the_server_sets() -> None:
    view = View()
    view.apply(replace(a_welcome(), typing=TypingTimes(1_000, 2_000, 500)), 0)
    view.typing_in(a_join("lobby", typing_count=7), 10.0)
    assert view.typists.count("lobby", 12.9) == 7
    assert view.typists.count("lobby", 13.0) == 0
    view.typing_in(a_join("lobby"), 10.0)
    assert view.typists.count("lobby", 10.0) == 0


def test_only_what_was_announced_is_taken_back() -> None:
    throttle = Throttle()
    assert not throttle.stop("lobby")
    throttle.start("lobby", 0, TIMES)
    assert throttle.stop("lobby")
    assert not throttle.stop("lobby")


def test_after_a_stop_the_next_announcement_waits_only_until_the_server_takes_it() -> None:
    throttle = Throttle()
    throttle.start("lobby", 0, TIMES)
    throttle.stop("lobby")
    assert not throttle.start("lobby", 1.9, TIMES)
    assert throttle.start("lobby", 2.1, TIMES)
    throttle.forget("lobby")
    assert throttle.start("lobby", 2.2, TIMES)


def test_typists_of_many_rooms_expire_together() -> None:
    typists = Typists()
    typists.started("a", "bob", None, 1)
    typists.started("b", "bob", None, 2)
    typists.started("b", "ann", None, 9)
    assert typists.expire(2) == [TypingStopped("a", "bob"), TypingStopped("b", "bob")]
    assert typists.next_end() == 9
