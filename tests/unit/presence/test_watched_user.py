"""States of a watched user, for others and for the user's own devices."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from greendot.engine.messages import Topic
from greendot.node.channel import Channel
from greendot.presence.hidden_watchers import unknown_presence
from greendot.presence.model import RECENTLY_MS, VisibleState
from greendot.presence.watched_user import CelebrityWatchers, WatchedUser, WatchEntry

NOW = 1_000_000


def watched(**given: Any) -> WatchedUser:
    user = WatchedUser(Channel(Topic("watch", "acme", "ann")))
    for name, value in given.items():
        setattr(user, name, value)
    return user


def test_others_get_the_visible_state_and_own_devices_the_own_one_with_the_status() -> None:
    ann = watched(visible=VisibleState("offline", version=3), own=VisibleState("online", version=5, status="invisible"))
    assert (ann.shown(NOW).state, ann.shown(NOW).status) == ("offline", UNSET)
    assert (ann.shown_own().state, ann.shown_own().status, ann.shown_own().version) == ("online", "invisible", 5)
    assert (ann.key, ann.user) == (("acme", "ann"), "ann")


def test_devices_are_in_snapshots_only_and_those_of_an_invisible_user_for_own_devices_only() -> None:
    ann = watched(visible=VisibleState("offline"), own=VisibleState("online"), devices=["phone"])
    assert (ann.shown(NOW).devices, ann.shown_own().devices) == (UNSET, UNSET)
    assert (ann.shown(NOW, devices=True).devices, ann.shown_own(devices=True).devices) == ([], ["phone"])


def test_a_discreet_user_is_shown_without_the_time_of_leaving_but_not_to_own_devices() -> None:
    gone = VisibleState("offline", since=900, last_seen=890, version=900)
    ann = watched(visible=gone, own=gone, discreet=True)
    shown, own = ann.shown(NOW), ann.shown_own()
    assert (shown.since, shown.last_seen, shown.version) == (None, None, 0)
    assert (own.since, own.last_seen, own.version) == (900, 890, 900)


def test_a_polled_user_is_live_for_own_devices() -> None:
    ann = watched(visible=VisibleState("online"), own=VisibleState("online"))
    ann.celebrity = CelebrityWatchers()
    assert (ann.is_polled, ann.shown(NOW).mode) == (False, "live")
    ann.celebrity.polled = True
    assert (ann.is_polled, ann.shown(NOW).mode, ann.shown(NOW).recently_active) == (True, "poll", True)
    assert (ann.shown_own().mode, ann.shown_own().recently_active) == ("live", UNSET)


def test_recent_activity_of_a_discreet_polled_user_does_not_reveal_when_it_left() -> None:
    gone = VisibleState("offline", since=NOW, last_seen=NOW, version=NOW)
    ann = watched(visible=gone, celebrity=CelebrityWatchers(polled=True))
    assert ann.shown(NOW + RECENTLY_MS).recently_active is True
    assert ann.shown(NOW + RECENTLY_MS + 1).recently_active is False
    ann.discreet = True
    assert ann.shown(NOW).recently_active is False


def test_a_stale_state_is_marked_for_others_and_for_own_devices() -> None:
    ann = watched(stale=True)
    assert (ann.shown(NOW).stale, ann.shown_own().stale) == (True, True)
    ann.stale = False
    assert (ann.shown(NOW).stale, ann.shown_own().stale) == (UNSET, UNSET)


def test_a_user_is_wanted_by_listeners_and_by_hidden_watchers() -> None:
    ann, connection = watched(), object()
    assert not ann.is_wanted
    ann.barred[connection] = unknown_presence("ann")  # type: ignore[index]
    assert ann.is_wanted
    ann.barred.clear()
    ann.channel.listeners[connection] = 1  # type: ignore[index]
    assert ann.is_wanted


def test_an_entry_is_outdated_when_watchers_were_shown_something_since() -> None:
    ann = watched()
    entry = WatchEntry(ann, ann.shows, b"{}")
    assert not entry.is_outdated
    ann.shows += 1
    assert entry.is_outdated
    assert not WatchEntry(None, 0, b"{}").is_outdated
