from __future__ import annotations

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greendot import ids as names
from greendot.errors import Unstorable
from greendot.ids import (
    TEXT_PATTERN,
    incarnation_of,
    new_incarnation,
    new_message_id,
    new_session_id,
    storable,
    valid_id,
    valid_text,
)

FIRST = string.ascii_letters + string.digits + "_"
LATER = FIRST + ".@=+-"
ids = st.builds(str.__add__, st.sampled_from(FIRST), st.text(LATER, max_size=127))


@given(ids)
def test_letters_digits_and_a_few_signs_make_an_id(text: str) -> None:
    assert valid_id(text)


@given(ids, st.characters().filter(lambda c: c not in LATER), st.integers(0, 127))
def test_any_other_character_anywhere_spoils_it(text: str, intruder: str, at: int) -> None:
    assert not valid_id((text[:at] + intruder + text[at:])[:128])


@pytest.mark.parametrize("first", ".@=+-")
def test_an_id_does_not_begin_with_a_sign(first: str) -> None:
    assert not valid_id(first + "ann")
    assert valid_id("ann" + first)


def test_an_id_has_one_to_128_characters() -> None:
    assert not valid_id("")
    assert valid_id("a")
    assert valid_id("a" * 128)
    assert not valid_id("a" * 129)


@pytest.mark.parametrize(
    "text", ["ann\n", "\nann", "ann\r\n", "ann\0", "a b", "a/b", "a:b", "a{b}", "a*", "é", "١", "ａ"]
)
def test_what_could_break_a_key_a_channel_or_a_log_line_is_no_id(text: str) -> None:
    assert not valid_id(text)


@pytest.mark.parametrize("text", ["", "é€🙂", "a\nb\tc", "\u2028", "\ufffd", "\x01"])
def test_whatever_people_write_is_text(text: str) -> None:
    assert valid_text(text)
    assert storable(text) == text
    assert re.search(TEXT_PATTERN, text)


@pytest.mark.parametrize(("text", "instead"), [("\0", "�"), ("a\0b", "a�b"), ("é\ud800", "é�"), ("\udfff!", "�!")])
def test_a_nul_or_half_of_a_pair_is_no_text(text: str, instead: str) -> None:
    assert not valid_text(text)
    assert storable(text) == instead
    assert not re.search(TEXT_PATTERN, text)


def test_an_incarnation_is_short() -> None:
    assert all(re.fullmatch(r"[0-9A-Za-z]{1,4}", new_incarnation()) for _ in range(200))


def test_a_session_id_names_its_nodes_incarnation() -> None:
    for _ in range(200):
        incarnation = new_incarnation()
        session = new_session_id(incarnation)
        assert valid_id(session)
        assert incarnation_of(session) == incarnation


def test_made_ids_are_new_and_valid() -> None:
    sessions = {new_session_id("n1") for _ in range(2_000)}
    messages = {new_message_id() for _ in range(2_000)}
    assert (len(sessions), len(messages)) == (2_000, 2_000)
    assert all(map(valid_id, sessions | messages))


def test_each_name_is_as_long_as_it_has_to_be_and_never_the_same() -> None:
    makers = {
        names.new_incarnation: 4,
        names.new_key_id: 12,
        names.new_key_secret: 43,
        names.new_message_id: 24,
        (lambda: names.new_session_id("")): 10,
    }
    for make, length in makers.items():
        made = [make() for _ in range(50)]
        assert {len(one) for one in made} == {length}
        assert len({*made}) > 45


def test_an_id_names_its_number_and_its_incarnation() -> None:
    assert names.incarnation_of("n1-abc-d") == "n1"
    assert names.numbered_id(7, "abc") == "7-abc"
    found = [names.number_of(text) for text in ("7-abc", "7", "-7", "x-1", "٣-a", "9" * 18, "9" * 19)]
    assert found == [7, 7, None, None, None, int("9" * 18), None]


@pytest.mark.parametrize("text", ["a\0b", "\0", "ä\0", "\ud800", "a\udfffb"])
def test_text_that_no_store_can_keep_is_refused_wherever_it_stands(text: str) -> None:
    for texts in ([text], ["plain", text], [None, text, None]):
        with pytest.raises(Unstorable, match="no NUL"):
            names.check_text(texts)


def test_plain_text_and_nothing_at_all_can_be_kept() -> None:
    for texts in ([], [None], ["plain", None, "Änn 🙂"], [""]):
        names.check_text(texts)


def test_plain_text_with_a_nul_is_no_text() -> None:
    assert [names.valid_text(text) for text in ("plain", "pl\0in", "Ä", "Ä\0", "")] == [True, False, True, False, True]
