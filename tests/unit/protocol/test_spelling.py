"""Misspelled names: what was probably meant."""

from __future__ import annotations

import pytest

from greendot.protocol.spelling import MOST, nearest, unknown


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("opne", "open"),
        ("OPEN", "open"),
        ("expires", "expires_at"),
        ("lastContactAt", "last_contact_at"),
        ("oven", "open"),
        ("sender", None),
        ("", None),
        ("zzzz", None),
    ],
)
def test_the_nearest_name_is_found_in_any_case_and_no_other_word(name: str, meant: str | None) -> None:
    assert nearest(name, ["user", "open", "expires_at", "last_contact_at"]) == meant


def test_a_known_name_keeps_its_case() -> None:
    assert nearest("--urll", ["--URL", "--key"]) == "--URL"


def test_the_sentence_has_the_nearest_name_or_all_or_none() -> None:
    assert unknown("field", "opne", ["open", "bus"]) == "unknown field `opne`; did you mean `open`?"
    assert unknown("field", "x", ["open", "bus"], "list[3].") == "unknown field `list[3].x`; use one of `open`, `bus`"
    assert unknown("query parameter", "x", []) == "unknown query parameter `x`; this request takes no query parameters"


def test_a_name_of_any_length_is_cut() -> None:
    assert unknown("field", "x" * 1_000_000, ["open"]) == f"unknown field `{'x' * MOST}`; use one of `open`"
    assert nearest("open" + "x" * 1_000_000, ["open" + "x" * 60]) == "open" + "x" * 60
