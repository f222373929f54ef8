"""Comparison of the state that watchers are shown with a state from the engine."""

from __future__ import annotations

import pytest

from greendot.presence.model import VisibleState
from greendot.presence.shown_model import CLOCKS_MS, VERSION, newer, same_to_others, same_to_user

SHOWN = VisibleState("online", since=1, version=50)
READ = VisibleState("offline", since=2, version=40, last_seen=30)


@pytest.mark.parametrize(
    ("other", "others", "user"),
    [
        (VisibleState("online", since=9, version=90), True, True),
        (VisibleState("idle", version=50), False, False),
        (VisibleState("online", version=50, text="in a call"), False, False),
        (VisibleState("online", version=50, status="busy"), True, False),
        (VisibleState("online", version=50, until=99), True, False),
    ],
)
def test_others_see_state_and_text_and_the_user_sees_the_status_too(
    other: VisibleState, others: bool, user: bool
) -> None:
    assert (same_to_others(SHOWN, other), same_to_user(SHOWN, other)) == (others, user)


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("version", [50, 51])
def test_a_state_with_the_same_or_a_newer_version_replaces_the_shown_one(version: int, keeps: bool) -> None:
    read = VisibleState("offline", version=version)
    assert newer(SHOWN, read, 0, keeps=keeps) is read


def test_a_last_seen_time_that_only_the_store_knows_is_kept() -> None:
    known, unknown = VisibleState(last_seen=30), VisibleState()
    for keeps in (True, False):
        assert newer(known, unknown, 0, keeps=keeps) is known
        assert newer(unknown, known, 0, keeps=keeps) is known
        assert newer(known, (later := VisibleState(last_seen=40)), 0, keeps=keeps) is later
        assert newer(known, (invisible := VisibleState(status="invisible")), 0, keeps=keeps) is invisible


def test_an_older_state_is_ignored_unless_the_shown_one_was_lost() -> None:
    assert newer(SHOWN, READ, 0, keeps=True) is SHOWN
    assert newer(SHOWN, READ, 0, keeps=False) == VisibleState("offline", since=2, version=51, last_seen=30)


@pytest.mark.parametrize(("asked_ms", "version"), [(51 + CLOCKS_MS, 51), (52 + CLOCKS_MS, 52), (900_000, 897_500)])
def test_after_a_loss_the_version_is_near_the_time_of_the_read(asked_ms: int, version: int) -> None:
    assert newer(SHOWN, READ, asked_ms, keeps=False).version == version


def test_the_newest_state_has_the_highest_version() -> None:
    assert max(READ, SHOWN, key=VERSION) is SHOWN
