"""Due times of jobs."""

from __future__ import annotations

import pytest

from greendot.jobs.model import FIRST_PAUSE_MS, LONGEST_PAUSE_MS, Every, JobPlan

HOUR = 3_600_000
PLAN = JobPlan(Every(2 * HOUR), jitter_ms=60_000)


def test_a_new_job_runs_after_its_first_interval() -> None:
    assert PLAN.first(1_000, None, 0) == 1_000 + 2 * HOUR


def test_a_job_that_is_planned_otherwise_counts_from_its_last_run() -> None:
    assert PLAN.first(10 * HOUR, 9 * HOUR, 0) == 11 * HOUR
    assert PLAN.first(10 * HOUR, 3 * HOUR, 0) == 5 * HOUR, "an overdue job runs at once"


def test_the_next_run_comes_an_interval_after_the_last_one_began() -> None:
    assert PLAN.following(HOUR + 50, 0) == 3 * HOUR + 50


def test_runs_that_were_missed_are_made_up_for_once() -> None:
    assert PLAN.following(100 * HOUR, 0) == 102 * HOUR, "the forty-nine missed runs are not repeated"


@pytest.mark.parametrize("chance", [0.0, 0.3, 1.0])
def test_jitter_only_ever_makes_it_later(chance: float) -> None:
    late = PLAN.following(0, chance) - 2 * HOUR
    assert late == round(60_000 * chance)


def test_a_failed_run_is_tried_again_soon_and_less_and_less_often() -> None:
    day = JobPlan(Every(24 * HOUR))
    pauses = [day.again(0, failures, 1.0) for failures in range(1, 12)]
    assert pauses[:3] == [FIRST_PAUSE_MS, 2 * FIRST_PAUSE_MS, 4 * FIRST_PAUSE_MS]
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE_MS
    assert day.again(0, 1, 0.0) == FIRST_PAUSE_MS / 2
    assert day.again(0, 10**6, 1.0) == LONGEST_PAUSE_MS


def test_a_failed_run_is_tried_no_later_than_it_would_run_anyway() -> None:
    assert JobPlan(Every(1_000)).again(0, 9, 1.0) == 1_000


def test_a_plan_has_no_jitter_unless_it_is_given_and_no_failure_is_as_one() -> None:
    assert JobPlan(Every(HOUR)).following(0, 1.0) == HOUR
    assert JobPlan(Every(HOUR)).again(0, 0, 1.0) == FIRST_PAUSE_MS
    assert JobPlan(Every(HOUR)).again(500, 1, 0.5) == 500 + FIRST_PAUSE_MS * 3 // 4


def test_the_first_run_may_be_later_too() -> None:
    assert PLAN.first(0, None, 1.0) == 2 * HOUR + 60_000
