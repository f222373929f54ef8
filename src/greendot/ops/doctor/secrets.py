"""Whether a secret looks as if it had been made by chance. None of it is repeated."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import log2

LEAST = 32  # characters
LEAST_BITS = 90.0  # 32 hexadecimal digits made by chance have about 115 by this measure
# Words people write where chance should be. Five letters at least: shorter ones come about by chance.
WORDS = (
    "123456", "abcdef123", "admin", "changeme", "change_me", "change-me", "correcthorse", "default", "develop", "dummy",
    "example", "foobar", "greendot", "insecure", "letmein", "localhost", "minimum", "passphrase", "password", "please",
    "production", "qwert", "replace", "sample", "secret", "staging", "supersec", "testing", "thirty", "token",
    "verysec",
)  # fmt: skip


def weakness(text: str, least: int = LEAST) -> str | None:
    """What is weak about it, None if nothing is seen."""
    if len(text) < least:
        return f"it has {len(text)} characters, fewer than {least}"
    low = text.lower()
    if any(word in low for word in WORDS):
        return "it has a well-known word in it"
    unit = _repeated(text)
    if len(unit) < len(text):
        return "it is the same few characters again and again"
    if _steps(text) > len(text) / 2:
        return "it goes on like a keyboard or an alphabet"
    if _bits(text) < LEAST_BITS * min(1.0, least / LEAST):
        return "it uses too few different characters to have been made by chance"
    return None


def _repeated(text: str) -> str:
    """The shortest beginning that, repeated, makes the whole."""
    at = (text + text).find(text, 1)
    if at < len(text):
        return text[:at]
    # Not a whole number of times: `abcabcab`.
    for size in range(1, len(text) // 2 + 1):
        if all(text[i] == text[i % size] for i in range(len(text))):
            return text[:size]
    return text


def _steps(text: str) -> int:
    """How often a character is followed by itself or its neighbour."""
    return sum(abs(ord(one) - ord(other)) <= 1 for one, other in pairwise(text))


def _bits(text: str) -> float:
    """How surprising its characters are, all together, if nothing but how often each comes is known."""
    size = len(text)
    return -sum(count * log2(count / size) for count in Counter(text).values())
