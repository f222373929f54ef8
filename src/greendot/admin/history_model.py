"""History of the dashboard's figures: an hour of one node in a fixed number of points, and the sum of all nodes.

Figures have the group of a sample and the name of the metric: `rates.realtime_shed_total`.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from math import isnan, nan
from typing import Any

from greendot.protocol.cluster import HistoryReport

EVERY_S = 10.0
POINTS = 360  # an hour
MOST_COLUMNS = 80  # figures of a node: at most 230 KB
MOST_TENANTS = 50  # tenants with a history of their own, of about 20 KB each
# Figures that the page plots, by their group in a sample. Closed sockets are kept by close code.
KEPT: Mapping[str, frozenset[str]] = {
    "sums": frozenset({"ws_connections", "ws_users_online", "tenant_connections", "tenant_users_online"}),
    "worst": frozenset(
        {
            "realtime_loop_lag_ms",
            "realtime_loop_lag_worst_ms",
            "realtime_bus_lag_ms",
            "redis_command_latency_us",
            "store_latency_ms",
            "push_queue_waiting",
            "push_queue_due",
            "push_queue_oldest_s",
            "push_dead_letters",
        }
    ),
    "rates": frozenset(
        {
            "realtime_socket_send_total",
            "realtime_pubsub_received_total",
            "realtime_pubsub_published_total",
            "realtime_dropped_ephemeral_total",
            "realtime_shed_total",
            "realtime_client_slow_total",
            "realtime_client_slow_closed_total",
            "ws_connections_total",
            "realtime_sessions_resumed_total",
            "realtime_hellos_refused_total",
            "room_recovery_fetch_total",
            "notification_recovery_fetch_total",
            "presence_reconciliation_removed_total",
            "presence_restored_sessions_total",
            "push_fcm_sent_total",
            "push_apns_sent_total",
            "push_webpush_sent_total",
            "push_webhook_sent_total",
            "push_given_up_total",
            "push_decided_offline_total",
            "push_decided_unseen_total",
            "push_decided_active_total",
            "push_decided_idle_total",
            "push_decided_seen_total",
            "push_decided_no_device_total",
            "tenant_sends_total",
            "tenant_refused_total",
            "tenant_resumed_total",
        }
    ),
}
_EVERY_MS = round(EVERY_S * 1000)


def next_point_s(now_ms: int) -> float:
    """Return the seconds until the middle of a period: a timer that is late must not miss its period."""
    return EVERY_S - (now_ms / 1000 - EVERY_S / 2) % EVERY_S


def figures(frame: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures of a sample that the history keeps."""
    found = {
        f"{group}.{name}": value
        for group, names in KEPT.items()
        for name, value in frame[group].items()
        if name in names
    }
    return found | {f"closes.{code}": value for code, value in frame["closes"].items()}


class NodeHistory:
    """Figures of one node, or of a tenant on it. The memory does not grow after the last new figure."""

    def __init__(self) -> None:
        self._slots = array("q")  # number of the period of each point
        self._columns: dict[str, array[float]] = {}

    def add(self, now_ms: int, values: Mapping[str, float]) -> None:
        """Add a point. A second point within the same period replaces the first."""
        if not self._slots:
            self._slots = array("q", [-1]) * POINTS
        slot = now_ms // _EVERY_MS
        at = slot % POINTS
        if self._slots[at] != slot:
            self._slots[at] = slot
            for column in self._columns.values():
                column[at] = nan
        for name, value in values.items():
            if name not in self._columns:
                if len(self._columns) >= MOST_COLUMNS:
                    continue
                self._columns[name] = array("d", [nan]) * POINTS
            self._columns[name][at] = value

    def read(self, now_ms: int) -> HistoryReport:
        """Return the points of the last hour, oldest first."""
        last = now_ms // _EVERY_MS
        slots = sorted(slot for slot in self._slots if last - POINTS < slot <= last)
        places = [slot % POINTS for slot in slots]
        return HistoryReport(
            every_ms=_EVERY_MS,
            slots=slots,
            columns={name: [_known(column[at]) for at in places] for name, column in self._columns.items()},
        )


class TenantPlaces:
    """Tenants with a history. A tenant without connections for an hour frees its place for another."""

    def __init__(self) -> None:
        self._used_at: dict[str, int] = {}  # tenant → time of its last connection

    def update(self, now_ms: int, connections: Mapping[str, int]) -> list[str]:
        """Return the tenants that have a place now. `connections` are those of each tenant."""
        for tenant in [it for it, at in self._used_at.items() if now_ms - at > POINTS * _EVERY_MS]:
            del self._used_at[tenant]
        for tenant, count in connections.items():
            if count and (tenant in self._used_at or len(self._used_at) < MOST_TENANTS):
                self._used_at[tenant] = now_ms
        return [*self._used_at]


class ClusterHistory:
    """Sum of the histories of all nodes; of slow figures, the worst node's."""

    def __init__(self, reports: Sequence[HistoryReport]) -> None:
        self._slots = sorted({slot for report in reports for slot in report.slots})
        self._places = {slot: at for at, slot in enumerate(self._slots)}
        self._columns: dict[str, list[float | None]] = {}

    def add(self, report: HistoryReport) -> None:
        """Add the points of one of the nodes."""
        places = [self._places[slot] for slot in report.slots]
        for name, values in report.columns.items():
            column = self._columns.setdefault(name, [None] * len(self._slots))
            is_worst = name.startswith("worst.")
            for at, value in zip(places, values, strict=False):
                if value is not None:
                    known = column[at]
                    joined = value if known is None else max(known, value) if is_worst else known + value
                    column[at] = round(joined, 2)

    def shown(self) -> dict[str, Any]:
        """Return the points for the page. Times are the middles of the periods, in milliseconds UTC."""
        return {
            "every_ms": _EVERY_MS,
            "at": [slot * _EVERY_MS + _EVERY_MS // 2 for slot in self._slots],
            "columns": self._columns,
        }


def _known(value: float) -> float | None:
    return None if isnan(value) else round(value, 2)
