"""Rates from counters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from greendot.telemetry.metrics_model import Reading, rates, summed, worst


def test_a_rate_is_made_of_two_readings() -> None:
    before, now = Reading(1_000, {"sends": 100, "drops": 0}), Reading(3_000, {"sends": 150, "drops": 0})
    assert rates(None, now) == {}
    assert rates(before, now) == {"sends": 25.0, "drops": 0.0}


def test_a_count_that_began_anew_is_counted_from_nothing() -> None:
    assert rates(Reading(0, {"sends": 1_000}), Reading(1_000, {"sends": 30})) == {"sends": 30.0}


def test_what_was_not_known_before_has_no_rate_yet() -> None:
    assert rates(Reading(0, {}), Reading(1_000, {"sends": 30})) == {}


def test_no_time_is_no_rate() -> None:
    assert rates(Reading(5, {"sends": 1}), Reading(5, {"sends": 9})) == {}


@given(st.dictionaries(st.text(), st.integers(0, 10**12)), st.dictionaries(st.text(), st.integers(0, 10**12)))
def test_no_rate_is_ever_negative(before: dict[str, int], now: dict[str, int]) -> None:
    assert all(rate >= 0 for rate in rates(Reading(0, before), Reading(700, now)).values())


def test_nodes_are_added_up_or_the_worst_is_taken() -> None:
    nodes = [{"a": 1.0, "b": 5.0}, {"a": 2.0}]
    assert summed(nodes) == {"a": 3.0, "b": 5.0}
    assert worst(nodes) == {"a": 2.0, "b": 5.0}
    assert summed([]) == worst([]) == {}


def test_a_count_that_stayed_has_a_rate_of_nothing() -> None:
    assert rates(Reading(0, {"sends": 30}), Reading(1_000, {"sends": 30})) == {"sends": 0.0}
