from __future__ import annotations

import msgspec
import pytest

from greendot.presence.model import (
    NOBODY,
    RECENTLY_MS,
    Snapshot,
    VisibleState,
    entry,
    polled,
    project,
    without_last_seen,
)

BUSY = VisibleState("busy", since=5, version=7, text="in a meeting", status="busy", until=99)
HIDDEN = VisibleState("offline", since=3, last_seen=2, version=6)
INVISIBLE = VisibleState("online", since=4, version=8, status="invisible", until=50)


def wire(event: object) -> dict[str, object]:
    """Return the fields of the frame. Unset fields are left out."""
    return msgspec.json.decode(msgspec.json.encode(event))


def test_others_read_the_state_and_nothing_the_user_set_by_hand_but_the_text() -> None:
    assert wire(entry("ann", BUSY, "Ann")) == {
        "user": "ann",
        "name": "Ann",
        "state": "busy",
        "since": 5,
        "last_seen": None,
        "version": 7,
        "status_text": "in a meeting",
        "mode": "live",
    }


def test_own_devices_read_the_manual_status_and_its_end_as_well() -> None:
    shown = wire(entry("ann", BUSY, "Ann", own=True))
    assert (shown["status"], shown["until"]) == ("busy", 99)


def test_an_end_that_was_not_set_is_null_to_own_devices() -> None:
    assert wire(entry("ann", VisibleState("online"), None, own=True))["until"] is None


def test_devices_are_listed_in_snapshots_only() -> None:
    assert "devices" not in wire(entry("ann", BUSY, None))
    assert wire(entry("ann", BUSY, None, ["phone"]))["devices"] == ["phone"]


def test_the_devices_of_one_who_is_shown_offline_are_hidden() -> None:
    snapshot = Snapshot(HIDDEN, INVISIBLE, "Ann", ["phone"])
    assert wire(project("ann", snapshot))["devices"] == []


def test_own_devices_are_listed_to_their_user_even_before_any_state_is_shown() -> None:
    snapshot = Snapshot(NOBODY, NOBODY, "Ann", ["phone"])
    assert wire(project("ann", snapshot, own=True))["devices"] == ["phone"]
    assert wire(project("ann", snapshot))["devices"] == []


def test_an_invisible_user_is_offline_to_others_and_online_to_their_own_devices() -> None:
    snapshot = Snapshot(HIDDEN, INVISIBLE, "Ann", ["phone"])
    others, own = wire(project("ann", snapshot)), wire(project("ann", snapshot, own=True))
    assert (others["state"], others["last_seen"], others["version"]) == ("offline", 2, 6)
    assert "status" not in others
    assert "until" not in others
    assert (own["state"], own["status"], own["devices"]) == ("online", "invisible", ["phone"])


def test_an_unknown_user_reads_as_offline() -> None:
    shown = wire(entry("nobody", NOBODY, None, []))
    assert (shown["state"], shown["since"], shown["last_seen"], shown["version"]) == ("offline", None, None, 0)


NOW = 1_800_000_000_000


@pytest.mark.parametrize(
    ("visible", "recently"),
    [
        (VisibleState("online", since=1), True),
        (VisibleState("busy", since=1), True),
        (VisibleState("idle", since=NOW - RECENTLY_MS), True),
        (VisibleState("idle", since=NOW - RECENTLY_MS - 1), False),
        (VisibleState("offline", last_seen=NOW - RECENTLY_MS), True),
        (VisibleState("offline", since=NOW, last_seen=NOW - RECENTLY_MS - 1), False),
        (VisibleState("offline", since=NOW), False),
    ],
)
def test_of_who_is_polled_others_read_whether_they_were_active_lately(visible: VisibleState, recently: bool) -> None:
    shown = polled(entry("ann", visible, "Ann"), NOW)
    assert (shown.mode, shown.recently_active) == ("poll", recently)


def test_who_may_not_know_the_last_seen_reads_no_time_of_who_is_offline() -> None:
    shown = without_last_seen(entry("ann", HIDDEN, "Ann"))
    assert (shown.state, shown.since, shown.last_seen, shown.version) == ("offline", None, None, 0)
    there = entry("ann", BUSY, "Ann")
    assert without_last_seen(there) is there


def test_an_uncertain_state_is_marked_stale() -> None:
    assert "stale" not in wire(project("ann", Snapshot(BUSY, BUSY, None, [])))
    assert wire(project("ann", Snapshot(BUSY, BUSY, None, [], stale=True)))["stale"] is True
