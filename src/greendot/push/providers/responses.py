"""Answers of providers, in words that may be logged and stored: no token, no key, and only the host of a URL."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import TypeVar

import msgspec

from greendot.push.payload import SendResult
from greendot.transport.http_client import HttpResponse, NotCalled, NotTried

LONGEST_WAIT_S = 900.0  # a wrong `Retry-After` must not pause a provider for a day
HELD_S = 5.0  # seconds until a call for which there was no room is repeated
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,59}")

T = TypeVar("T")


def word(text: object) -> str:
    """Return the provider's name of an error; "" if it does not have the form of a name.

    Any other text may contain what was sent.
    """
    return text if isinstance(text, str) and _WORD.fullmatch(text) else ""


def read(decode: Callable[[bytes], T], body: bytes) -> T | None:
    """Decode a body; return None if it has another form."""
    try:
        return decode(body)
    except msgspec.DecodeError:
        return None


def wait_s(headers: Mapping[str, str], now_ms: int) -> float:
    """Return the seconds that `Retry-After` requests, as a number or a date; 0 if there is none."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdecimal():
        return min(LONGEST_WAIT_S, float(text[:9]))
    try:
        until = parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return 0.0
    return min(LONGEST_WAIT_S, max(0.0, until - now_ms / 1000))


def describe(host: str, status: int, error: str = "") -> str:
    """Describe an answer for people."""
    return f"{host} answered {status} {error}".rstrip()


def trouble(host: str, answer: HttpResponse, now_ms: int, error: str = "") -> SendResult:
    """Return the result for a provider that cannot, or will not, take the push at the moment."""
    return SendResult("failed", describe(host, answer.status, error), wait_s(answer.headers, now_ms), is_away=True)


def no_answer(error: NotCalled) -> SendResult:
    if isinstance(error, NotTried):
        return SendResult("failed", str(error), HELD_S, is_tried=False)
    return SendResult("failed", str(error), is_away=True)
