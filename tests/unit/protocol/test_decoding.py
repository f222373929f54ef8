"""JSON from outside: one error for every failure, and a bound for nesting."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from greendot.protocol.decoding import MAX_DEPTH, decode, decoder, has_vast_number, is_too_deep


class Point(Struct):
    x: int = 0
    name: str = ""


def nested(levels: int, inner: bytes = b"") -> bytes:
    return b'{"a":[' * (levels // 2) + b"[" * (levels % 2) + inner + b"]" * (levels % 2) + b"]}" * (levels // 2)


def depth_of(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)
    return 0


DEEP = 1_000_000  # more than the stack holds: from Python 3.14 on, the stack is the limit instead of a fixed number
BROKEN = {
    "not JSON": b"{",
    "of another type": b'{"x":"1"}',
    "not UTF-8": b'{"name":"\xff"}',
    "deep where it is read": b'{"x":' + nested(DEEP) + b"}",
    "deep where it is passed over": b'{"y":' + nested(DEEP) + b"}",
    "deep and without an end": b'{"y":' + b"[" * DEEP,
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN.keys())
def test_every_failure_is_a_decode_error(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decoder(Point)(text)
    with pytest.raises(msgspec.DecodeError):
        decode(text, Point)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BROKEN["not UTF-8"], "JSON has a string that is not UTF-8"),
        (BROKEN["deep where it is passed over"], "JSON is nested too deeply"),
    ],
    ids=["not UTF-8", "deep"],
)
def test_invalid_json_is_refused_with_a_clear_message(text: bytes, words: str) -> None:
    with pytest.raises(msgspec.DecodeError, match=f"^{words}$"):
        decoder(Point)(text)
    with pytest.raises(msgspec.DecodeError, match=f"^{words}$"):
        decode(text, Point)


def test_what_can_be_read_is_read() -> None:
    assert decoder(Point)(b'{"x":3}') == decode('{"x":3}', Point) == Point(3)


@pytest.mark.parametrize("inner", [b"", b"1", b'"]]]"', b"[],{}", b'"\\"["', b"[]," * 20_000 + b"1"])
def test_the_bound_is_exact(inner: bytes) -> None:
    own = 1 if b"[]" in inner else 0
    assert not is_too_deep(nested(MAX_DEPTH - own, inner))
    assert is_too_deep(nested(MAX_DEPTH - own + 1, inner))


def test_the_bound_is_the_same_where_there_is_nothing_but_brackets() -> None:
    assert not is_too_deep(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    assert is_too_deep(b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1))


@pytest.mark.parametrize("levels", range(1, MAX_DEPTH))
def test_levels_that_are_left_are_not_counted_with_those_that_follow(levels: int) -> None:
    assert not is_too_deep(b"[" + b",".join([nested(levels, b"1")] * MAX_DEPTH) + b"]")
    assert is_too_deep(b"[" + b",".join([nested(levels, b"1"), nested(MAX_DEPTH, b"1")]) + b"]")


def test_brackets_in_strings_are_no_levels() -> None:
    assert not is_too_deep(msgspec.json.encode({"text": "[{" * 5_000, 'a "quoted" {name}': "\\[" * 500}))


def test_text_is_taken_as_well_as_bytes() -> None:
    assert is_too_deep(nested(MAX_DEPTH + 1, '"ä"'.encode()).decode())


values = st.recursive(
    st.none() | st.integers() | st.text(alphabet='[]{}"\\äx', max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='[]{}"\\', max_size=3), inner),
    max_leaves=40,
)


@given(values, st.integers(0, 2 * MAX_DEPTH), st.integers(0, 300))
def test_any_json_is_judged_by_its_depth(value: Any, around: int, padding: int) -> None:
    for level in range(around):
        value = [value] if level % 2 else {"k": value, "[": "]" * padding}
    assert is_too_deep(msgspec.json.encode(value)) == (depth_of(value) > MAX_DEPTH)


VAST = [b"1e309", b"-1E+309", b"1.8e308", b"9" * 309, b"1" + b"0" * 200 + b"e109", b"1e" + b"9" * 5_000, b"9" * 5_000]


@pytest.mark.parametrize("number", VAST)
@pytest.mark.parametrize("around", [b"%b", b"[1,%b]", b'{"a":"\\"","b":%b}'])
def test_numbers_beyond_a_double_are_found(number: bytes, around: bytes) -> None:
    assert has_vast_number(around % number)
    assert not has_vast_number(b'["%b"]' % number)


@pytest.mark.parametrize("number", [b"1.7e308", b"-1e+308", b"1e-999", b"0.%b" % (b"1" * 500), b"0e999", b"9" * 308])
def test_numbers_within_a_double_are_not(number: bytes) -> None:
    assert not has_vast_number(b'{"a":[%b],"b":"1e999"}' % number)


def test_where_no_number_is_long_none_is_vast() -> None:
    assert not has_vast_number(b'{"a":[1,-2.5,1e10],"b":"[]"}')


def test_a_number_that_is_vast_is_one_that_decoders_refuse() -> None:
    for number in VAST[:3]:
        with pytest.raises(msgspec.DecodeError):
            decode(number, object)
