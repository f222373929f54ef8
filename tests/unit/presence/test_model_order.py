"""Permutation of items, and its inverse."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from greendot.presence.model import ordered, restored_order


@pytest.mark.parametrize("order", [range(4), [2, 0, 3, 1]])
def test_results_made_in_another_order_are_put_back_in_place(order: Sequence[int]) -> None:
    items = ["a", "b", "a", "c"]
    made = [item.upper() for item in ordered(items, order)]
    assert [*restored_order(made, order)] == ["A", "B", "A", "C"]


def test_items_are_given_in_the_order_of_the_positions() -> None:
    assert [*ordered(["a", "b", "c"], [2, 0, 1])] == ["c", "a", "b"]


def test_a_range_of_all_copies_nothing() -> None:
    items = ["a", "b"]
    assert ordered(items, range(2)) is items
    assert restored_order(items, range(2)) is items


def test_an_item_that_is_missing_is_not_passed_over() -> None:
    with pytest.raises(ValueError):
        restored_order(["a"], [0, 1])
