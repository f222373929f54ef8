"""Token buckets by key: admitted amounts, waiting times, and removal of full buckets."""

from __future__ import annotations

from collections.abc import Hashable
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greendot.limits.model import ROOMY, TINY_S, BucketRule, Buckets, Excess, ask, make_rule, owe

NOW = 1_000_000.0  # seconds, as on a machine that has been up for days
USER, ROOM = 0, 1


def rule(rate: float = 10, burst_s: float = 2, at: int = USER) -> BucketRule:
    return make_rule(at, Buckets(), rate, burst_s)


def admitted(of: BucketRule, tries: int, now: float = NOW, key: Hashable = "alice") -> int:
    return sum(ask([of], [key], 1, now) is None for _ in range(tries))


def wait_s(found: Excess | None) -> float:
    assert found is not None
    return found.wait_s


@pytest.mark.parametrize("now", [0.0, 3.7, NOW, 1e8])
@pytest.mark.parametrize("rate", [1, 3, 7, 50, 999])
def test_a_burst_is_let_through_and_not_one_more(rate: int, now: float) -> None:
    assert admitted(rule(rate, 4), rate * 5, now) == rate * 4


def test_a_hundred_thousand_in_a_second_are_counted_well_enough_after_years() -> None:
    assert admitted(rule(100_000, 4), 500_000, now=1e8) == pytest.approx(400_000, rel=1e-3)


def test_who_keeps_to_the_rate_never_waits() -> None:
    busy = rule()
    admitted(busy, 20)
    assert [ask([busy], ["alice"], 1, NOW + number / 10) for number in range(1, 1_000)] == [None] * 999


def test_the_wait_is_what_is_missing_and_after_it_one_is_let_through() -> None:
    busy = rule()
    admitted(busy, 20)
    assert wait_s(ask([busy], ["alice"], 1, NOW)) == pytest.approx(0.1, abs=1e-5)
    assert wait_s(ask([busy], ["alice"], 1, NOW + 0.06)) == pytest.approx(0.04, abs=1e-5)
    assert wait_s(ask([busy], ["alice"], 5, NOW)) == pytest.approx(0.5, abs=1e-5)
    assert admitted(busy, 2, NOW + 0.1) == 1


def test_what_is_refused_costs_nothing() -> None:
    busy = rule()
    assert admitted(busy, 1_020) == 20
    assert admitted(busy, 2, NOW + 0.1) == 1


def test_a_long_silence_earns_one_burst_and_no_more() -> None:
    quiet = rule()
    admitted(quiet, 20)
    assert admitted(quiet, 100, NOW + 86_400) == 20


def test_keys_do_not_know_of_each_other() -> None:
    busy = rule()
    assert admitted(busy, 100, key=("acme", "alice")) == 20
    assert admitted(busy, 100, key=("acme", "bob")) == 20
    assert admitted(busy, 100, key=("other", "alice")) == 20


def test_a_rate_below_one_in_its_burst_still_lets_one_through() -> None:
    assert admitted(rule(1, 0.1), 5) == 1


# --- several rules ---


def test_a_refusal_by_one_costs_the_others_nothing() -> None:
    user, room = rule(10), rule(1, 5, at=ROOM)
    results = [ask([user, room], ["alice", "lobby"], 1, NOW) for _ in range(15)]
    assert [found is None for found in results] == [True] * 5 + [False] * 10
    assert {found.at for found in results if found is not None} == {ROOM}
    # Five of twenty tokens were used. Fifteen are left for other rooms.
    assert sum(ask([user, room], ["alice", name], 1, NOW) is None for name in map(str, range(50))) == 15


def test_the_one_that_has_to_wait_longest_is_named() -> None:
    user, room = rule(100, 0.01), rule(2, 0.5, at=ROOM)
    ask([user, room], ["alice", "lobby"], 1, NOW)
    for rules in ([user, room], [room, user]):
        found = ask(rules, ["alice", "lobby"], 1, NOW)
        assert found is not None
        assert (found.at, found.rate) == (ROOM, 2)
        assert found.wait_s == pytest.approx(0.5, abs=1e-5)


def test_without_rules_everything_is_let_through() -> None:
    assert ask([], [], 10_000, NOW) is None


# --- large amounts ---


def test_more_than_a_burst_is_let_through_when_the_bucket_is_full_and_is_owed() -> None:
    bulk = rule()
    assert ask([bulk], ["acme"], 10_000, NOW) is None
    assert wait_s(ask([bulk], ["acme"], 1, NOW)) == pytest.approx(998.1, abs=1e-3)
    assert wait_s(ask([bulk], ["acme"], 10_000, NOW)) == pytest.approx(1_000, abs=1e-3)
    assert ask([bulk], ["acme"], 10_000, NOW + 999.9) is not None
    assert ask([bulk], ["acme"], 10_000, NOW + 1_000) is None


