"""Comparison of events and frames with the expectations of scripts."""

from __future__ import annotations

from typing import Any

OPERATORS = frozenset({"min", "max", "one_of", "contains", "present"})


def matches(expected: Any, found: Any) -> bool:
    """Return whether a value is as expected.

    An expected table names some of the fields. A table with only `OPERATORS` is a condition.
    """
    if isinstance(expected, dict) and expected and expected.keys() <= OPERATORS:
        return _meets(expected, found)
    if isinstance(expected, dict):
        return isinstance(found, dict) and all(matches(one, found.get(name)) for name, one in expected.items())
    if isinstance(expected, list):
        same_size = isinstance(found, list) and len(found) == len(expected)
        return same_size and all(matches(one, other) for one, other in zip(expected, found, strict=True))
    return bool(expected == found)


def _meets(condition: dict[str, Any], found: Any) -> bool:
    for operator, value in condition.items():
        match operator:
            case "min":
                is_met = isinstance(found, int | float) and found >= value
            case "max":
                is_met = isinstance(found, int | float) and found <= value
            case "one_of":
                is_met = found in value
            case "contains":
                is_met = isinstance(found, str) and value in found
            case _:
                is_met = (found is not None) == value
        if not is_met:
            return False
    return True
