"""Fan-out of one user to very many watchers: order and rate of the deliveries."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greendot.presence.celebrity_model import LATELY_S, LONGEST_S, SHORTEST_S, CelebrityFanout, CelebrityThresholds

STEP_S = 0.1
CROWDING = CelebrityThresholds(spread=1_000, poll=20_000)
SMALL = CelebrityThresholds(spread=1, poll=100)


class Town:
    """Watchers, the version each has, and a user who changes. A delivery of the same or an older version fails."""

    def __init__(
        self, watchers: int, active_at: dict[int, float] | None = None, crowding: CelebrityThresholds = CROWDING
    ) -> None:
        self.crowding = crowding
        self.now, self.version = 100_000.0, 1
        self.known = dict.fromkeys(range(watchers), 0)
        self.spread = CelebrityFanout(self.known, lambda watcher: (active_at or {}).get(watcher, 0.0), self.now)
        self.per_second: Counter[int] = Counter()

    def change(self) -> None:
        self.version += 1
        self.spread.changed()

    def step(self, seconds: float = STEP_S) -> list[int]:
        self.now += seconds
        due = self.spread.due(self.now, self.crowding.per_s(len(self.known)))
        for watcher in due:
            assert self.known[watcher] < self.version, "the watcher already has this version"
            self.known[watcher] = self.version
        self.per_second[int(self.now + 1e-6)] += len(due)
        return due

    def come(self, watcher: int) -> None:
        self.known[watcher] = self.version
        self.spread.came(watcher)

    def leave(self, watcher: int) -> None:
        self.known.pop(watcher, None)
        self.spread.left(watcher)


def test_a_user_with_15_000_watchers_who_changes_every_second_costs_no_more_than_one_who_changes_once() -> None:
    town = Town(15_000)
    window_s = 15_000 / CROWDING.per_s(15_000)
    for tenth in range(1_200):
        if tenth % 10 == 5:
            town.change()
        town.step()
    assert max(town.per_second.values()) <= CROWDING.per_s(15_000) + 1
    assert sum(town.per_second.values()) == pytest.approx(120 * CROWDING.per_s(15_000), abs=1)
    last = town.now
    while not town.spread.done:
        town.step()
    assert {*town.known.values()} == {town.version}
    assert town.now - last <= window_s + STEP_S
    assert town.step(10) == []


def test_one_change_reaches_every_watcher_once_within_the_window() -> None:
    town, told = Town(5_000), list[int]()
    window_s = 5_000 / CROWDING.per_s(5_000)
    for _ in range(round(window_s / STEP_S) + 1):
        due = town.step()
        assert len(due) <= CROWDING.per_s(5_000) * STEP_S + 1
        told += due
    assert sorted(told) == [*range(5_000)]
    assert town.spread.done


def test_who_was_active_lately_comes_first() -> None:
    ages = {0: 10.0, 1: 100.0, 2: 1_000.0, 3: 10_000.0}
    town = Town(4_000, {watcher: 100_000.0 - ages[watcher % 4] for watcher in range(4_000)})
    told = [watcher % 4 for _ in range(200) for watcher in town.step()]
    assert told == [0] * 1_000 + [1] * 1_000 + [2] * 1_000 + [3] * 1_000


def test_a_few_active_ones_among_very_many_are_found_soon() -> None:
    active = range(7, 15_000, 30)
    town = Town(15_000, dict.fromkeys(active, 100_000.0 - 5))
    told = {watcher for _ in range(13) for watcher in town.step()}
    assert told >= {*active}
    assert len(told) < 800


def test_who_became_active_meanwhile_comes_first_in_the_next_round() -> None:
    active_at: dict[int, float] = {}
    town = Town(2_000, active_at)
    town.step()
    town.step()
    early = [watcher for watcher, known in town.known.items() if known]
    town.change()
    active_at[early[-1]] = town.now
    told = [watcher for _ in range(200) for watcher in town.step()]
    assert told.index(early[-1]) == 2_000 - len(early)  # after older versions, before equal ones
    assert len(told) == 2_000


def test_a_later_change_is_sent_again_only_to_watchers_that_received_the_earlier_one() -> None:
    town = Town(2_000)
    for _ in range(20):
        town.step()
    before = sum(town.per_second.values())
    town.change()
    while not town.spread.done:
        town.step()
    assert sum(town.per_second.values()) == 2_000 + before
    assert {*town.known.values()} == {2}


def test_watchers_may_come_and_go_at_any_time() -> None:
    town = Town(2_000)
    town.step()
    told, waiting = town.known.copy(), [watcher for watcher, known in town.known.items() if not known]
    town.leave(waiting[0])  # it has received nothing
    town.leave(waiting[1])
    town.come(waiting[1])  # it returns with a snapshot, so nothing is due
    town.leave(next(watcher for watcher, known in told.items() if known))
    town.come(5_000)
    town.leave(9_999)  # an unknown watcher
    town.change()
    while not town.spread.done:
        town.step()
    assert {*town.known.values()} == {2}
    assert len(town.known) == 1_999


def test_when_all_are_gone_nothing_is_left_to_do() -> None:
    town = Town(100)
    town.step()
    for watcher in [*town.known]:
        town.leave(watcher)
    assert town.spread.done


def test_what_was_not_sent_in_time_is_not_made_up_for_at_once() -> None:
    town = Town(15_000)
    assert len(town.step(60)) <= CROWDING.per_s(15_000) / 2 + 1


@pytest.mark.parametrize("watchers", [50_000, 20_001])
def test_watchers_above_the_polling_threshold_are_all_notified(watchers: int) -> None:
    town = Town(watchers)
    while not town.spread.done:
        town.step()
    assert {*town.known.values()} == {1}


@given(st.randoms(use_true_random=False))
def test_after_any_sequence_all_watchers_have_the_newest_state_and_receive_none_twice(rng: random.Random) -> None:
    town = Town(rng.randrange(60), crowding=SMALL)
    for _ in range(rng.randrange(150)):
        match rng.randrange(5):
            case 0:
                town.change()
            case 1:
                town.come(rng.randrange(80))
            case 2:
                town.leave(rng.randrange(80))
            case _:
                town.step(rng.choice([0.0, 0.05, STEP_S, 2.0]))
    for _ in range(round(LONGEST_S / STEP_S) + 1):
        town.step()
    assert town.spread.done
    assert all(known == town.version for known in town.known.values())


def test_the_window_grows_from_10_to_30_seconds_between_the_thresholds() -> None:
    windows = [count / CROWDING.per_s(count) for count in range(1_000, 30_000, 500)]
    assert windows == sorted(windows)
    assert (windows[0], windows[-1]) == pytest.approx((SHORTEST_S, LONGEST_S))
    assert 20_000 / CROWDING.per_s(20_000) == pytest.approx(LONGEST_S)
    assert CROWDING.per_s(3) == CROWDING.per_s(1_000)
    assert CelebrityThresholds(5, 5).per_s(10) == pytest.approx(10 / LONGEST_S)


def test_a_threshold_is_left_only_well_below_it() -> None:
    assert [CROWDING.is_spread(n, was=False) for n in (1_000, 1_001)] == [False, True]
    assert [CROWDING.is_spread(n, was=True) for n in (801, 800)] == [True, False]
    assert [CROWDING.is_polled(n, was=False) for n in (20_000, 20_001)] == [False, True]
    assert [CROWDING.is_polled(n, was=True) for n in (16_001, 16_000)] == [True, False]


def test_few_watchers_are_notified_within_the_window_too() -> None:
    town = Town(20, crowding=CelebrityThresholds(5, 20_000))
    for _ in range(round(SHORTEST_S / STEP_S) + 1):
        town.step()
    assert town.spread.done


def test_thresholds_that_are_one_apart_are_apart() -> None:
    assert CelebrityThresholds(spread=10, poll=11).per_s(11) == 11 / LONGEST_S


def test_the_first_watcher_is_notified_as_soon_as_the_rate_allows_it() -> None:
    assert CelebrityFanout(["ann", "bob"], lambda _: 0.0, 0.0).due(0.1, 10.0) == ["ann"]


def test_no_watcher_of_a_round_is_skipped_when_it_is_processed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("greendot.presence.celebrity_model.AT_ONCE", 1)
    spread = CelebrityFanout(["ann", "bob", "zoe"], lambda _: 0.0, 0.0)
    assert spread.due(0.3, 10.0) == ["ann", "bob", "zoe"]
    assert spread.done


@pytest.mark.parametrize("lately_s", LATELY_S)
def test_who_was_active_within_a_time_comes_before_who_was_exactly_then(lately_s: float) -> None:
    now = 10_000.0
    active = {"ann": now - lately_s, "bob": now - lately_s + 1}
    assert CelebrityFanout(active, active.__getitem__, now - 0.5).due(now, 4.0) == ["bob", "ann"]
