"""What is counted. Plain integers: adding one costs nothing worth measuring, and `/metrics` reads them all."""

from __future__ import annotations

from collections.abc import Iterator


class Metrics:
    """The counters of one node, by their Prometheus names."""

    __slots__ = (
        "inbox_badges_total",
        "inbox_gaps_total",
        "inbox_notified_total",
        "inbox_pruned_total",
        "inbox_redelivered_total",
        "inbox_unacknowledged_total",
        "notification_recovery_fetch_total",
        "presence_spread_total",
        "realtime_client_slow_closed_total",
        "realtime_client_slow_total",
        "realtime_commands_refused_total",
        "realtime_commands_total",
        "realtime_dropped_ephemeral_total",
        "realtime_hellos_refused_total",
        "realtime_overload_refused_total",
        "realtime_pubsub_received_total",
        "realtime_rate_limited_connection_total",
        "realtime_rate_limited_key_total",
        "realtime_rate_limited_room_total",
        "realtime_rate_limited_tenant_total",
        "realtime_rate_limited_user_total",
        "realtime_refused_address_total",
        "realtime_refused_host_total",
        "realtime_refused_origin_total",
        "realtime_shed_total",
        "realtime_socket_send_failed_total",
        "realtime_socket_send_total",
        "realtime_upgrades_refused_total",
        "ws_connections_total",
    )

    inbox_badges_total: int
    inbox_gaps_total: int
    inbox_notified_total: int
    inbox_pruned_total: int
    inbox_redelivered_total: int
    inbox_unacknowledged_total: int
    notification_recovery_fetch_total: int
    presence_spread_total: int
    realtime_client_slow_closed_total: int
    realtime_client_slow_total: int
    realtime_commands_refused_total: int
    realtime_commands_total: int
    realtime_dropped_ephemeral_total: int
    realtime_hellos_refused_total: int
    realtime_overload_refused_total: int
    realtime_pubsub_received_total: int
    realtime_rate_limited_connection_total: int
    realtime_rate_limited_key_total: int
    realtime_rate_limited_room_total: int
    realtime_rate_limited_tenant_total: int
    realtime_rate_limited_user_total: int
    realtime_refused_address_total: int
    realtime_refused_host_total: int
    realtime_refused_origin_total: int
    realtime_shed_total: int
    realtime_socket_send_failed_total: int
    realtime_socket_send_total: int
    realtime_upgrades_refused_total: int
    ws_connections_total: int

    def __init__(self) -> None:
        for name in self.__slots__:
            setattr(self, name, 0)

    def items(self) -> Iterator[tuple[str, int]]:
        for name in self.__slots__:
            yield name, getattr(self, name)
