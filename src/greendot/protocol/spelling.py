"""Misspelled names: the known name that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

MOST = 64  # characters of a name that are compared and shown: comparing takes quadratic time
ALIKE = 0.65  # difflib's ratio; names with a lower one are different words


def nearest(name: str, known: Iterable[str], alike: float = ALIKE) -> str | None:
    """Return the known name closest to `name`, in any case; None if no name resembles it."""
    by_lower = {word.lower(): word for word in known}
    found = get_close_matches(name[:MOST].lower(), by_lower, n=1, cutoff=alike)
    return by_lower[found[0]] if found else None


def unknown(what: str, name: str, known: Iterable[str], at: str = "") -> str:
    """Return the sentence about an unknown name: the nearest known one, or all of them.

    `what` is the noun, such as field. `at` is the path in front of the name.
    """
    known = [*known]
    found = nearest(name, known)
    if found is not None:
        remedy = f"did you mean `{found}`?"
    elif known:
        remedy = f"use one of {', '.join(f'`{word}`' for word in known)}"
    else:
        remedy = f"this request takes no {what}s"
    return f"unknown {what} `{at}{name[:MOST]}`; {remedy}"
