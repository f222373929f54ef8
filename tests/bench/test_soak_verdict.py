"""Verdict of the soak test: it finds planted leaks, and daily waves and faults do not mislead it."""

from __future__ import annotations

import json
import math
import random
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from soak import TOLERANCES, Run, arguments, keep, page, plot, tables
from soak_cluster import Plan
from soak_plot import round_up
from soak_sampler import WRONG, Sample
from soak_verdict import HOUR_S, Tolerance, TooShort, judge, trend

DAY_S, DAYS, EVERY_S = 600.0, 12, 10.0
TIGHT = Tolerance(0.05, 0)


def wave(extra: Callable[[float], float] = lambda _: 0.0, days: float = DAYS) -> list[tuple[float, float]]:
    """Return a figure of 1,000 that doubles by day, with noise, some faults, and `extra` at each time."""
    noise = random.Random(3)
    points = []
    for number in range(int(days * DAY_S / EVERY_S)):
        at = number * EVERY_S
        value = 1_000 * (1 + max(0.0, math.sin(at / DAY_S * 2 * math.pi))) + noise.uniform(-30, 30)
        points.append((at, 0.0 if noise.random() < 0.05 else value + extra(at)))
    return points


def test_a_daily_wave_with_faults_is_flat() -> None:
    found = trend("keys", wave(), DAY_S, TIGHT)
    assert found.is_flat
    assert found.days == DAYS
    assert abs(found.rise) < 30


def test_a_leak_far_below_the_daily_wave_is_found() -> None:
    found = trend("keys", wave(lambda at: at / HOUR_S * 50), DAY_S, TIGHT)
    assert not found.is_flat
    assert found.per_hour == pytest.approx(50, rel=0.2)
    assert found.last > found.first


def test_a_leak_that_begins_late_is_found() -> None:
    late = DAY_S * DAYS * 0.7
    assert not trend("keys", wave(lambda at: max(0.0, at - late) * 0.2), DAY_S, TIGHT).is_flat


def test_a_fall_is_flat() -> None:
    assert trend("keys", wave(lambda at: -at / HOUR_S * 50), DAY_S, TIGHT).is_flat


def test_one_day_with_a_disturbance_is_no_trend() -> None:
    busy = [(at, value + (400 if 5 <= at / DAY_S < 6 else 0)) for at, value in wave()]
    assert trend("keys", busy, DAY_S, TIGHT).is_flat


def test_a_series_below_its_bound_is_flat_although_it_rises() -> None:
    points = wave(lambda at: at / HOUR_S * 50)
    assert trend("rows", points, DAY_S, Tolerance(0.05, 0, ceiling=3_000)).is_flat
    assert not trend("rows", points, DAY_S, Tolerance(0.05, 0, ceiling=1_500)).is_flat


def test_less_than_two_days_are_too_short() -> None:
    with pytest.raises(TooShort):
        trend("keys", wave(days=0.9), DAY_S, TIGHT)
    trends, unjudged = judge({"keys": wave(days=2)}, {"keys": TIGHT}, DAY_S, warm_up_s=DAY_S)
    assert trends == []
    assert unjudged == ["keys"]


def test_the_warm_up_is_not_judged() -> None:
    growing = wave(lambda at: min(at, 2 * DAY_S))
    assert not judge({"keys": growing}, {"keys": TIGHT}, DAY_S, 0)[0][0].is_flat
    assert judge({"keys": growing}, {"keys": TIGHT}, DAY_S, 2 * DAY_S)[0][0].is_flat


def test_the_longest_name_gives_the_tolerance() -> None:
    tolerances = {"rows of ": TIGHT, "rows of runs": Tolerance(0, 7)}
    trends, _ = judge({"rows of runs": wave(), "rows of rooms": wave(), "lag": wave()}, tolerances, DAY_S, 0)
    assert [one.name for one in trends] == ["rows of runs", "rows of rooms"]
    assert trends[0].allowed == 7