def test_more_than_a_burst_waits_until_the_bucket_is_full() -> None:
    bulk = rule()
    ask([bulk], ["acme"], 1, NOW)
    assert wait_s(ask([bulk], ["acme"], 10_000, NOW)) == pytest.approx(0.1, abs=1e-5)
    assert ask([bulk], ["acme"], 10_000, NOW + 0.1) is None


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2_048), st.integers(1, 20)), max_size=100))
def test_a_bucket_agrees_with_exact_arithmetic(steps: list[tuple[int, int]]) -> None:
    rate, burst = 4, 8  # powers of two, like the times: the results differ by TINY_S at most
    bucket, now, level = rule(rate, burst / rate), Fraction(0), Fraction(burst)
    for step, amount in steps:
        passed = Fraction(step, 1_024)
        now, level = now + passed, min(Fraction(burst), level + passed * rate)
        missing = min(amount, burst) - level
        found = ask([bucket], ["alice"], amount, float(now))
        if missing <= 0:
            assert found is None
            level -= amount
        else:
            assert wait_s(found) == pytest.approx(float(missing / rate), abs=1e-5)


@settings(deadline=None)
@given(st.integers(1, 1_000), st.lists(st.tuples(st.floats(0, 0.5), st.integers(1, 50)), min_size=1, max_size=100))
def test_no_stretch_of_time_lets_through_more_than_a_burst_one_bulk_and_its_rate(
    rate: int, steps: list[tuple[float, int]]
) -> None:
    bucket, passed_s, taken = rule(rate, 2), 0.0, 0
    for step_s, amount in steps:
        passed_s += step_s
        if ask([bucket], ["alice"], amount, NOW + passed_s) is None:
            taken += amount
        assert taken <= max(rate * 2, 50) + passed_s * rate + rate * 1e-3


# --- removal ---


def test_a_million_users_do_not_leave_a_million_buckets() -> None:
    many = rule(200, 4)
    for number in range(1_000_000):  # ten thousand per second; a token returns after 5 ms
        ask([many], [number], 1, NOW + number / 10_000)
    assert len(many[1]) <= ROOMY + 100


def test_a_crowd_that_is_gone_is_forgotten_while_others_come() -> None:
    many = rule(200, 4)
    for number in range(20_000):
        ask([many], [number], 1, NOW)
    assert len(many[1]) == 20_000  # no bucket is full, so each must be kept
    for number in range(20_000):
        ask([many], [f"later {number}"], 1, NOW + 60 + number)
    assert len(many[1]) <= ROOMY + 1


def test_who_is_not_full_is_never_forgotten() -> None:
    many = rule(1, 4)
    assert admitted(many, 100, key="greedy") == 4
    for number in range(10 * ROOMY):
        ask([many], [number], 1, NOW)
    assert admitted(many, 100, key="greedy") == 0
    assert ask([many], ["debtor"], 1_000_000, NOW) is None
    for number in range(10 * ROOMY):
        ask([many], [f"later {number}"], 1, NOW + 100 + number)
    assert admitted(many, 1, NOW + 20_000, key="debtor") == 0


def test_a_bucket_that_was_forgotten_begins_full() -> None:
    many = rule(10, 2)
    admitted(many, 20, key="alice")
    for number in range(10 * ROOMY):
        ask([many], [number], 1, NOW + 10 + number)
    assert "alice" not in many[1]
    assert admitted(many, 100, NOW + 100_000, key="alice") == 20


def test_full_buckets_are_forgotten_beyond_a_number_of_them_and_to_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("greendot.limits.model.ROOMY", 2)
    buckets = Buckets()
    for key, full_at in (("ann", 5.0), ("bob", 5.1)):
        buckets.begin(key, full_at, 0.0)
    buckets.begin("eve", 9.0, 5.0)
    assert {*buckets} == {"bob", "eve"}
    buckets["bob"] = 0.0
    assert {*buckets} == {"bob", "eve"}, "full buckets must stay while there are few"


def test_while_there_are_few_buckets_full_ones_stay() -> None:
    buckets = Buckets()
    buckets.begin("ann", 1.0, 0.0)
    buckets.begin("bob", 9.0, 5.0)
    assert {*buckets} == {"ann", "bob"}


def test_two_buckets_are_not_looked_at_where_there_is_room_for_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("greendot.limits.model.ROOMY", 2)
    buckets = Buckets()
    buckets.begin("ann", 1.0, 0.0)
    buckets.begin("bob", 9.0, 5.0)
    assert {*buckets} == {"ann", "bob"}


def test_a_bucket_holds_one_token_at_least() -> None:
    assert make_rule(3, Buckets(), 2.0, 0.1) == (3, {}, 0.5, 0.5 + TINY_S, None)
    assert make_rule(3, Buckets(), 2.0, 4.0)[3] == 4.0 + TINY_S


def test_what_is_owed_is_paid_before_anything_is_let_through() -> None:
    buckets = Buckets()
    rules = [make_rule(0, buckets, 4.0, 1.0)]
    owe(rules, ["ann"], 2, 0.0)
    assert buckets == {"ann": 0.5}
    owe(rules, ["ann"], 8, 0.25)
    assert buckets == {"ann": 2.5}
    assert ask(rules, ["ann"], 1, 0.25) is not None
    owe(rules, ["ann"], 2, 10.0)
    assert buckets == {"ann": 10.5}


def test_all_tokens_that_were_asked_for_come_back_when_another_limit_refuses() -> None:
    wide, narrow = Buckets(), Buckets()
    rules = [make_rule(0, wide, 8.0, 1.0), make_rule(1, narrow, 2.0, 1.0)]
    assert ask(rules, ["ann", "den"], 2, 0.0) is None
    assert ask(rules, ["ann", "den"], 2, 0.0) is not None
    assert wide == {"ann": 0.25}
