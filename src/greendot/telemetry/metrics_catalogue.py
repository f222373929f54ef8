"""Catalogue of all metrics of a node: name, type and meaning.

`docs/metrics.md` is generated from it, and `/metrics` takes its help texts from it. All metrics carry the label `node`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

Type = Literal["counter", "gauge", "histogram"]


class Metric(NamedTuple):
    """Metric of the catalogue."""

    name: str
    type: Type
    help: str
    labels: tuple[str, ...] = ()  # besides `node`


def counter(name: str, help: str, *labels: str) -> Metric:
    return Metric(name, "counter", help, labels)


def gauge(name: str, help: str, *labels: str) -> Metric:
    return Metric(name, "gauge", help, labels)


def histogram(name: str, help: str, *labels: str) -> Metric:
    return Metric(name, "histogram", help, labels)


_LIMITED = {
    "connection": "a connection",
    "user": "a user, over all of the user's connections to the node",
    "room": "a room",
    "tenant": "a tenant",
    "key": "an API key",
}
_REASONS = {
    "seen": "never: it was seen in the app",
    "expired": "never: it has expired",
    "no_device": "never: the user has no device to push to",
    "kind_off": "never: its kind is not pushed",
    "importance_low": "never: the user wants more important ones only",
    "in_the_room": "held: the user is in the room it is about",
    "awaiting_ack": "held: it was seen, and is still sent again until it is acknowledged",
    "active": "held: the user is active elsewhere",
    "idle": "held: the user is connected and idle",
    "busy": "held: the user is busy",
    "quiet_hours": "held: these are the user's quiet hours",
    "over_the_cap": "held: the user had as many as an hour may bring",
    "unseen": "now: it was held and stayed unseen",
    "unacknowledged": "now: it was sent again often enough and nobody acknowledged it",
    "offline": "now: the user is away",
    "presence_unknown": "now: nobody could say whether the user is there",
    "critical": "now: it is critical and passes everything",
}
_PROVIDERS = {"fcm": "FCM", "apns": "APNs", "webpush": "Web Push", "webhook": "the app's own push webhook"}
_OUTCOMES = {
    "sent": "Pushes {} took.",
    "failed": "Attempts {} did not take, to be tried again.",
    "gone": "Devices {} knows no more; they were removed.",
    "refused": "Pushes {} refused for good.",
    "held": "Pushes that waited because {} rests after failures or asked to slow down.",
}

SECTIONS: dict[str, tuple[Metric, ...]] = {
    "Connections": (
        gauge("ws_connections", "Sockets that are open on this node."),
        counter(
            "ws_connections_total", "Sockets that were opened. Its rate is that of connects and reconnects together."
        ),
        gauge("ws_sessions", "Sessions this node holds, those that linger after a lost socket included."),
        gauge(
            "ws_users_online",
            "Users with a session on this node. Whoever has devices on two nodes is counted on both, so adding it up "
            "over nodes counts too many: add up presence_users_online instead.",
        ),
        histogram(
            "ws_sessions_per_user",
            "How many sessions each of those users has on this node, as it is now: a picture, not a count, to be read "
            "without rate().",
        ),
        counter(
            "ws_closed_total",
            "Sockets that ended, by close code (docs/protocol.md); 1006: lost without a word.",
            "code",
        ),
        counter(
            "realtime_sessions_resumed_total", "Sessions that were gone on with on another connection: reconnects."
        ),
        histogram("realtime_hello_seconds", "From a client's hello to its welcome, the wait to be let in included."),
        histogram(
            "realtime_recovery_seconds",
            "The same for clients that return to a session: until all they missed is handed over.",
        ),
        gauge("realtime_hellos_waiting", "Hellos that wait to be let in."),
        counter("realtime_hellos_refused_total", "Hellos sent away with a word when to return (close code 4003)."),
        counter("realtime_upgrades_refused_total", "Sockets refused with 503 because too many had not said hello yet."),
        counter("realtime_refused_origin_total", "Sockets refused because of the page they came from (door.origins)."),
        counter("realtime_refused_host_total", "Requests refused because of the host they named (door.hosts)."),
        counter(
            "realtime_refused_address_total",
            "Sockets refused because their address has too many (door.connections_per_ip).",
        ),
        counter(
            "dashboard_refused_total",
            "Sockets of the dashboard the server refused: no valid hello in time, a wrong key, or too many.",
        ),
        counter("realtime_refused_malformed_total", "Requests refused because HTTP or WebSocket does not allow them."),
        counter(
            "realtime_refused_headers_total",
            "Requests refused because their headers exceed 16 KiB or 128 fields (431).",
        ),
        counter(
            "realtime_refused_slow_total",
            "Sockets closed because a request, or 256 KiB more of its body, took more than 10 s (408).",
        ),
        counter("realtime_refused_pipelined_total", "Sockets closed because more than 8 requests were unanswered."),
        counter("realtime_refused_unread_total", "Sockets closed because HTTP responses were not read for 10 s."),
    ),
    "Delivery": (
        counter("realtime_commands_total", "Commands of clients."),
        counter("realtime_commands_refused_total", "Commands of clients that were answered with an error."),
        counter(
            "realtime_socket_send_total",
            "Writes to sockets. What is said to one socket within a turn of the loop is one write.",
        ),
        counter("realtime_socket_send_failed_total", "Writes that failed because the socket was broken."),
        gauge(
            "realtime_fanout_multiplier",
            "Writes to sockets for each message heard from the bus, over the last 15 seconds; 0 while none was heard.",
        ),
        gauge("realtime_send_backlog", "Writes that wait because there was no time for them."),
        gauge("realtime_outbox_connections", "Clients that do not keep up: frames wait for them here."),
        gauge("realtime_outbox_frames", "Frames that wait for clients that do not keep up."),
        gauge("realtime_outbox_bytes", "Bytes of those frames. For one client at most 2 MiB wait."),
        counter("realtime_client_slow_total", "Times half of what may wait for a client was used."),
        counter(
            "realtime_client_slow_closed_total",
            "Clients closed because more would have waited than may (close code 4001).",
        ),
        counter(
            "realtime_dropped_ephemeral_total",
            "Signals that were dropped because a client or a room had too many waiting.",
        ),
        counter(
            "realtime_shed_total",
            "Signals that were dropped, and commands that were refused, because this node was overloaded.",
        ),
        counter(
            "realtime_dropped_total",
            "Signals that were dropped, by type and by why: slow (a client does not keep up), crowded (a room has more "
            "than can be written), shed (this node is overloaded).",
            "type",
            "reason",
        ),
        counter(
            "realtime_coalesced_total",
            "Signals that a newer one of the same key replaced before they were written, by type: nothing is lost but "
            "the state in between. Of one client that does not keep up, or of a room that is written in slices.",
            "type",
        ),
    ),
    "Bus": (
        counter("realtime_pubsub_published_total", "Messages this node published, wherever they went."),
        counter("realtime_pubsub_received_total", "Messages this node heard, its own included."),
        counter(
            "realtime_pubsub_invalid_total", "Messages that were not ours: not signed with our secret, or not readable."
        ),
        counter(
            "realtime_pubsub_gaps_total", "Times something may have been missed; what is followed is then read again."
        ),
        counter(
            "realtime_pubsub_unrouted_total",
            "Messages to users that were dropped because too many waited to be routed.",
        ),
        gauge(
            "realtime_bus_lag_ms",
            "How long the last beat took from being published to being heard, on the slowest server.",
        ),
        histogram(
            "realtime_bus_lag_seconds",
            "From being published, by any node, to being heard here: of one message in sixty-four, and of this node's "
            "beat once a second. The clocks of nodes are compared as well as a round trip to Redis allows.",
        ),
    ),
    "The node": (
        gauge("realtime_overload_level", "0 normal, 1 signals are shed, 2 new work is refused."),
        counter("realtime_overload_refused_total", "Commands and requests refused because of overload."),
        gauge("realtime_loop_lag_ms", "How late the event loop was when it was last looked at."),
        gauge("realtime_loop_lag_worst_ms", "How late it was at worst within the last 15 to 30 seconds."),
        histogram("realtime_loop_lag_seconds", "How late the event loop is, looked at twenty times a second."),
        gauge("greendot_info", "Always 1; the version is its label.", "version"),
        gauge("process_start_time_seconds", "When the process started, in Unix time."),
        counter("process_cpu_seconds_total", "Processor time the process has used."),
        gauge("process_resident_memory_bytes", "Memory the process has in use."),
        gauge("process_open_fds", "File descriptors the process has open; every socket is one."),
        gauge("process_max_fds", "How many it may have open."),
    ),
    "Presence": (
        gauge(
            "presence_users_online",
            "Users with sessions anywhere, as the engine has them, of the share of all users this node counts. Each "
            "user is in one share: the sum over nodes is the number of users online. With Redis up to two minutes old.",
        ),
        gauge(
            "redis_presence_sessions",
            "The sessions of those users: the size of the presence index, to be added up over nodes likewise. Exact up "
            "to 2,000 users in each of 128 partitions; beyond, told from about as many.",
        ),
        gauge("presence_nodes_live", "Nodes that live, as this one sees it."),
        gauge(
            "presence_lease_age_s",
            "Seconds since this node renewed its lease. At node.lease_s the others take it for dead.",
        ),
        counter("presence_node_deaths_total", "Other nodes this one found dead."),
        counter(
            "presence_reconciliation_removed_total",
            "Sessions that were in the index and should not have been, removed.",
        ),
        counter("presence_swept_sessions_total", "Sessions ended by a sweep, or because their node had died."),
        counter("presence_swept_users_total", "Users who went offline by that."),
        counter("presence_audited_sessions_total", "Sessions the engine had of this node that it did not hold."),
        gauge(
            "presence_sweep_drift",
            "Sessions the last sweep of this node found that should have been gone: 0 while all is told as it should.",
        ),
        gauge(
            "presence_last_sweep_timestamp_seconds",
            "When this node last swept, in Unix time; 0: not yet. One node does it for all: use max.",
        ),
        counter(
            "presence_restored_sessions_total", "Sessions told to the engine again after it was away or had forgotten."
        ),
        counter("realtime_resync_total", "Times all that is followed was read again."),
        histogram(
            "presence_recovery_seconds", "From the engine's return to the moment everything was restored and compared."
        ),
        counter("presence_spread_total", "Watchers of celebrities that were told in slices."),
        counter("visibility_unanswered_total", "Times the app was asked who may see whom and did not answer."),
    ),
    "Rooms and inboxes": (
        counter("room_recovery_fetch_total", "Reads of a room's records for clients that missed some."),
        counter("inbox_notified_total", "Notifications that were written."),
        counter(
            "notification_live_push_total", "Notifications sent to the connected devices of their user, by device."
        ),
        counter(
            "notification_recovery_fetch_total",
            "Reads of an inbox for clients that return and name what they last saw.",
        ),
        counter("inbox_gaps_total", "Reads of what an inbox missed on the bus."),
        counter("inbox_badges_total", "Badges sent."),
        counter(
            "inbox_redelivered_total", "Notifications that were to be acknowledged, were not, and were sent again."
        ),
        counter(
            "inbox_unacknowledged_total",
            "Notifications that the node stopped sending again: nobody had acknowledged them after the last time.",
        ),
        counter("inbox_pruned_total", "Inboxes from which old notifications were removed."),
    ),
    "Limits": (
        *(
            counter(f"realtime_rate_limited_{scope}_total", f"Refused because {whose} did too much (limits).")
            for scope, whose in _LIMITED.items()
        ),
        counter(
            "realtime_reading_paused_total", "Times a connection over its limit was not read for a while (at most 1 s)."
        ),
        counter(
            "realtime_flood_closed_total",
            "Connections closed for a flood of frames: close code 4003, and 4502 before hello.",
        ),
    ),
    "Engine and store": (
        gauge("realtime_engine_up", "1 while the engine can be reached, at least in part; 0 while it is away."),
        gauge("redis_servers", "Primaries this node is to be connected to: one, or those of the cluster."),
        gauge("redis_servers_up", "Those of them it is connected to."),
        gauge(
            "redis_command_latency_us",
            "Round trip of the last commands that were timed, on the slowest server, in microseconds.",
        ),
        histogram(
            "redis_command_seconds",
            "Round trips of commands to Redis; one write at a time is timed on each connection.",
        ),
        counter("redis_reconnects_total", "Connections to Redis that were made again after they were lost."),
        gauge("store_up", "1 if the store answered when this page was asked for, within a second."),
        gauge("store_latency_ms", "How long it took."),
    ),
    "Push": (
        gauge("push_queue_waiting", "Pushes in the queue, the same on all nodes: use max, not sum."),
        gauge("push_queue_due", "Those of them that should be on their way; the same on all nodes."),
        gauge("push_queue_oldest_s", "Seconds the oldest of these has been due; the same on all nodes."),
        gauge("push_dead_letters", "Pushes that were given up and can be replayed; the same on all nodes."),
        counter("push_given_up_total", "Pushes given up by this node."),
        gauge("push_lookups", "Host names of browsers' push services that are being looked up, each in a thread."),
        counter("push_lookups_failed_total", "Such look-ups without an address, or without an answer in time."),
        counter("push_lookups_refused_total", "Such look-ups that got no turn: silent name servers held all threads."),
        *(counter(f"push_decided_{reason}_total", f"Pushes decided, {what}.") for reason, what in _REASONS.items()),
        *(
            counter(f"push_{provider}_{outcome}_total", text.format(name))
            for provider, name in _PROVIDERS.items()
            for outcome, text in _OUTCOMES.items()
        ),
    ),
    "Webhooks": (
        gauge("webhooks_queues", "Queues (tenants) this node works on; each is worked on by one node."),
        gauge("webhooks_queue_waiting", "Records in these queues, counted up to 10,000 of each."),
        gauge("webhooks_queue_oldest_s", "Seconds since the first of these happened."),
        gauge(
            "webhooks_dead_letters",
            "Records in these queues that were given up and can be replayed, counted up to 10,000 of each.",
        ),
        counter("webhooks_requests_total", "Requests to apps."),
        counter("webhooks_failures_total", "Requests that failed."),
        counter("webhooks_events_total", "Events that apps took."),
        counter("webhooks_dropped_total", "Signals that no app took in time."),
        counter("webhooks_dead_total", "Records that no app took in time."),
    ),
    "Outbox": (
        gauge("outbox_relay_up", "1 while the app's outbox table can be read."),
        gauge("outbox_shards", "Shards of the outbox this node relays."),
        gauge(
            "outbox_queue_waiting",
            "Rows in these shards that wait, counted up to 100,000; not there while counting takes too long.",
        ),
        gauge("outbox_queue_oldest_s", "Seconds since the first of them was written, of all shards the longest."),
        counter("outbox_relayed_total", "Rows that were sent."),
        counter("outbox_set_aside_total", "Rows that cannot be sent and were set aside."),
        counter("outbox_expired_total", "Rows that had expired before they were sent."),
    ),
    "Jobs": (
        gauge("jobs_overdue_s", "Seconds the job that is latest has been due without anybody running it."),
        gauge("jobs_failing", "Jobs whose last run failed; the same on all nodes."),
        counter("jobs_ok_total", "Runs on this node that succeeded."),
        counter("jobs_failed_total", "Runs on this node that failed."),
        counter(
            "jobs_stopped_total", "Runs on this node that were stopped because it ended; another goes on with them."
        ),
        counter("jobs_lost_total", "Runs on this node that another had taken over."),
    ),
    "Tenants": (
        gauge("tenant_connections", "Connections of the tenant.", "tenant"),
        gauge("tenant_users_online", "Users of the tenant with a session on this node.", "tenant"),
        counter(
            "tenant_sends_total", "Messages, notifications and signals of the tenant that were let through.", "tenant"
        ),
        counter(
            "tenant_refused_total",
            "Commands of the tenant's clients that were refused, and what its app sent too much.",
            "tenant",
        ),
    ),
}


def _all() -> Iterator[tuple[str, Metric]]:
    for metrics in SECTIONS.values():
        for metric in metrics:
            yield metric.name, metric


CATALOGUE: dict[str, Metric] = dict(_all())


BEGIN, END = "<!-- made of src/greendot/telemetry/metrics_catalogue.py -->", "<!-- end -->"


def tables() -> str:
    """Return the Markdown tables, one for each section."""
    return "\n".join(line for title, metrics in SECTIONS.items() for line in _table(title, metrics))


def renewed(page: str) -> str:
    """Return the page with its tables generated again."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{tables()}{END}{rest.partition(END)[2]}"


def _table(title: str, metrics: tuple[Metric, ...]) -> list[str]:
    rows = [
        f"| `{it.name}` | {it.type} | {', '.join(f'`{label}`' for label in it.labels)} | {it.help} |" for it in metrics
    ]
    return [f"## {title}", "", "| metric | type | labels beside `node` | meaning |", "|---|---|---|---|", *rows, ""]


if __name__ == "__main__":  # python -m greendot.telemetry.metrics_catalogue docs/metrics.md
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(renewed(path.read_text()))
