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
    "user": "a user (all connections of the user to this node)",
    "room": "a room",
    "tenant": "a tenant",
    "key": "an API key",
}
_REASONS = {
    "seen": "not to push: the notification was seen in the app",
    "expired": "not to push: the notification has expired",
    "no_device": "not to push: the user has no device to push to",
    "kind_off": "not to push: the kind of the notification is not pushed",
    "importance_low": "not to push: the notification is less important than the user wants",
    "in_the_room": "to delay a push: the user is in the room of the notification",
    "awaiting_ack": "to delay a push: the notification was seen, and is redelivered until it is acknowledged",
    "active": "to delay a push: the user is connected and active, but not in the room of the notification",
    "idle": "to delay a push: the user is connected and idle",
    "busy": "to delay a push: the user is busy",
    "quiet_hours": "to delay a push: the user has quiet hours",
    "over_the_cap": "to delay a push: the user has reached the hourly limit (per_hour)",
    "unseen": "to push now: the delay is over, and the notification is still unseen",
    "unacknowledged": "to push now: redelivery ended without an acknowledgement",
    "offline": "to push now: the user is offline",
    "presence_unknown": "to push now: the presence of the user could not be read",
    "critical": "to push now: the notification is critical and bypasses presence, busy, quiet hours and the limit",
}
_PROVIDERS = {"fcm": "FCM", "apns": "APNs", "webpush": "Web Push", "webhook": "the app's own push webhook"}
_OUTCOMES = {
    "sent": "Pushes accepted by {}.",
    "failed": "Push attempts that {} did not accept; they are retried.",
    "gone": "Devices removed because {} no longer knows them.",
    "refused": "Pushes permanently refused by {}.",
    "held": "Pushes delayed because {} is paused after failures or asked to slow down.",
}

