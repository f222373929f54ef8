"""Decisions about stored last-seen times."""

from __future__ import annotations

import pytest

from greendot.presence.last_seen_model import TURNS, Rounds, is_unknown, time_to_store, with_stored
from greendot.presence.model import NOBODY, Snapshot, VisibleState

NOW, KEEP = 1_000_000, 50_000
KNOWN = VisibleState("offline", 900, 890, 900)
UNKNOWN = Snapshot(NOBODY, NOBODY, None, [])


@pytest.mark.parametrize("state", ["online", "idle", "busy"])
def test_a_user_who_is_not_offline_is_seen_now(state: str) -> None:
    assert time_to_store(VisibleState(state, 5, None, 5), NOW) == NOW  # type: ignore[arg-type]


def test_an_offline_user_was_seen_at_the_time_that_others_see() -> None:
    assert time_to_store(KNOWN, NOW) == 890
    assert time_to_store(NOBODY, NOW) is None


def test_only_a_settled_offline_user_without_a_version_is_unknown() -> None:
    assert is_unknown(UNKNOWN)
    assert not is_unknown(UNKNOWN._replace(stale=True))
    assert not is_unknown(UNKNOWN._replace(visible=KNOWN))
    assert not is_unknown(UNKNOWN._replace(visible=VisibleState("online")))


def test_a_user_who_came_online_invisibly_is_as_unknown_as_any_user() -> None:
    own = VisibleState("online", 7, None, 7, status="invisible")
    invisible = Snapshot(NOBODY, own, "Ann", ["phone"])
    assert is_unknown(invisible)
    assert with_stored(invisible, NOW - 1, NOW, KEEP) == invisible._replace(visible=VisibleState(last_seen=NOW - 1))


def test_a_stored_time_changes_neither_state_nor_version() -> None:
    shown = with_stored(UNKNOWN, NOW - 1, NOW, KEEP)
    assert shown.visible == VisibleState("offline", None, NOW - 1, 0)
    assert shown.own == shown.visible


@pytest.mark.parametrize(
    ("at", "shown"), [(None, None), (NOW - KEEP, None), (NOW - KEEP + 1, NOW - KEEP + 1), (NOW, NOW), (NOW + 9, NOW)]
)
def test_a_stored_time_is_shown_during_its_retention_and_never_in_the_future(at: int | None, shown: int | None) -> None:
    assert with_stored(UNKNOWN, at, NOW, KEEP).visible.last_seen == shown


def test_a_user_whom_the_engine_knows_keeps_the_time_of_the_engine() -> None:
    known = UNKNOWN._replace(visible=KNOWN, own=KNOWN)
    assert with_stored(known, NOW, NOW, KEEP) is known
    stale = UNKNOWN._replace(stale=True)
    assert with_stored(stale, NOW, NOW, KEEP) is stale


@pytest.mark.parametrize("many", [0, 1, TURNS - 1, TURNS, TURNS + 1, 1_003])
def test_each_user_is_in_one_part_of_a_round(many: int) -> None:
    users, calls, rounds = [("t", f"u{number}") for number in range(many)], 0, Rounds()

    def listed() -> list[tuple[str, str]]:
        nonlocal calls
        calls += 1
        return users[:]

    parts = [rounds.take(listed) for _ in range(TURNS)]
    assert [user for part in parts for user in part] == users
    assert max(map(len, parts)) == -(-many // TURNS)
    assert calls == 1
    users.append(("t", "late"))
    later = [rounds.take(listed) for _ in range(TURNS)]
    assert [user for part in later for user in part] == users
    assert calls == 2
