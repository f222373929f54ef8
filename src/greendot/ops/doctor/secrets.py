"""Strength of secrets: signs that a secret is not random. No result repeats a part of the secret."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import log2

LEAST = 32  # characters
LEAST_BITS = 90.0  # 32 random hexadecimal digits have about 115 by this measure
# Words that people write in place of random characters. At least five letters: shorter words occur by chance.
WORDS = (
    "123456", "abcdef123", "admin", "changeme", "change_me", "change-me", "correcthorse", "default", "develop", "dummy",
    "example", "foobar", "greendot", "insecure", "letmein", "localhost", "minimum", "passphrase", "password", "please",
    "production", "qwert", "replace", "sample", "secret", "staging", "supersec", "testing", "thirty", "token",
    "verysec",
)  # fmt: skip


def weakness(text: str, least: int = LEAST) -> str | None:
    """Return what is weak about a secret; None if nothing is found."""
    if len(text) < least:
        return f"it has {len(text)} characters, fewer than {least}"
    low = text.lower()
    if any(word in low for word in WORDS):
        return "it contains a common word"
    unit = _repeated(text)
    if len(unit) < len(text):
        return "it repeats the same characters"
    if _steps(text) > len(text) / 2:
        return "it follows the order of a keyboard or alphabet"
    if _bits(text) < LEAST_BITS * min(1.0, least / LEAST):
        return "it has too few different characters to be random"
    return None


def _repeated(text: str) -> str:
    """Return the shortest prefix that makes the whole text when repeated."""
    at = (text + text).find(text, 1)
    if at < len(text):
        return text[:at]
    # The last repetition may be cut off: `abcabcab`.
    for size in range(1, len(text) // 2 + 1):
        if all(text[i] == text[i % size] for i in range(len(text))):
            return text[:size]
    return text


def _steps(text: str) -> int:
    """Return how often a character is followed by itself or by a neighbour in Unicode."""
    return sum(abs(ord(one) - ord(other)) <= 1 for one, other in pairwise(text))


def _bits(text: str) -> float:
    """Return the Shannon entropy of the whole text in bits, from the frequency of its characters."""
    size = len(text)
    return -sum(count * log2(count / size) for count in Counter(text).values())
