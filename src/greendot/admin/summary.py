"""Summary of all nodes' samples: sums, rates, and the worst of the slow figures.

Figures have the names they have in `/metrics`, so that they can be found there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from heapq import nlargest
from typing import Any, NamedTuple

from msgspec import to_builtins

from greendot.admin.history_model import KEPT
from greendot.engine.results import NodeInfo
from greendot.protocol.cluster import Sample
from greendot.telemetry.metrics_model import Reading, rates, summed, worst

# Gauges of which the worst node's value is shown, or the value that all nodes share. All other gauges are summed.
WORST = KEPT["worst"] | frozenset(
    {
        "realtime_overload_level",
        "realtime_fanout_multiplier",
        "presence_nodes_live",
        "redis_servers",
        "redis_servers_up",
        "presence_lease_age_s",
        "presence_last_sweep_timestamp_seconds",
        "webhooks_queue_oldest_s",
        "outbox_queue_oldest_s",
        "jobs_overdue_s",
        "jobs_failing",
    }
)
SHOWN_DEAD_MS = 600_000  # time that an ended node stays in the list
KEPT_MS = 10_000  # time that the last sample of a silent node is used


class View(NamedTuple):
    """Scope of a summary: all nodes, or one tenant on all of them."""

    nodes: bool
    tenant: str = ""


class _Kept(NamedTuple):
    """Last sample of a node, with its rates."""

    sample: Sample
    rates: dict[str, float]
    closes: dict[str, float]
    at_ms: int


class ClusterSummary:
    """Summary of one view, with the last sample of each node."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._kept: dict[str, _Kept] = {}

    def frame(self, infos: Sequence[NodeInfo], samples: Mapping[str, Sample], now_ms: int) -> dict[str, Any]:
        """Return the frame to show. `samples` are those of the nodes that answered now."""
        for node, sample in samples.items():
            before = self._kept.get(node)
            self._kept[node] = _kept(None if before is None else before.sample, sample, now_ms)
        live = {info.node for info in infos if info.state == "live"} | samples.keys()
        for node in [node for node, it in self._kept.items() if node not in live or now_ms - it.at_ms > KEPT_MS]:
            del self._kept[node]
        kept = self._kept.values()
        gauges = [it.sample.gauges for it in kept]
        shown: dict[str, Any] = {
            "sums": _rounded(summed(_without(of, WORST) for of in gauges)),
            "worst": _rounded(worst(_only(of, WORST) for of in gauges)),
            "rates": _rounded(summed(it.rates for it in kept)),
            "closes": _rounded(summed(it.closes for it in kept)),
        }
        if self._view.nodes:
            shown["nodes"] = self._rows(infos, samples, now_ms)
        return shown

    def _rows(self, infos: Sequence[NodeInfo], samples: Mapping[str, Sample], now_ms: int) -> list[dict[str, Any]]:
        known = {info.node: info for info in infos if not _is_long_dead(info, now_ms)}
        rows = []
        for node in sorted({*known, *samples}):
            info, kept = known.get(node), self._kept.get(node)
            row: dict[str, Any] = {
                "node": node,
                "state": "live" if info is None else info.state,
                "level": kept.sample.level if kept else info.level if info else "normal",
                "renewed_ago_ms": _ago(None if info is None else info.renewed_at, now_ms),
                "ends_at": None if info is None else info.ends_at,
                "answered": node in samples,
            }
            if kept is not None:
                row |= {
                    "started_at": kept.sample.started_at,
                    "gauges": kept.sample.gauges,
                    "rates": _rounded(_only(kept.rates, _OF_A_NODE)),
                }
            rows.append(row)
        return rows


def busiest(samples: Mapping[str, Sample], most: int) -> dict[str, Any]:
    """Return the topics with the most writes on all nodes together, and the clients with the most waiting bytes."""
    hot: dict[tuple[str, str, str], dict[str, Any]] = {}
    for sample in samples.values():
        for it in sample.hot:
            key = it.kind, it.tenant, it.name
            row = hot.setdefault(
                key, {"kind": it.kind, "tenant": it.tenant, "name": it.name, "listeners": 0, "per_s": 0}
            )
            row["listeners"] += it.listeners
            row["per_s"] = round(row["per_s"] + it.per_s, 1)
    slow = [to_builtins(it) | {"node": node} for node, sample in samples.items() for it in sample.slow]
    return {
        "hot": nlargest(most, hot.values(), key=lambda row: row["per_s"]),
        "slow": nlargest(most, slow, key=lambda row: row["waiting"]),
    }


_OF_A_NODE = frozenset({"realtime_socket_send_total", "realtime_pubsub_received_total", "realtime_commands_total"})


def _kept(before: Sample | None, now: Sample, now_ms: int) -> _Kept:
    earlier = None if before is None else Reading(before.at_ms, before.counts)
    # A new close code was at 0 before.
    closes = None if before is None else Reading(before.at_ms, dict.fromkeys(now.closes, 0) | before.closes)
    return _Kept(
        now,
        rates(earlier, Reading(now.at_ms, now.counts)),
        rates(closes, Reading(now.at_ms, now.closes)),
        now_ms,
    )


def _is_long_dead(info: NodeInfo, now_ms: int) -> bool:
    return info.state == "dead" and info.ends_at is not None and now_ms - info.ends_at > SHOWN_DEAD_MS


def _ago(at: int | None, now_ms: int) -> int | None:
    return None if at is None else max(0, now_ms - at)


def _only(values: Mapping[str, float], names: Collection[str]) -> dict[str, float]:
    return {name: value for name, value in values.items() if name in names}


def _without(values: Mapping[str, float], names: Collection[str]) -> dict[str, float]:
    return {name: value for name, value in values.items() if name not in names}


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 2) for name, value in values.items()}
