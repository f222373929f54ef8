"""Histogram: each value counts in the first bucket that it does not exceed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from greendot.telemetry.metrics_model import Histogram


def test_a_value_is_in_the_first_bucket_it_does_not_exceed_and_in_all_after_it() -> None:
    values = Histogram((1.0, 2.0, 5.0))
    for value in (0.5, 1.0, 1.5, 7.0):
        values.observe(value)
    assert [*values.buckets()] == [(1.0, 2), (2.0, 3), (5.0, 3)]
    assert (values.count, values.total) == (4, 10.0)


def test_the_same_value_many_times_is_that_value_so_often() -> None:
    one, many = Histogram((1.0, 2.0)), Histogram((1.0, 2.0))
    many.add(1.5, 3)
    for _ in range(3):
        one.observe(1.5)
    assert ([*one.buckets()], one.total) == ([*many.buckets()], many.total)


@given(st.lists(st.floats(0, 100), max_size=50))
def test_buckets_never_go_down_and_nothing_is_lost(found: list[float]) -> None:
    values = Histogram((0.1, 1.0, 10.0))
    for value in found:
        values.observe(value)
    reached = [count for _, count in values.buckets()]
    assert reached == [sum(value <= bound for value in found) for bound in values.bounds]
    assert values.count == len(found)
