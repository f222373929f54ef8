from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from greendot.auth.model import Grants, matches


def grants(**fields: object) -> Grants:
    return Grants(tenant="default", user="ann", expires_at=0, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("lobby", "lobby"),
        ("*", ""),
        ("*", "anything"),
        ("team-*", "team-"),
        ("team-*", "team-7"),
        ("*-team", "red-team"),
        ("a*c", "abc"),
        ("a*c", "ac"),
        ("a*b*c", "aXbYbZc"),
        ("**", "x"),
    ],
)
def test_a_star_stands_for_any_run_of_characters(pattern: str, text: str) -> None:
    assert matches(pattern, text)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("lobby", "Lobby"),
        ("lobby", "lobby2"),
        ("", "x"),
        ("team-*", "tea"),
        ("team-*", "a-team-7"),
        ("aa*aa", "aaa"),
        ("a*b*c", "acb"),
        ("a*b*c", "axc"),
        ("*aa*aa*", "aaa"),
    ],
)
def test_everything_else_stands_for_itself(pattern: str, text: str) -> None:
    assert not matches(pattern, text)


@pytest.mark.parametrize("pattern", ["a.c", "a?c", "a[b]c", "a+c", r"a\wc", "^abc$", "(abc)"])
def test_no_other_character_is_special(pattern: str) -> None:
    assert not matches(pattern, "abc")
    assert matches(pattern, pattern)


@given(st.text("ab*", max_size=8), st.text("ab", max_size=10))
@example("a*a", "a")
@example("*ab*ab", "abab")
@example("a*a*", "a")
@example("*a*b*a*", "ab")
def test_it_agrees_with_a_regular_expression(pattern: str, text: str) -> None:
    expression = ".*".join(map(re.escape, pattern.split("*")))
    assert matches(pattern, text) == (re.fullmatch(expression, text, re.DOTALL) is not None)


def test_a_pattern_of_many_stars_is_tried_in_no_time() -> None:
    assert not matches("*a" * 60 + "b", "a" * 128)


def test_a_token_without_patterns_opens_no_room() -> None:
    assert not grants().may_join("lobby")


def test_a_token_opens_the_rooms_of_any_of_its_patterns() -> None:
    bearer = grants(rooms=("lobby", "team-*"))
    assert bearer.may_join("lobby")
    assert bearer.may_join("team-7")
    assert not bearer.may_join("board")


def test_any_user_may_be_watched_unless_the_token_restricts_it() -> None:
    assert grants().may_watch("bob")
    assert grants(watch=("b*",)).may_watch("bob")
    assert not grants(watch=("b*",)).may_watch("zoe")
    assert not grants(watch=()).may_watch("bob")


def test_a_user_may_always_watch_themselves() -> None:
    assert grants(watch=()).may_watch("ann")


def test_a_token_allows_sending_by_default() -> None:
    assert grants().send is True
