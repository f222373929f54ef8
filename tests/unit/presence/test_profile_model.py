from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET, Raw

from greendot.presence.profile_model import (
    NO_PROFILE,
    Profile,
    ProfileChange,
    claimed,
    doubted,
    newest,
    shown_name,
)

NOW = 1_000
BLUE, RED = b'{"colour":"blue"}', b'{"colour":"red"}'
STORED = Profile("Ann", BLUE, 500, 7)


def test_a_token_with_info_stores_its_name_and_info() -> None:
    assert claimed(NO_PROFILE, "Ann", BLUE, 400, NOW) == ProfileChange(400, NOW, "Ann", BLUE, only_newer=True)
    assert claimed(NO_PROFILE, None, BLUE, 400, NOW) == ProfileChange(400, NOW, UNSET, BLUE, only_newer=True)


@pytest.mark.parametrize("info", [None, b""])
def test_a_token_without_info_stores_nothing_for_a_user_without_a_profile(info: bytes | None) -> None:
    assert claimed(NO_PROFILE, "Ann", info, 400, NOW) is None


def test_a_token_without_info_changes_a_stored_name_only() -> None:
    assert claimed(STORED, "Anne", None, 500, NOW) == ProfileChange(500, NOW, "Anne", UNSET, only_newer=True)
    assert claimed(STORED, None, None, 600, NOW) is None
    assert claimed(Profile(None, BLUE, 500, 7), "Anne", None, 600, NOW) is None


def test_an_empty_info_removes_the_stored_one() -> None:
    change = claimed(STORED, None, b"", 600, NOW)
    assert change == ProfileChange(600, NOW, UNSET, b"", only_newer=True)
    assert claimed(Profile(None, BLUE, 500, 7), "Ann", b"", 600, NOW) == change


def test_a_token_that_says_the_same_changes_nothing() -> None:
    assert claimed(STORED, "Ann", BLUE, 600, NOW) is None
    assert claimed(STORED, None, BLUE, 600, NOW) is None


@pytest.mark.parametrize(("at", "is_new"), [(499, False), (500, True), (501, True)])
def test_a_token_from_before_the_last_change_changes_nothing(at: int, is_new: bool) -> None:
    assert (claimed(STORED, "Ann", RED, at, NOW) is not None) is is_new


def test_a_token_of_the_future_counts_as_issued_now() -> None:
    change = claimed(STORED, "Ann", RED, NOW + 5, NOW)
    assert change is not None
    assert change.at == NOW


def test_the_profile_with_the_higher_revision_is_newer_and_an_erased_one_is_always() -> None:
    older, newer = Profile("a", rev=3), Profile("b", rev=4)
    assert newest(older, newer) is newest(newer, older) is newer
    same = Profile("c", rev=4)
    assert newest(newer, same) is same
    assert newest(newer, NO_PROFILE) is NO_PROFILE
    assert newest(doubted(newer), older) is older
    assert doubted(NO_PROFILE) is NO_PROFILE
    assert doubted(newer).looks_like(newer)


def test_the_name_of_the_profile_is_shown_before_that_of_the_token() -> None:
    assert shown_name(STORED, "Token") == "Ann"
    assert shown_name(Profile(None, BLUE), "Token") == "Token"
    assert shown_name(NO_PROFILE, None) is None


@pytest.mark.parametrize(
    ("change", "values"),
    [
        (ProfileChange(1, 2), (None, None, 1, 2, True, True, False)),
        (ProfileChange(1, 2, None, b"", only_newer=True), (None, None, 1, 2, False, False, True)),
        (ProfileChange(1, 2, "Ann", BLUE), ("Ann", BLUE, 1, 2, False, False, False)),
    ],
)
def test_a_change_knows_which_fields_stay(change: ProfileChange, values: tuple[Any, ...]) -> None:
    assert change.values == values


def test_info_is_sent_as_it_is_stored_or_left_out() -> None:
    assert NO_PROFILE.wire is UNSET
    assert bytes(STORED.wire) == BLUE
    assert isinstance(STORED.wire, Raw)
    assert STORED.looks_like(Profile("Ann", BLUE))
    assert not STORED.looks_like(Profile("Ann", RED))
    assert not STORED.looks_like(Profile("Anne", BLUE))
