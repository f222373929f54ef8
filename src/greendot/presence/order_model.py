"""Work on items in another order than that of its results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def ordered(items: Sequence[T], order: Sequence[int]) -> Sequence[T]:
    """Return the items at these positions; the same items for a range of all."""
    return items if isinstance(order, range) else [items[position] for position in order]


def restored_order(items: Sequence[T], order: Sequence[int]) -> Sequence[T]:
    """Return items that were made in an order of positions, by position."""
    if isinstance(order, range):
        return items
    by_position = dict(zip(order, items, strict=True))
    return [by_position[position] for position in range(len(items))]
