"""History of the dashboard: bounded in time and memory, summed over nodes."""

from __future__ import annotations

import re
from pathlib import Path

import greendot
from greendot.admin.history_model import (
    EVERY_S,
    KEPT,
    MOST_COLUMNS,
    MOST_TENANTS,
    POINTS,
    ClusterHistory,
    NodeHistory,
    TenantPlaces,
    figures,
    next_point_s,
)
from greendot.protocol.cluster import HistoryReport

NOW = 1_800_000_000_000
EVERY_MS = round(EVERY_S * 1000)


def at(slot: int) -> int:
    return NOW + slot * EVERY_MS + EVERY_MS // 2


def test_an_hour_of_points_is_kept_and_no_more() -> None:
    history = NodeHistory()
    assert history.read(NOW).slots == []
    for slot in range(POINTS + 10):
        history.add(at(slot), {"sums.ws_connections": slot})
    report = history.read(at(POINTS + 9))
    assert len(report.slots) == POINTS == 3600 / EVERY_S
    assert report.columns["sums.ws_connections"] == [*range(10, POINTS + 10)]
    assert report.slots == [NOW // EVERY_MS + slot for slot in range(10, POINTS + 10)]
    later = history.read(at(POINTS + 9 + 100))
    assert later.columns["sums.ws_connections"] == [*range(110, POINTS + 10)]
    assert history.read(at(5_000)).slots == []


def test_a_period_without_a_point_is_a_gap_and_a_figure_that_ends_is_unknown() -> None:
    history = NodeHistory()
    history.add(at(0), {"rates.a": 1, "closes.1006": 2})
    history.add(at(3), {"rates.a": 4})
    history.add(at(3) + 1, {"rates.a": 5})  # the same period again
    report = history.read(at(3))
    assert [slot - NOW // EVERY_MS for slot in report.slots] == [0, 3]
    assert report.columns == {"rates.a": [1, 5], "closes.1006": [2, None]}
    history.add(at(POINTS), {"rates.a": 7})  # takes the place of the first
    assert history.read(at(POINTS)).columns == {"rates.a": [5, 7], "closes.1006": [None, None]}


def test_a_clock_that_is_set_back_shows_no_points_of_the_future() -> None:
    history = NodeHistory()
    history.add(at(20), {"rates.a": 1})
    history.add(at(4), {"rates.a": 2})
    assert history.read(at(4)).columns == {"rates.a": [2]}


def test_the_number_of_figures_is_bounded() -> None:
    history = NodeHistory()
    history.add(at(0), {f"closes.{code}": 1.0 for code in range(1_000)})
    assert len(history.read(at(0)).columns) == MOST_COLUMNS


def test_nodes_are_added_up_and_of_slow_figures_the_worst_is_shown() -> None:
    one = HistoryReport(EVERY_MS, [5, 6], {"sums.c": [1, 2], "worst.lag": [9.0, 1.0]})
    other = HistoryReport(EVERY_MS, [6, 8], {"sums.c": [10, 20], "worst.lag": [3.5, None], "closes.1006": [0.5, 0.25]})
    merged = ClusterHistory([one, other])
    for report in (one, other):
        merged.add(report)
    assert merged.shown() == {
        "every_ms": EVERY_MS,
        "at": [55_000, 65_000, 85_000],
        "columns": {
            "sums.c": [1, 12, 20],
            "worst.lag": [9.0, 3.5, None],
            "closes.1006": [None, 0.5, 0.25],
        },
    }


def test_tenants_with_a_history_are_bounded_and_one_that_is_gone_for_an_hour_frees_its_place() -> None:
    places = TenantPlaces()
    many = {f"tenant-{number}": 1 for number in range(MOST_TENANTS + 5)}
    first = places.update(at(0), many)
    assert first == [*many][:MOST_TENANTS]
    assert places.update(at(POINTS - 1), {"late": 1, "tenant-0": 1, "tenant-1": 0}) == first  # all places are taken
    assert places.update(at(POINTS + 1), {"late": 1, "tenant-0": 0}) == ["tenant-0", "late"]


def test_points_are_taken_in_the_middle_of_a_period() -> None:
    for now_ms in (NOW, NOW + 1, NOW + 4_999, NOW + 5_000, NOW + 5_001, NOW + 9_999):
        delay_s = next_point_s(now_ms)
        assert 0 < delay_s <= EVERY_S
        assert (now_ms + round(delay_s * 1000)) % EVERY_MS == EVERY_MS // 2


def test_every_figure_that_the_page_plots_is_kept() -> None:
    source = (Path(greendot.__file__).parent / "web" / "admin" / "panels.js").read_text()
    plotted = set(re.findall(r'"(sums|worst|rates)\.([a-z_]+)"', source))
    assert len(plotted) > 30
    assert plotted == {(group, name) for group, names in KEPT.items() for name in names}
    assert len(plotted) < MOST_COLUMNS - 30  # room for close codes


def test_a_sample_gives_its_plotted_figures_and_its_close_codes() -> None:
    frame = {
        "sums": {"ws_connections": 3, "other": 1},
        "worst": {"store_latency_ms": 0.5},
        "rates": {},
        "closes": {"1006": 0.1},
        "nodes": [],
    }
    assert figures(frame) == {"sums.ws_connections": 3, "worst.store_latency_ms": 0.5, "closes.1006": 0.1}
