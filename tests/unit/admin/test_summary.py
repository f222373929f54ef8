"""Dashboard summary of several nodes."""

from __future__ import annotations

from typing import Any

from greendot.admin.summary import KEPT_MS, SHOWN_DEAD_MS, ClusterSummary, View, busiest
from greendot.engine.results import NodeInfo
from greendot.protocol.cluster import HotTopic, Sample, SlowClient

NOW = 1_800_000_000_000


def sample(at_ms: int, sends: int, connections: int, lag: float = 1.0, **more: Any) -> Sample:
    gauges = {"ws_connections": connections, "realtime_loop_lag_ms": lag}
    return Sample(at_ms, gauges, {"realtime_socket_send_total": sends}, **more)


def live(*names: str) -> list[NodeInfo]:
    return [NodeInfo(name, "live", NOW - 2_000, None) for name in names]


def test_counts_are_added_up_rates_too_and_the_slowest_is_shown() -> None:
    gathering = ClusterSummary(View(nodes=True))
    first = gathering.frame(live("a", "b"), {"a": sample(0, 10, 3), "b": sample(50_000, 1_000, 4)}, NOW)
    assert first["sums"] == {"ws_connections": 7}
    assert first["rates"] == {}
    now = {"a": sample(1_000, 30, 3), "b": sample(52_000, 1_100, 5, lag=40.0)}
    frame = gathering.frame(live("a", "b"), now, NOW + 1_000)
    assert frame["rates"] == {"realtime_socket_send_total": 20 + 50}
    assert frame["worst"] == {"realtime_loop_lag_ms": 40.0}
    assert [(row["node"], row["renewed_ago_ms"], row["answered"]) for row in frame["nodes"]] == [
        ("a", 3_000, True),
        ("b", 3_000, True),
    ]


def test_a_node_that_does_not_answer_is_shown_as_it_was_for_a_while() -> None:
    gathering = ClusterSummary(View(nodes=True))
    gathering.frame(live("a", "b"), {"a": sample(0, 0, 3), "b": sample(0, 0, 4)}, NOW)
    frame = gathering.frame(live("a", "b"), {"a": sample(1_000, 0, 3)}, NOW + 1_000)
    assert frame["sums"] == {"ws_connections": 7}
    assert [row["answered"] for row in frame["nodes"]] == [True, False]
    frame = gathering.frame(live("a", "b"), {"a": sample(2_000, 0, 3)}, NOW + KEPT_MS + 1)
    assert frame["sums"] == {"ws_connections": 3}
    assert "gauges" not in frame["nodes"][1]


def test_a_node_that_ended_is_shown_for_a_while_and_counts_for_nothing() -> None:
    gathering = ClusterSummary(View(nodes=True))
    gathering.frame(live("a", "b"), {"a": sample(0, 0, 3), "b": sample(0, 0, 4)}, NOW)
    infos = [*live("a"), NodeInfo("b", "dead", NOW, NOW + 30_000)]
    frame = gathering.frame(infos, {"a": sample(1_000, 0, 3)}, NOW + 1_000)
    assert frame["sums"] == {"ws_connections": 3}
    assert [(row["node"], row["state"]) for row in frame["nodes"]] == [("a", "live"), ("b", "dead")]
    frame = gathering.frame(infos, {"a": sample(2_000, 0, 3)}, NOW + 30_001 + SHOWN_DEAD_MS)
    assert [row["node"] for row in frame["nodes"]] == ["a"]


def test_a_close_code_that_is_seen_first_has_a_rate_at_once() -> None:
    gathering = ClusterSummary(View(nodes=True))
    gathering.frame(live("a"), {"a": sample(0, 0, 0)}, NOW)
    frame = gathering.frame(live("a"), {"a": sample(2_000, 0, 0, closes={"4001": 4})}, NOW + 2_000)
    assert frame["closes"] == {"4001": 2.0}


def test_who_sees_a_tenant_sees_no_nodes() -> None:
    frame = ClusterSummary(View(nodes=False, tenant="acme")).frame(live("a"), {"a": sample(0, 0, 0)}, NOW)
    assert "nodes" not in frame


def test_what_is_busy_on_several_nodes_is_added_up_and_the_most_is_first() -> None:
    den, hall = HotTopic("room", "acme", "den", 3, 40.0), HotTopic("room", "acme", "hall", 9, 60.0)
    slow = SlowClient("a-1", "acme", "ann", "tv", 500)
    samples = {
        "a": sample(0, 0, 1, hot=[den, hall], slow=[slow]),
        "b": sample(0, 0, 1, hot=[den], slow=[SlowClient("b-1", "acme", "bob", "tv", 900)]),
    }
    found = busiest(samples, 2)
    assert [(it["name"], it["listeners"], it["per_s"]) for it in found["hot"]] == [("den", 6, 80.0), ("hall", 9, 60.0)]
    assert [(it["node"], it["user"], it["waiting"]) for it in found["slow"]] == [("b", "bob", 900), ("a", "ann", 500)]
    assert [len(it) for it in busiest(samples, 1).values()] == [1, 1]
