"""Decoding of JSON from outside: every failure is one error, and nesting and numbers are bounded.

msgspec raises RecursionError for JSON that is nested deeper than the stack allows. It raises UnicodeDecodeError for a
string that is not UTF-8. Callers of this module catch `msgspec.DecodeError` and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import isinf
from typing import TypeVar

import msgspec
from msgspec import Raw

T = TypeVar("T")
Json = bytes | bytearray | str | Raw

# Limit for JSON that clients and apps send to other clients. A later decoder may have a smaller stack than ours, and
# decoders of other languages stop at 100.
MAX_DEPTH = 64
TOO_DEEP = "JSON is nested too deeply"  # text of the error for JSON that no decoder can read
VAST_NUMBER = "has a number beyond 1.8e308, which many clients cannot read"
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_OPEN = ord("[")
_SQUARE = bytes.maketrans(b"{}", b"[]")
_RUNS = re.compile(rb"\[+|\]+")
_PEELED = 8  # innermost levels removed before runs are counted: flat, long JSON leaves few runs

# Patterns of a number beyond the range of a double: it has 200 digits, or an exponent of three.
_MANY_DIGITS, _LARGE_EXPONENT = b"0" * 200, b"e000"
_DIGITS_AS_0 = bytes.maketrans(b"123456789E", b"000000000e")
_NUMBER = re.compile(rb"[0-9][0-9.eE+-]*")


def decoder(kind: type[T]) -> Callable[[Json], T]:
    """Return a function that decodes JSON as `kind` or raises msgspec.DecodeError."""
    read = msgspec.json.Decoder(kind).decode

    def decode_json(text: Json) -> T:
        try:
            return read(text)
        except (UnicodeError, RecursionError) as error:
            raise _as_decode_error(error) from None

    return decode_json


def decode(text: Json, kind: type[T]) -> T:
    """Decode JSON as `kind`, or raise msgspec.DecodeError."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (UnicodeError, RecursionError) as error:
        raise _as_decode_error(error) from None


def is_too_deep(text: bytes | str) -> bool:
    """Return whether valid JSON is nested more than MAX_DEPTH levels deep."""
    if len(text) <= 2 * MAX_DEPTH:
        return False
    opening = text.count("[") + text.count("{") if isinstance(text, str) else text.count(b"[") + text.count(b"{")
    if opening <= MAX_DEPTH:
        return False
    data = text.encode() if isinstance(text, str) else text
    brackets = _STRING.sub(b"", data).translate(_SQUARE, _NO_BRACKETS)
    for _ in range(_PEELED):
        brackets = brackets.replace(b"[]", b"")
    depth = _PEELED
    for run in _RUNS.findall(brackets):
        depth += len(run) if run[0] == _OPEN else -len(run)
        if depth > MAX_DEPTH:
            return True
    return False


def has_vast_number(text: bytes) -> bool:
    """Return whether valid JSON has a number beyond the range of a double, which many decoders refuse."""
    digits = text.translate(_DIGITS_AS_0, b"+")
    if _LARGE_EXPONENT not in digits and _MANY_DIGITS not in digits:
        return False
    return any(isinf(float(number)) for number in _NUMBER.findall(_STRING.sub(b"", text)))


def _as_decode_error(error: UnicodeError | RecursionError) -> msgspec.DecodeError:
    return msgspec.DecodeError(TOO_DEEP if isinstance(error, RecursionError) else "JSON has a string that is not UTF-8")