def planted(leaks: dict[str, float], counts: dict[str, float] | None = None) -> Run:
    """Return a run of two hours with the series of a real one, and leaks in some: amount per hour."""
    plan = Plan(DAYS * DAY_S, clients=1_000, day_s=DAY_S, warm_up_s=DAY_S)
    run = Run(plan, faults=[(30.0, "FLUSHALL")], healed={"FLUSHALL": [1.5]})
    levels = {
        "node 1: memory": 9e7,
        "node 2: memory": 9e7,
        "node 1: descriptors besides clients": 40,
        "redis: keys": 900,
        "redis: memory": 5e6,
        "store: bytes": 4e7,
        "store: rows": 9_000,
        "rows of messages": 6_000,
        "bytes of messages": 3e7,
    }
    for number in range(int(plan.seconds / EVERY_S)):
        at = number * EVERY_S
        values = {name: level + leaks.get(name, 0) * at / HOUR_S for name, level in levels.items()}
        run.samples.rows.append(Sample(at, values | dict.fromkeys(WRONG, 0.0) | (counts or {})))
    return run


def test_a_run_without_leaks_has_no_failures() -> None:
    assert planted({}).failures() == []


@pytest.mark.parametrize(
    ("series", "per_hour"),
    [
        ("node 1: memory", 2e7),
        ("node 1: descriptors besides clients", 10),
        ("redis: keys", 100),
        ("redis: memory", 2e6),
        ("rows of messages", 600),
        ("bytes of messages", 5e6),
    ],
)
def test_a_planted_leak_fails_the_run_by_name(series: str, per_hour: float) -> None:
    (failure,) = planted({series: per_hour}).failures()
    assert failure.startswith(f"{series} rises by")


def test_memory_has_a_tighter_tolerance_after_a_warm_up_of_an_hour() -> None:
    short, long = planted({"node 1: memory": 8e6}), planted({"node 1: memory": 2e7})
    long.plan = replace(long.plan, warm_up_s=HOUR_S)
    assert short.failures() == []
    assert len(long.failures()) == 1


def test_a_status_of_every_user_is_no_leak() -> None:
    run = planted({})
    for row, rows in zip(run.samples.rows, range(1, 1_000), strict=False):
        row.values["rows of status"] = float(min(rows * 2, 900))
    assert run.failures() == []
    for row, rows in zip(run.samples.rows, range(1, 1_000), strict=False):
        row.values["rows of status"] = float(rows * 2)
    assert [failure.split(" rises")[0] for failure in run.failures()] == ["rows of status"]


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_event_fails_the_run(name: str) -> None:
    assert planted({}, {name: 1.0}).failures() == [f"{WRONG[name]}: 1"]


def test_every_tolerance_belongs_to_a_series_that_is_sampled() -> None:
    starts = ("node ", "redis: ", "store: ", "rows of ", "bytes of ")
    assert [name for name in TOLERANCES if not name.startswith(starts)] == []


def test_the_plot_has_all_panels_and_a_dark_form(tmp_path: Path) -> None:
    run = planted({})
    text = plot(run)
    root = ET.fromstring(text)  # noqa: S314  (written by this test)
    titles = [one.text for one in root.iter() if one.get("class") == "title"]
    assert len(titles) == 8
    assert "prefers-color-scheme: dark" in text
    assert len([one for one in root.iter() if (one.get("class") or "").startswith("line")]) >= 8
    keep(run, "make soak", tmp_path / "soak.json")
    assert json.loads((tmp_path / "soak.json").read_text())["failures"] == []
    assert "![" in page(run, "make soak")


def test_the_tables_name_what_rises() -> None:
    rows = tables(planted({"redis: keys": 100})).splitlines()
    assert [row for row in rows if "**rises**" in row] == [row for row in rows if row.startswith("| redis: keys")]


def test_short_runs_have_short_days() -> None:
    assert arguments(["--hours", "8"])[0].day_s == 600
    plan = arguments(["--hours", "0.2", "--clients", "300"])[0]
    assert plan.day_s == 120
    assert plan.warm_up_s == 180


@pytest.mark.parametrize("words", [["--hours", "0"], ["--clients", "10"], ["--clients", "99999"], ["--day", "1"]])
def test_impossible_sizes_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments(words)
    assert "must be" in capsys.readouterr().err


@pytest.mark.parametrize(("value", "top"), [(0, 1), (0.07, 0.08), (1, 1), (23, 30), (149, 200), (8_100, 10_000)])
def test_axes_end_at_round_numbers(value: float, top: float) -> None:
    assert round_up(value) == pytest.approx(top)
