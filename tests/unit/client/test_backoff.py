from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from greendot.client.backoff import LONGEST_HINT_S, Backoff

chance = st.floats(0, 1, exclude_max=True)


def test_the_bound_doubles_from_the_base_up_to_the_cap() -> None:
    almost_one = Backoff(random=lambda: 1.0)
    assert [almost_one.delay(n) for n in range(9)] == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_the_delay_may_be_anything_below_the_bound() -> None:
    assert Backoff(random=lambda: 0.0).delay(10) == 0
    assert Backoff(random=lambda: 0.25).delay(2) == 0.5


@given(st.integers(0, 10**6), chance)
def test_no_number_of_failures_exceeds_the_cap(failures: int, luck: float) -> None:
    assert 0 <= Backoff(random=lambda: luck).delay(failures) <= 30


@given(st.integers(0, 60_000), st.integers(0, 100), chance)
def test_no_client_reconnects_before_the_time_the_server_gave(hint: int, failures: int, luck: float) -> None:
    delay = Backoff(random=lambda: luck).delay(failures, hint)
    assert hint / 1000 <= delay <= hint / 1000 + 0.5


def test_the_jitter_comes_on_top_of_the_time_the_server_gave() -> None:
    assert Backoff(random=lambda: 0.5).delay(7, 60_000) == 60.25
    assert Backoff(base_s=4.0, random=lambda: 0.25).delay(0, 0) == 1.0


def test_a_senseless_time_from_the_server_is_bounded() -> None:
    still = Backoff(random=lambda: 0.0)
    assert still.delay(0, 10**12) == LONGEST_HINT_S
    assert still.delay(0, -5) == 0


def test_a_connection_attempt_is_given_up_after_ten_seconds_by_default() -> None:
    assert Backoff().give_up_s == 10.0