SECTIONS: dict[str, tuple[Metric, ...]] = {
    "Connections": (
        gauge("ws_connections", "Open WebSocket connections on this node."),
        counter("ws_connections_total", "WebSocket connections opened. The rate includes reconnects."),
        counter(
            "realtime_event_streams_total",
            "Event streams opened by clients whose network blocks WebSockets. They are counted as WebSocket "
            "connections, too.",
        ),
        counter(
            "realtime_event_posts_forwarded_total",
            "Requests with commands for an event stream of another node, which were forwarded over the bus.",
        ),
        gauge("ws_sessions", "Sessions on this node, including sessions that linger after their connection was lost."),
        gauge(
            "ws_users_online",
            "Users with a session on this node. A user with devices on two nodes is counted on both. For the "
            "number of users on all nodes, sum presence_users_online.",
        ),
        histogram(
            "ws_sessions_per_user",
            "Sessions of each online user on this node at the time of the scrape. This is a snapshot: read it "
            "without rate().",
        ),
        counter(
            "ws_closed_total",
            "WebSocket connections that ended, by close code (docs/protocol.md); 1006: lost without a close frame.",
            "code",
        ),
        counter("realtime_sessions_resumed_total", "Sessions resumed on a new connection."),
        histogram(
            "realtime_hello_seconds", "Time from a client's hello to its welcome, including the wait for admission."
        ),
        histogram(
            "realtime_recovery_seconds",
            "Time from hello to welcome for clients that return to a session, including delivery of the frames "
            "they missed.",
        ),
        gauge("realtime_hellos_waiting", "Hellos that wait for admission."),
        counter(
            "realtime_hellos_refused_total",
            "Hellos that were not admitted: the queue was full, the hello waited for 10 s, or the node refused new "
            "work. The client gets a time to return (close code 4003). Hellos refused with 4003 after their admission "
            "are not counted.",
        ),
        counter(
            "realtime_upgrades_refused_total",
            "WebSocket upgrades refused with 503 because too many connections had not sent hello yet.",
        ),
        counter("realtime_refused_origin_total", "WebSocket upgrades refused because of their origin (door.origins)."),
        counter("realtime_refused_host_total", "Requests refused because of their Host header (door.hosts)."),
        counter(
            "realtime_refused_address_total",
            "Sockets refused because their IP address already has too many sockets (door.connections_per_ip).",
        ),
        counter(
            "realtime_refused_descriptors_total",
            "Sockets refused because the file descriptors for clients were in use (limit of open files).",
        ),
        counter(
            "dashboard_refused_total",
            "Dashboard sockets refused: no valid hello in time, a wrong key, or too many sockets.",
        ),
        counter("realtime_refused_malformed_total", "Requests refused because they violate HTTP or WebSocket."),
        counter(
            "realtime_refused_headers_total",
            "Requests refused because their headers exceed 16 KiB or 128 fields (431).",
        ),
        counter(
            "realtime_refused_slow_total",
            "Sockets closed because a request was not complete after 10 s (408). While a large body arrives, the 10 s "
            "start again if at least 256 KiB came in the last 10 s.",
        ),
        counter("realtime_refused_pipelined_total", "Sockets closed because more than 8 requests were unanswered."),
        counter(
            "realtime_refused_unread_total", "Sockets closed because the client did not read HTTP responses for 10 s."
        ),
    ),
    "Delivery": (
        counter("realtime_commands_total", "Commands received from clients."),
        counter("realtime_commands_refused_total", "Commands of clients that were refused."),
        counter(
            "realtime_socket_send_total",
            "Writes to sockets. All frames for a socket within one turn of the event loop are one write.",
        ),
        counter(
            "realtime_socket_send_failed_total", "Writes to sockets that failed because the connection was broken."
        ),
        gauge(
            "realtime_fanout_multiplier",
            "Writes to sockets for each message received from the bus, over the last 15 seconds; 0 if no message "
            "was received.",
        ),
        gauge("realtime_send_backlog", "Writes to sockets that wait because the node had no time for them yet."),
        gauge(
            "realtime_outbox_connections",
            "Connections with frames in their send buffer, because their clients read slowly.",
        ),
        gauge("realtime_outbox_frames", "Frames in the send buffers of slow clients."),
        gauge(
            "realtime_outbox_bytes",
            "Bytes in the send buffers of slow clients: for each client at most 1 MiB of records and 1 MiB of signals. "
            "Missed records of a returning client can exceed this limit, up to about 8 MiB.",
        ),
        counter("realtime_client_slow_total", "Times the send buffer of a client became half full."),
        counter(
            "realtime_client_slow_closed_total",
            "Connections closed because their send buffer was full (close code 4001).",
        ),
        counter(
            "realtime_dropped_ephemeral_total",
            "Signals dropped because too many waited for a client or in a room. realtime_dropped_total counts the same "
            "drops by type and reason.",
        ),
        counter(
            "realtime_shed_total",
            "Signals and low-priority commands dropped because this node was overloaded. realtime_dropped_total counts "
            "the same signals by type, but no commands.",
        ),
        counter(
            "realtime_dropped_total",
            "Signals dropped, by type and reason: slow (the client does not keep up), crowded (the room produces "
            "signals faster than this node can write them), shed (this node is overloaded). slow and crowded together "
            "are realtime_dropped_ephemeral_total. realtime_shed_total counts the drops with the reason shed, plus "
            "dropped commands. This metric is the total of dropped signals: do not add the other two to it.",
            "type",
            "reason",
        ),
        counter(
            "realtime_coalesced_total",
            "Signals replaced by a newer signal of the same key before they were written, by type. Only "
            "intermediate states are lost. Counted for slow clients, and for rooms with more subscribers than one turn "
            "of the event loop can write to.",
            "type",
        ),
    ),
    "Bus": (
        counter("realtime_pubsub_published_total", "Messages that this node published, to any topic."),
        counter("realtime_pubsub_received_total", "Messages that this node received, including its own."),
        counter(
            "realtime_pubsub_invalid_total",
            "Messages rejected because they were not signed with auth.secret or could not be decoded.",
        ),
        counter(
            "realtime_pubsub_gaps_total",
            "Times the node may have missed messages. The node then reads the state of its subscriptions again.",
        ),
        counter(
            "realtime_pubsub_unrouted_total",
            "Messages to a user that were dropped because a queue was full. The queue holds at most 10,000 "
            "messages until Redis has returned the nodes of their users.",
        ),
        gauge(
            "realtime_bus_lag_ms",
            "Time from publishing to receiving this node's last beat (a message to itself, once a second), on the "
            "slowest Redis server, in milliseconds.",
        ),
        histogram(
            "realtime_bus_lag_seconds",
            "Time from publishing a message on any node to receiving it on this node. Measured for one message in 64, "
            "and for this node's beat (a message to itself, once a second). The error from clock differences between "
            "nodes is at most a round trip to Redis.",
        ),
    ),
    "The node": (
        gauge("realtime_overload_level", "Overload level: 0 normal, 1 signals are shed, 2 new work is refused."),
        counter("realtime_overload_refused_total", "Commands and requests refused because this node was overloaded."),
        gauge("realtime_loop_lag_ms", "Delay of the event loop at the last measurement, in milliseconds."),
        gauge(
            "realtime_loop_lag_worst_ms",
            "Longest delay of the event loop within the last 15 to 30 seconds, in milliseconds.",
        ),
        histogram("realtime_loop_lag_seconds", "Delay of the event loop, measured 20 times a second."),
        gauge("greendot_info", "Always 1; the label has the version.", "version"),
        gauge("process_start_time_seconds", "Start time of the process, in Unix time."),
        counter("process_cpu_seconds_total", "CPU time used by the process."),
        gauge("process_resident_memory_bytes", "Resident memory of the process."),
        gauge("process_open_fds", "Open file descriptors of the process; each socket uses one."),
        gauge("process_max_fds", "Limit of open file descriptors of the process."),
    ),
    "Presence": (
        gauge(
            "presence_users_online",
            "Users with a session on any node, in the partitions that this node counts. Exactly one node counts each "
            "partition, so the sum of all nodes' values is the number of users online. With Redis the number is up to "
            "two minutes old, and estimated like redis_presence_sessions.",
        ),
        gauge(
            "redis_presence_sessions",
            "Sessions that Redis lists for the users in presence_users_online. For the number of all sessions, add "
            "the values of all nodes. The number is exact for partitions with up to 2,000 users. Larger partitions "
            "are estimated from a sample of 2,000 users. There are 128 partitions.",
        ),
        gauge("presence_nodes_live", "Live nodes, as seen by this node."),
        gauge(
            "presence_lease_age_s",
            "Seconds since this node renewed its lease. When this reaches node.lease_s, other nodes declare this node "
            "dead.",
        ),
        counter("presence_node_deaths_total", "Nodes that this node declared dead."),
        counter(
            "presence_reconciliation_removed_total",
            "Leftover sessions that nodes removed from the engine: presence_swept_sessions_total plus "
            "presence_audited_sessions_total.",
        ),
        counter("presence_swept_sessions_total", "Sessions ended by a sweep, or because their node died."),
        counter(
            "presence_swept_users_total",
            "Users who went offline because a sweep or the death of a node ended their sessions.",
        ),
        counter(
            "presence_audited_sessions_total",
            "Sessions ended because the engine listed them for this node and the node did not have them.",
        ),
        gauge(
            "presence_sweep_drift",
            "Sessions that the last sweep of this node ended, because their regular end had been missed. 0: the sweep "
            "found no such session.",
        ),
        gauge(
            "presence_last_sweep_timestamp_seconds",
            "Time of this node's last sweep, in Unix time (0: none yet). One node sweeps for all nodes: use max.",
        ),
        counter(
            "presence_restored_sessions_total", "Sessions restored in the engine after an outage or a loss of its data."
        ),
        counter("realtime_resync_total", "Times the node read the state of its subscriptions again."),
        histogram(
            "presence_recovery_seconds",
            "Time from the return of the engine until this node had restored its sessions and read the state of its "
            "subscriptions again.",
        ),
        counter(
            "presence_spread_total",
            "Changes of celebrities sent in slices (to some of the watchers at a time). Each change adds 1 for each "
            "watcher.",
        ),
        counter("presence_info_changes_total", "Changes of names and info of users, written by this node."),
        counter("visibility_unanswered_total", "Requests to visibility webhooks that failed."),
    ),
    "Rooms and inboxes": (
        counter("room_receipts_total", "Read receipts that this node published, by name."),
        counter("room_receipt_counts_total", "Counts of readers that this node published, for large rooms."),
        counter(
            "room_receipts_hidden_total",
            "Read markers that moved in a room with read receipts and were not shown to others, because the reader was "
            "invisible or hid the last-seen time.",
        ),
        counter("room_recovery_fetch_total", "Reads of a room's records for clients that missed some."),
        counter(
            "room_reactions_total", "Reactions that were set (`react`) or removed (`unreact`), by operation.", "op"
        ),
        counter(
            "room_moderations_total",
            "Changes by the app in requests to this node: edited and deleted messages, archived and deleted rooms, "
            "slow mode, mutes and bans.",
        ),
        counter("before_publish_changed_total", "Messages that the app changed before they were published."),
        counter("before_publish_rejected_total", "Messages that the app refused before they were published."),
        counter(
            "before_publish_failures_total",
            "Messages about which the app did not answer. The setting `before_publish.on_failure` decided.",
        ),
        counter("inbox_notified_total", "Notifications written to the store."),
        counter(
            "notification_live_push_total",
            "Notifications sent to connected devices of their user, counted for each device.",
        ),
        counter(
            "notification_recovery_fetch_total",
            "Reads of an inbox for returning clients that name the last notification they received.",
        ),
        counter("inbox_gaps_total", "Reads of an inbox for notifications that were missed on the bus."),
        counter("inbox_badges_total", "Badges sent."),
        counter("inbox_redelivered_total", "Notifications sent again because they were not acknowledged."),
        counter(
            "inbox_unacknowledged_total",
            "Notifications that were still not acknowledged after the last redelivery.",
        ),
        counter("inbox_pruned_total", "Inboxes from which old notifications were removed."),
    ),
    "Limits": (
        *(
            counter(
                f"realtime_rate_limited_{scope}_total",
                f"Commands and requests refused by the rate limit of {whose} (settings: limits).",
            )
            for scope, whose in _LIMITED.items()
        ),
        counter(
            "realtime_reading_paused_total",
            "Times the node stopped reading from a connection for at most 1 s, because the connection exceeded its "
            "rate limit.",
        ),
        counter(
            "realtime_flood_closed_total",
            "Connections closed because they flooded the node with frames: close code 4003, or 4502 before hello.",
        ),
    ),
    "Engine and store": (
        gauge(
            "realtime_engine_up", "1 while the engine is reachable (of several Redis servers, at least one), else 0."
        ),
        gauge("redis_servers", "Redis primaries that this node uses: one, or all of the cluster."),
        gauge("redis_servers_up", "Redis primaries that this node is connected to."),
        gauge(
            "redis_command_latency_us",
            "Round trip of the commands that were measured last, on the slowest Redis server, in microseconds.",
        ),
        histogram(
            "redis_command_seconds",
            "Round trips of commands to Redis. On each connection the node measures one write at a time. Writes that "
            "begin before the answer to the measured write are not measured.",
        ),
        counter("redis_reconnects_total", "Connections to Redis that were opened again after a loss."),
        gauge("store_up", "1 if the store answered within a second when this page was requested, else 0."),
        gauge("store_latency_ms", "Time the store took to answer when this page was requested, in milliseconds."),
    ),
    "Push": (
        gauge("push_queue_waiting", "Pushes in the queue. The same on all nodes: use max, not sum."),
        gauge("push_queue_due", "Pushes in the queue that are due. The same on all nodes: use max."),
        gauge(
            "push_queue_oldest_s",
            "Seconds for which the oldest push in the queue has been due. The same on all nodes: use max.",
        ),
        gauge("push_dead_letters", "Pushes that were given up and can be replayed. The same on all nodes: use max."),
        counter("push_given_up_total", "Pushes given up by this node."),
        gauge("push_lookups", "Host names of browser push services that are being resolved, each in a thread."),
        counter(
            "push_lookups_failed_total",
            "Host names of browser push services that could not be resolved: no address, or no answer in time.",
        ),
        counter(
            "push_lookups_refused_total",
            "Host names of browser push services that were not resolved because slow name servers occupied all "
            "threads.",
        ),
        *(counter(f"push_decided_{reason}_total", f"Decisions {what}.") for reason, what in _REASONS.items()),
        *(
            counter(f"push_{provider}_{outcome}_total", text.format(name))
            for provider, name in _PROVIDERS.items()
            for outcome, text in _OUTCOMES.items()
        ),
    ),
    "Webhooks": (
        gauge(
            "webhooks_queues",
            "Webhook queues (one for each tenant) that this node processes. No two nodes process the same queue.",
        ),
        gauge(
            "webhooks_queue_waiting", "Records that wait in this node's webhook queues, counted up to 10,000 in each."
        ),
        gauge("webhooks_queue_oldest_s", "Seconds since the oldest record in this node's webhook queues was created."),
        gauge(
            "webhooks_dead_letters",
            "Records in this node's webhook queues that were given up and can be replayed, counted up to 10,000 in "
            "each.",
        ),
        counter("webhooks_requests_total", "Webhook requests sent to apps."),
        counter("webhooks_failures_total", "Webhook requests that failed."),
        counter("webhooks_events_total", "Events accepted by apps."),
        counter("webhooks_dropped_total", "Signals dropped because the app did not accept them in time."),
        counter("webhooks_dead_total", "Records given up because the app did not accept them in time."),
    ),
    "Outbox": (
        gauge("outbox_relay_up", "1 while the app outbox table can be read, else 0."),
        gauge("outbox_shards", "Shards of the app outbox that this node relays."),
        gauge(
            "outbox_queue_waiting",
            "Rows that wait in this node's shards of the app outbox, counted up to 100,000; absent while counting "
            "takes too long.",
        ),
        gauge(
            "outbox_queue_oldest_s",
            "Seconds since the oldest waiting row in this node's shards of the app outbox was written.",
        ),
        counter("outbox_relayed_total", "Rows of the app outbox that were sent or had expired."),
        counter("outbox_set_aside_total", "Rows of the app outbox that were set aside because they cannot be sent."),
        counter("outbox_expired_total", "Rows of the app outbox that expired before they were sent."),
    ),
    "Jobs": (
        gauge("jobs_overdue_s", "Seconds for which the most overdue job has been due without a run."),
        gauge("jobs_failing", "Jobs whose last run failed. The same on all nodes: use max."),
        counter("jobs_ok_total", "Job runs on this node that succeeded."),
        counter("jobs_failed_total", "Job runs on this node that failed."),
        counter(
            "jobs_stopped_total",
            "Job runs on this node that stopped because the node stopped; another node continues them.",
        ),
        counter("jobs_lost_total", "Job runs on this node that another process took over."),
    ),
    "Tenants": (
        gauge("tenant_connections", "Connections of the tenant to this node.", "tenant"),
        gauge("tenant_users_online", "Users of the tenant with a session on this node.", "tenant"),
        counter(
            "tenant_sends_total", "Messages, notifications and signals of the tenant that were accepted.", "tenant"
        ),
        counter(
            "tenant_refused_total",
            "Refused commands of the tenant's clients, and sends of its app that exceeded a rate limit.",
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
