"""Counters of a node, as plain integers: adding one costs next to nothing, and `/metrics` reads them all.

Durations are kept in histograms (`telemetry.metrics_model`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

from greendot.telemetry.metrics_model import Histogram

Why = Literal["slow", "crowded", "shed"]  # reasons why a signal was dropped
WHYS: tuple[Why, ...] = get_args(Why)
_TYPE = b'"type":"'
_LONGEST = 40
_TYPE_WITHIN = 24  # bytes: a frame's header, then the type, which is the first field of its envelope


class Metrics:
    """Counters of one node, by their Prometheus names."""

    _COUNTERS = (
        "dashboard_refused_total",
        "inbox_badges_total",
        "inbox_gaps_total",
        "inbox_notified_total",
        "inbox_pruned_total",
        "inbox_redelivered_total",
        "inbox_unacknowledged_total",
        "notification_live_push_total",
        "notification_recovery_fetch_total",
        "presence_info_changes_total",
        "presence_spread_total",
        "realtime_client_slow_closed_total",
        "realtime_client_slow_total",
        "realtime_commands_refused_total",
        "realtime_commands_total",
        "realtime_dropped_ephemeral_total",
        "realtime_event_posts_forwarded_total",
        "realtime_event_streams_total",
        "realtime_flood_closed_total",
        "realtime_hellos_refused_total",
        "realtime_overload_refused_total",
        "realtime_pubsub_received_total",
        "realtime_rate_limited_connection_total",
        "realtime_rate_limited_key_total",
        "realtime_rate_limited_room_total",
        "realtime_rate_limited_tenant_total",
        "realtime_rate_limited_user_total",
        "realtime_reading_paused_total",
        "realtime_refused_address_total",
        "realtime_refused_descriptors_total",
        "realtime_refused_headers_total",
        "realtime_refused_host_total",
        "realtime_refused_malformed_total",
        "realtime_refused_origin_total",
        "realtime_refused_pipelined_total",
        "realtime_refused_slow_total",
        "realtime_refused_unread_total",
        "realtime_shed_total",
        "realtime_socket_send_failed_total",
        "realtime_socket_send_total",
        "realtime_upgrades_refused_total",
        "before_publish_changed_total",
        "before_publish_failures_total",
        "before_publish_rejected_total",
        "room_moderations_total",
        "room_receipt_counts_total",
        "room_receipts_hidden_total",
        "room_receipts_total",
        "ws_connections_total",
    )
    __slots__ = (*_COUNTERS, "coalesced", "dropped", "hello", "loop_lag", "presence_recovery", "recovery")

    dashboard_refused_total: int
    inbox_badges_total: int
    inbox_gaps_total: int
    inbox_notified_total: int
    inbox_pruned_total: int
    inbox_redelivered_total: int
    inbox_unacknowledged_total: int
    notification_live_push_total: int
    notification_recovery_fetch_total: int
    presence_info_changes_total: int
    presence_spread_total: int
    realtime_client_slow_closed_total: int
    realtime_client_slow_total: int
    realtime_commands_refused_total: int
    realtime_commands_total: int
    realtime_dropped_ephemeral_total: int
    realtime_event_posts_forwarded_total: int
    realtime_event_streams_total: int
    realtime_flood_closed_total: int
    realtime_hellos_refused_total: int
    realtime_overload_refused_total: int
    realtime_pubsub_received_total: int
    realtime_rate_limited_connection_total: int
    realtime_rate_limited_key_total: int
    realtime_rate_limited_room_total: int
    realtime_rate_limited_tenant_total: int
    realtime_rate_limited_user_total: int
    realtime_reading_paused_total: int
    realtime_refused_address_total: int
    realtime_refused_descriptors_total: int
    realtime_refused_headers_total: int
    realtime_refused_host_total: int
    realtime_refused_malformed_total: int
    realtime_refused_origin_total: int
    realtime_refused_pipelined_total: int
    realtime_refused_slow_total: int
    realtime_refused_unread_total: int
    realtime_shed_total: int
    realtime_socket_send_failed_total: int
    realtime_socket_send_total: int
    realtime_upgrades_refused_total: int
    before_publish_changed_total: int
    before_publish_failures_total: int
    before_publish_rejected_total: int
    room_moderations_total: int
    room_receipt_counts_total: int
    room_receipts_hidden_total: int
    room_receipts_total: int
    ws_connections_total: int

    def __init__(self) -> None:
        for name in self._COUNTERS:
            setattr(self, name, 0)
        self.dropped: dict[tuple[str, Why], int] = {}  # dropped signals, by type and reason
        self.coalesced: dict[str, int] = {}  # coalesced signals, by type
        self.hello = Histogram()
        self.recovery = Histogram()
        self.presence_recovery = Histogram((0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0))
        self.loop_lag = Histogram()

    def drop(self, frame: bytes, why: Why) -> None:
        """Count a signal that is dropped for the reason `why`."""
        if why == "shed":
            self.realtime_shed_total += 1
        else:
            self.realtime_dropped_ephemeral_total += 1
        key = type_of(frame), why
        self.dropped[key] = self.dropped.get(key, 0) + 1

    def coalesce(self, frame: bytes) -> None:
        """Count a signal that a newer one of the same key replaced before it was written."""
        kind = type_of(frame)
        self.coalesced[kind] = self.coalesced.get(kind, 0) + 1

    def items(self) -> Iterator[tuple[str, int]]:
        for name in self._COUNTERS:
            yield name, getattr(self, name)

    def histograms(self) -> Iterator[tuple[str, Histogram]]:
        yield "realtime_hello_seconds", self.hello
        yield "realtime_recovery_seconds", self.recovery
        yield "presence_recovery_seconds", self.presence_recovery
        yield "realtime_loop_lag_seconds", self.loop_lag


def type_of(frame: bytes) -> str:
    """Return the type of an event frame from this node or another one: only as many as the protocol has."""
    at = frame.find(_TYPE, 0, _TYPE_WITHIN)
    if at < 0:
        return "pong" if frame.startswith(b"\x8a") else "foreign"  # frames that are no events of ours
    at += len(_TYPE)
    return frame[at : at + _LONGEST].partition(b'"')[0].decode()
