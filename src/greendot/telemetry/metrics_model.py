"""From counts that only grow to how much there is per second."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Reading(NamedTuple):
    """Counts, and when they were read."""

    at_ms: int  # on the counting node's own clock, which never jumps
    counts: Mapping[str, int]


def rates(before: Reading | None, now: Reading) -> dict[str, float]:
    """Per second since `before`, of what both know. Nothing without one: a rate is made of two readings.

    A count that is smaller than it was began anew (its node did): what it has now came since.
    """
    if before is None or now.at_ms <= before.at_ms:
        return {}
    passed_s = (now.at_ms - before.at_ms) / 1000
    found: dict[str, float] = {}
    for name, count in now.counts.items():
        if (earlier := before.counts.get(name)) is not None:
            found[name] = (count - earlier if count >= earlier else count) / passed_s
    return found


def summed(of: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """All of them together, name by name."""
    total: dict[str, float] = {}
    for one in of:
        for name, value in one.items():
            total[name] = total.get(name, 0) + value
    return total


def worst(of: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The largest of each name."""
    most: dict[str, float] = {}
    for one in of:
        for name, value in one.items():
            most[name] = max(most.get(name, value), value)
    return most
