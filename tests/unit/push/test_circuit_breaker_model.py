"""Circuit breaker of a provider: pauses that grow, and a single call as a trial."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from greendot.push.circuit_breaker_model import TRYING_S, CircuitBreaker

ROUNDED = 1e-6  # rounding error of times of days


def fail(rests: CircuitBreaker, now: float, chance: float = 1.0) -> None:
    rests.end(now, chance, was_try=rests.begin(), went_well=False)


def succeed(rests: CircuitBreaker, now: float) -> None:
    rests.end(now, 1.0, was_try=rests.begin(), went_well=True)


def test_some_failures_in_a_row_are_needed() -> None:
    rests = CircuitBreaker(after=3)
    fail(rests, 0)
    fail(rests, 0)
    succeed(rests, 0)
    fail(rests, 0)
    fail(rests, 0)
    assert (rests.is_open, rests.wait_s(0)) == (False, 0)
    fail(rests, 0)
    assert (rests.is_open, rests.wait_s(0)) == (True, 1)


def test_after_the_rest_one_is_tried_and_the_others_wait() -> None:
    rests = CircuitBreaker(after=1)
    fail(rests, 0)
    assert rests.wait_s(0.25) == 0.75
    assert rests.wait_s(1) == 0
    was_try = rests.begin()
    assert rests.wait_s(1) == TRYING_S
    rests.end(1.5, 1.0, was_try=was_try, went_well=True)
    assert (rests.is_open, rests.wait_s(1.5)) == (False, 0)


def test_each_try_that_fails_makes_the_rest_longer_up_to_a_bound() -> None:
    rests, now, waits = CircuitBreaker(after=2, longest_s=20), 0.0, []
    fail(rests, now)
    for _ in range(7):
        fail(rests, now)
        waits.append(rests.wait_s(now))
        now += waits[-1]
    assert waits == [1, 2, 4, 8, 16, 20, 20]
    succeed(rests, now)
    fail(rests, now)
    fail(rests, now)
    assert rests.wait_s(now) == 1


def test_what_was_under_way_and_fails_makes_it_no_longer() -> None:
    rests = CircuitBreaker(after=2)
    under_way = [rests.begin() for _ in range(50)]
    for n, was_try in enumerate(under_way):
        rests.end(n / 100, 1.0, was_try=was_try, went_well=False)
    assert rests.pauses == 1
    assert rests.rests_until == 1.01


def test_what_was_under_way_and_goes_well_ends_it() -> None:
    rests = CircuitBreaker(after=1)
    slow = rests.begin()
    fail(rests, 0)
    rests.end(0.1, 1.0, was_try=slow, went_well=True)
    assert rests.wait_s(0.1) == 0


def test_a_try_of_which_nothing_is_known_lets_another_try() -> None:
    rests = CircuitBreaker(after=1)
    fail(rests, 0)
    was_try = rests.begin()
    rests.end(2, 1.0, was_try=was_try, went_well=None)
    assert (rests.is_open, rests.wait_s(2)) == (True, 0)


def test_a_requested_rest_is_kept_even_after_a_success() -> None:
    rests = CircuitBreaker(after=5)
    rests.asked_to_rest(0, 30)
    rests.asked_to_rest(1, 5)
    succeed(rests, 2)
    assert rests.wait_s(10) == 20
    assert rests.wait_s(30) == 0


@given(st.lists(st.tuples(st.sampled_from(["well", "ill", "unknown", "told"]), st.floats(0, 100), st.floats(0, 1))))
def test_it_never_rests_for_ever(story: list[tuple[str, float, float]]) -> None:
    rests, now = CircuitBreaker(after=2, longest_s=60), 0.0
    for what, passed, chance in story:
        now += passed
        if what == "told":
            rests.asked_to_rest(now, 30)
        elif rests.wait_s(now) == 0:
            went_well = {"well": True, "ill": False, "unknown": None}[what]
            rests.end(now, chance, was_try=rests.begin(), went_well=went_well)
        assert rests.wait_s(now) <= 60 + ROUNDED
    assert rests.wait_s(now + 60 + ROUNDED) == 0


def test_by_default_the_circuit_breaker_opens_after_five_failures_and_for_a_minute_at_most() -> None:
    rests = CircuitBreaker()
    for _ in range(4):
        fail(rests, 0)
    assert not rests.is_open
    fail(rests, 0)
    assert rests.is_open
    for _ in range(20):
        fail(rests, 0)
    assert rests.wait_s(0) == 60.0


def test_what_was_begun_before_does_not_end_the_one_try() -> None:
    rests = CircuitBreaker(after=1)
    fail(rests, 0)
    assert rests.begin()
    rests.end(1.5, 1.0, was_try=False, went_well=None)
    assert rests.wait_s(1.5) == TRYING_S
