"""Catalogue of all metrics of a node: name, type and meaning.

`docs/metrics.md` is generated from it, and `/metrics` takes its help texts from it. All metrics carry the label `node`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal, NamedTuple

Type = Literal["counter", "gauge", "histogram"]
# Function that combines the values of a gauge on all nodes; "-": no function gives a meaningful total.
Combine = Literal["sum", "max", "min", "-"]


class Metric(NamedTuple):
    """Metric of the catalogue."""

    name: str
    type: Type
    help: str
    labels: tuple[str, ...] = ()  # besides `node`
    combine: Combine | None = None  # None: not a gauge


def counter(name: str, help: str, *labels: str) -> Metric:
    return Metric(name, "counter", help, labels)


def gauge(name: str, combine: Combine, help: str, *labels: str) -> Metric:
    return Metric(name, "gauge", help, labels, combine)


def histogram(name: str, help: str, *labels: str) -> Metric:
    return Metric(name, "histogram", help, labels)


_LIMITED = {
    "connection": "a connection",
    "user": "a user on all connections to this node",
    "room": "a room",
    "tenant": "a tenant",
    "key": "an API key",
}
_REASONS = {
    "seen": "not to push: the user has seen the notification in the app",
    "expired": "not to push: the notification has expired",
    "no_device": "not to push: the user has no device to push to",
    "kind_off": "not to push: pushes are off for the kind of the notification",
    "importance_low": "not to push: the notification is less important than the user wants",
    "in_the_room": "to delay a push: the user is in the room of the notification",
    "awaiting_ack": "to delay a push: the user has seen the notification, but no device has acknowledged it yet",
    "active": "to delay a push: the user is connected and active, but not in the room of the notification",
    "idle": "to delay a push: the user is connected and idle",
    "busy": "to delay a push: the user is busy",
    "quiet_hours": "to delay a push: the user has quiet hours",
    "over_the_cap": "to delay a push: the user has reached the hourly limit of pushes (per_hour)",
    "unseen": "to push now: the delay is over, and the user has not seen the notification",
    "unacknowledged": "to push now: no connected device has acknowledged the notification within about 8 minutes",
    "offline": "to push now: the user is offline",
    "presence_unknown": "to push now: the node could not read the presence of the user",
    "critical": "to push now: the notification is critical, so presence, quiet hours and the hourly limit do not apply",
}
_PROVIDERS = {"fcm": "FCM", "apns": "APNs", "webpush": "Web Push", "webhook": "the app's own push webhook"}
_OUTCOMES = {
    "sent": "Pushes accepted by {}.",
    "failed": "Push attempts that {} did not accept. The node tries again.",
    "gone": "Devices removed because {} no longer knows them.",
    "refused": "Pushes permanently refused by {}.",
    "held": "Pushes delayed because the node pauses pushes by {}: after failures, or because {} asked for a pause.",
}

SECTIONS: dict[str, tuple[Metric, ...]] = {
    "Connections": (
        gauge("ws_connections", "sum", "Open connections to this node: WebSockets and event streams."),
        counter(
            "ws_connections_total",
            "Connections that clients opened: WebSockets and event streams. The rate includes reconnects.",
        ),
        counter(
            "realtime_event_streams_total",
            "Event streams that clients opened. An event stream is a long HTTP response with events, for clients whose "
            "network blocks WebSockets.",
        ),
        counter(
            "realtime_event_posts_forwarded_total",
            "HTTP requests with commands of a client whose event stream is on another node. This node forwarded the "
            "commands to the other node over the bus.",
        ),
        gauge(
            "ws_sessions",
            "sum",
            "Sessions on this node. A session whose connection was lost counts until its grace is over.",
        ),
        gauge(
            "ws_users_online",
            "-",
            "Users with a session on this node. A user with devices on two nodes counts on both nodes. For the number "
            "of users on all nodes, use sum(presence_users_online).",
        ),
        histogram(
            "ws_sessions_per_user",
            "Number of sessions of each online user on this node, counted anew for each scrape. So do not use rate().",
        ),
        counter(
            "ws_closed_total",
            "Connections that ended, by close code (docs/protocol.md). Code 1006: the end came without a close frame.",
            "code",
        ),
        counter("realtime_sessions_resumed_total", "Sessions that a client continued on a new connection."),
        histogram(
            "realtime_hello_seconds",
            "Time from hello to welcome, including the wait for admission. The time ends when the node writes the "
            "welcome and the frames that the client has missed.",
        ),
        histogram(
            "realtime_recovery_seconds",
            "The same time as realtime_hello_seconds, but only for clients that want to continue a session. Both "
            "histograms count these clients.",
        ),
        gauge("realtime_hellos_waiting", "sum", "Hellos that wait for admission."),
        counter(
            "realtime_hellos_refused_total",
            "Hellos that were not admitted. Either the queue was full, or the hello waited for 10 s, or the node "
            "refused new work. The node closes the connection with code 4003 and names a time for the next attempt. "
            "Not counted: clients that the node admitted and closed later with 4003, because Redis, the store or the "
            "token keys were unavailable, or because of a limit of connections.",
        ),
        counter(
            "realtime_upgrades_refused_total",
            "WebSocket requests that the node refused with status 503: too many connections had not sent a hello yet.",
        ),
        counter(
            "realtime_refused_origin_total",
            "WebSocket requests that the node refused because of the origin of the page (door.origins).",
        ),
        counter("realtime_refused_host_total", "Requests refused because of their Host header (door.hosts)."),
        counter(
            "realtime_refused_address_total",
            "Sockets refused because the client's IP address already has too many sockets (door.connections_per_ip).",
        ),
        counter(
            "realtime_refused_descriptors_total",
            "Sockets refused because all file descriptors for clients were in use (limit of open files).",
        ),
        counter(
            "dashboard_refused_total",
            "Refused sockets of the dashboard: no valid hello in time, a wrong key, no store, or too many sockets.",
        ),
        counter("realtime_refused_malformed_total", "Refused requests that violate the rules of HTTP or WebSocket."),
        counter(
            "realtime_refused_headers_total",
            "Requests refused with status 431 because their headers exceed 16 KiB or 128 fields.",
        ),
        counter(
            "realtime_refused_slow_total",
            "Sockets closed with status 408 because a request was not complete after 10 s. While a large body arrives, "
            "the 10 s start again if at least 256 KiB came in the last 10 s.",
        ),
        counter(
            "realtime_refused_pipelined_total",
            "Sockets closed because the client sent further HTTP requests while 8 of its requests had no response yet.",
        ),
        counter(
            "realtime_refused_unread_total",
            "Sockets closed: the client read less than 16 KiB of HTTP responses in 10 s.",
        ),
    ),
    "Delivery": (
        counter("realtime_commands_total", "Commands received from clients."),
        counter("realtime_commands_refused_total", "Commands of clients that this node refused."),
        counter(
            "realtime_socket_send_total",
            "Writes to sockets. All frames for a socket within one turn of the event loop are one write.",
        ),
        counter("realtime_socket_send_failed_total", "Failed writes to sockets: the connection was broken."),
        gauge(
            "realtime_fanout_multiplier",
            "max",
            "Average number of writes to sockets for each message from the bus, in the last full period of 15 s. 0: no "
            "message came in this period.",
        ),
        gauge("realtime_send_backlog", "sum", "Writes to sockets that wait until the event loop has time."),
        gauge(
            "realtime_outbox_connections",
            "sum",
            "Connections with frames in their send buffer, because their clients read slowly.",
        ),
        gauge("realtime_outbox_frames", "sum", "Frames in the send buffers of slow clients."),
        gauge(
            "realtime_outbox_bytes",
            "sum",
            "Bytes in the send buffers of slow clients. Each client has at most 1 MiB of records and 1 MiB of signals. "
            "When a client returns, its missed records can exceed this limit, up to about 8 MiB.",
        ),
        counter("realtime_client_slow_total", "Times at which the send buffer of a client became half full."),
        counter("realtime_client_slow_closed_total", "Connections closed with code 4001: the send buffer was full."),
        counter(
            "realtime_dropped_ephemeral_total",
            "Signals dropped because too many signals waited for a client or in a room. realtime_dropped_total "
            "contains the same drops, by type and reason.",
        ),
        counter(
            "realtime_shed_total",
            "Low-priority signals, such as typing, that this node dropped because it was overloaded. Also counts "
            "commands for such signals that the node ignored. realtime_dropped_total contains only the signals.",
        ),
        counter(
            "realtime_dropped_total",
            "All signals dropped, by type and reason. Reason slow: the client reads too slowly. Reason crowded: the "
            "room produces signals faster than this node can write them. Reason shed: this node is overloaded. This "
            "total contains the signals in realtime_dropped_ephemeral_total and in realtime_shed_total: do not add the "
            "three metrics.",
            "type",
            "reason",
        ),
        counter(
            "realtime_coalesced_total",
            "Signals that a newer signal replaced before they were written, by type. Clients miss only intermediate "
            "states, such as an earlier state of the same user. Counted for slow clients, and for rooms with more "
            "subscribers than one turn of the event loop can write to.",
            "type",
        ),
    ),
    "Bus": (
        counter("realtime_pubsub_published_total", "Messages that this node published, to any topic."),
        counter("realtime_pubsub_received_total", "Messages that this node received, including its own."),
        counter(
            "realtime_pubsub_invalid_total",
            "Messages that this node rejected: a message had no valid signature, or could not be decoded. The keys of "
            "the signatures are derived from auth.secret.",
        ),
        counter(
            "realtime_pubsub_gaps_total",
            "Interruptions of this node's subscriptions: the node lost a connection to Redis, or a part of a Redis "
            "Cluster moved to another server. The node may have missed messages. So it reads the state of its "
            "subscriptions again.",
        ),
        counter(
            "realtime_pubsub_unrouted_total",
            "Messages to users that were dropped because a queue was full. For each message, the node asks Redis which "
            "nodes have sessions of the user. In this queue, at most 10,000 messages wait for the answers.",
        ),
        gauge(
            "realtime_bus_lag_ms",
            "max",
            "Travel time of this node's last beat through the slowest Redis server, in milliseconds. A beat is a "
            "message that the node sends to itself once a second.",
        ),
        histogram(
            "realtime_bus_lag_seconds",
            "Time from the publication of a message on any node to its arrival on this node. Measured for one message "
            "in 64, and for each beat of this node (a message to itself, once a second). The nodes use the time of "
            "Redis, so different clocks of the nodes have no effect. The error is at most one round trip to Redis.",
        ),
    ),
    "The node": (
        gauge(
            "realtime_overload_level",
            "max",
            "Overload level of this node. 0: normal. 1: the node drops low-priority signals, such as typing. 2: the "
            "node also refuses new work.",
        ),
        counter("realtime_overload_refused_total", "Commands and requests refused because this node was overloaded."),
        gauge("realtime_loop_lag_ms", "max", "Delay of the event loop at the last measurement, in milliseconds."),
        gauge(
            "realtime_loop_lag_worst_ms",
            "max",
            "Longest delay of the event loop within the last 15 to 30 seconds, in milliseconds.",
        ),
        histogram("realtime_loop_lag_seconds", "Delay of the event loop, measured 20 times a second."),
        gauge(
            "greendot_info",
            "sum",
            "Always 1. The label has the version of Greendot, so sum by (version) is the number of nodes per version.",
            "version",
        ),
        gauge("process_start_time_seconds", "max", "Start time of the process, in Unix time."),
        counter("process_cpu_seconds_total", "CPU time used by the process."),
        gauge("process_resident_memory_bytes", "sum", "Resident memory of the process."),
        gauge("process_open_fds", "max", "Open file descriptors of the process. Each socket uses one."),
        gauge("process_max_fds", "min", "Limit of open file descriptors of the process."),
    ),
    "Presence": (
        gauge(
            "presence_users_online",
            "sum",
            "This node's part of the number of users online. Exactly one node counts each user, whichever nodes the "
            "user is connected to. With Redis, the number is up to two minutes old, and estimated above 2,000 users in "
            "a partition (see redis_presence_sessions).",
        ),
        gauge(
            "redis_presence_sessions",
            "sum",
            "This node's part of the number of sessions in Redis: the sessions of the users in presence_users_online. "
            "Greendot divides all users into 128 partitions. In a partition with more than 2,000 users, the number is "
            "estimated from a sample of 2,000 users.",
        ),
        gauge("presence_nodes_live", "max", "Number of live nodes, in the view of this node."),
        gauge(
            "presence_lease_age_s",
            "max",
            "Seconds since the last renewal of this node's lease. At node.lease_s, other nodes declare the node dead.",
        ),
        counter("presence_node_deaths_total", "Nodes that this node declared dead."),
        counter(
            "presence_reconciliation_removed_total",
            "Leftover sessions that this node removed from the engine: presence_swept_sessions_total plus "
            "presence_audited_sessions_total.",
        ),
        counter(
            "presence_swept_sessions_total", "Sessions that this node ended in a sweep, or after the death of a node."
        ),
        counter(
            "presence_swept_users_total",
            "Users who went offline because this node ended their sessions in a sweep, or after the death of a node.",
        ),
        counter(
            "presence_audited_sessions_total",
            "Sessions that the engine listed for this node, but that did not exist on the node. The node ended these "
            "sessions in the engine.",
        ),
        gauge(
            "presence_sweep_drift",
            "max",
            "Sessions that this node ended in its last sweep, because they should have ended before. 0: no such "
            "session. The value stays until the next sweep of this node.",
        ),
        gauge(
            "presence_last_sweep_timestamp_seconds",
            "max",
            "Unix time of this node's last sweep. One node sweeps for all nodes. 0: this node has not swept.",
        ),
        counter(
            "presence_restored_sessions_total",
            "Sessions that this node wrote to the engine again, after an outage of the engine or a loss of its data.",
        ),
        counter(
            "realtime_resync_total",
            "Times at which this node read the state of its subscriptions again. Reasons: an interruption "
            "(realtime_pubsub_gaps_total), a loss of data in Redis, or other nodes had declared this node dead. "
            "Without a fault, the node reads the state about once an hour.",
        ),
        histogram(
            "presence_recovery_seconds",
            "Duration of recoveries after an outage of the engine or a loss of its data. A recovery begins when the "
            "engine is reachable again. It ends when the node has restored its sessions and read its subscriptions "
            "again.",
        ),
        counter(
            "presence_spread_total",
            "Presence changes sent to watchers of celebrities. A celebrity is a user with more than "
            "presence.celebrity_watchers watchers on this node, so the node sends a change to some of the watchers at "
            "a time. A change sent to 500 watchers adds 500.",
        ),
        counter(
            "presence_info_changes_total",
            "Changes of the display name or the info (a JSON object) of a user, written by this node.",
        ),
        counter("visibility_unanswered_total", "Requests of this node to visibility webhooks that failed."),
    ),
    "Rooms and inboxes": (
        counter("room_receipts_total", "Read receipts that this node published with the user id of the reader."),
        counter(
            "room_receipt_counts_total",
            "Read receipts that this node published without user ids: in large rooms, only the number of readers.",
        ),
        counter(
            "room_receipts_hidden_total",
            "Read receipts not shown to others, because the reader was invisible or hid the last-seen time.",
        ),
        counter(
            "room_recovery_fetch_total", "Reads of a room's records from the store, for clients that missed records."
        ),
        counter("room_reactions_total", "Reactions to messages, set (`react`) or removed (`unreact`).", "op"),
        counter(
            "room_moderations_total",
            "Changes that the app requested from this node: edited and deleted messages, archived and deleted rooms, "
            "slow mode, mutes and bans.",
        ),
        counter(
            "before_publish_changed_total",
            "Messages that the app changed before their publication (before_publish webhook).",
        ),
        counter(
            "before_publish_rejected_total",
            "Messages that the app refused before their publication (before_publish webhook).",
        ),
        counter(
            "before_publish_failures_total",
            "Messages for which the before_publish webhook gave no answer. The setting `before_publish.on_failure` "
            "decided whether the node published them.",
        ),
        counter("inbox_notified_total", "Notifications written to the store."),
        counter(
            "notification_live_push_total",
            "Notifications sent to connected devices. A notification to two devices of a user adds 2.",
        ),
        counter(
            "notification_recovery_fetch_total",
            "Reads of an inbox from the store, for clients that return and name the last notification they received.",
        ),
        counter(
            "inbox_gaps_total",
            "Reads of an inbox from the store, because this node has missed notifications on the bus.",
        ),
        counter("inbox_badges_total", "Badges sent to clients."),
        counter("inbox_redelivered_total", "Notifications sent again because no device had acknowledged them."),
        counter(
            "inbox_unacknowledged_total",
            "Notifications that no device acknowledged, although this node sent them again 10 times.",
        ),
        counter(
            "inbox_pruned_total",
            "Inboxes from which the job `retention` removed old notifications. An inbox counts once for each "
            "transaction that changed it.",
        ),
    ),
    "Limits": (
        *(
            counter(
                f"realtime_rate_limited_{scope}_total",
                f"Commands and requests that exceeded the rate limit of {whose} (settings limits.*).",
            )
            for scope, whose in _LIMITED.items()
        ),
        counter(
            "realtime_reading_paused_total",
            "Pauses of at most 1 s in which the node did not read from a connection that had exceeded its rate limit.",
        ),
        counter(
            "realtime_flood_closed_total",
            "Connections closed because of a flood of frames. The close code is 4003, or 4502 before hello.",
        ),
    ),
    "Engine and store": (
        gauge(
            "realtime_engine_up",
            "min",
            "1 while this node reaches the engine, else 0. With several Redis servers, one reachable server is enough.",
        ),
        gauge("redis_servers", "max", "Redis primaries that this node uses: 1, or all primaries of a cluster."),
        gauge("redis_servers_up", "min", "Redis primaries that this node is connected to."),
        gauge(
            "redis_command_latency_us",
            "max",
            "Last measured value of redis_command_seconds, on the slowest Redis server, in microseconds.",
        ),
        histogram(
            "redis_command_seconds",
            "Round trips to Redis: from the write of a batch of commands to the answer to its last command. A batch "
            "has all commands of one turn of the event loop. On each connection the node measures one batch at a time.",
        ),
        counter("redis_reconnects_total", "Connections to Redis that this node opened again after a loss."),
        gauge("store_up", "min", "1 if the store answered within a second when `/metrics` was requested, else 0."),
        gauge(
            "store_latency_ms",
            "max",
            "Time that the store took to answer when `/metrics` was requested, in milliseconds. Absent if the store "
            "did not answer within a second.",
        ),
    ),
    "Push": (
        gauge("push_queue_waiting", "max", "Pushes in the queue, which all nodes share."),
        gauge("push_queue_due", "max", "Pushes in the shared queue that are due now."),
        gauge("push_queue_oldest_s", "max", "Seconds for which the oldest push in the shared queue has been due."),
        gauge("push_dead_letters", "max", "Pushes of all nodes that were given up."),
        counter("push_given_up_total", "Pushes given up by this node."),
        gauge(
            "push_lookups", "sum", "Host names of browser push services that this node is resolving, each in a thread."
        ),
        counter(
            "push_lookups_failed_total",
            "Host names of browser push services that could not be resolved: no address, or no answer in time.",
        ),
        counter(
            "push_lookups_refused_total",
            "Host names of browser push services not resolved, because slow name servers occupied all threads.",
        ),
        *(counter(f"push_decided_{reason}_total", f"Decisions {what}.") for reason, what in _REASONS.items()),
        *(
            counter(f"push_{provider}_{outcome}_total", text.format(name, name))
            for provider, name in _PROVIDERS.items()
            for outcome, text in _OUTCOMES.items()
        ),
    ),
    "Webhooks": (
        gauge(
            "webhooks_queues",
            "sum",
            "Webhook queues that this node processes. Each tenant has one queue. Exactly one node processes a queue.",
        ),
        gauge(
            "webhooks_queue_waiting",
            "sum",
            "Records that wait in this node's webhook queues, counted up to 10,000 in each queue.",
        ),
        gauge(
            "webhooks_queue_oldest_s",
            "max",
            "Seconds since the creation of the oldest record in this node's webhook queues.",
        ),
        gauge(
            "webhooks_dead_letters",
            "sum",
            "Records in this node's webhook queues that were given up, counted up to 10,000 in each queue.",
        ),
        counter("webhooks_requests_total", "Webhook requests sent to apps."),
        counter("webhooks_failures_total", "Webhook requests that failed."),
        counter("webhooks_events_total", "Events accepted by apps."),
        counter("webhooks_dropped_total", "Signals dropped because the app did not accept them in time."),
        counter("webhooks_dead_total", "Records given up because the app did not accept them in time."),
    ),
    "Outbox": (
        gauge("outbox_relay_up", "min", "1 while this node can read the table of the app outbox, else 0."),
        gauge(
            "outbox_shards",
            "sum",
            "Shards (parts) of the app outbox that this node processes. Exactly one node processes a shard.",
        ),
        gauge(
            "outbox_queue_waiting",
            "sum",
            "Rows that wait in this node's shards of the app outbox, counted up to 100,000. The metric is absent while "
            "counting takes too long.",
        ),
        gauge(
            "outbox_queue_oldest_s",
            "max",
            "Seconds since the oldest waiting row in this node's shards of the app outbox was written.",
        ),
        counter("outbox_relayed_total", "Rows of the app outbox that were sent or had expired."),
        counter("outbox_set_aside_total", "Rows of the app outbox that were set aside because they cannot be sent."),
        counter("outbox_expired_total", "Rows of the app outbox that expired before they were sent."),
    ),
    "Jobs": (
        gauge(
            "jobs_overdue_s",
            "min",
            "Seconds for which the most overdue job has been due without a run, in the view of this node. On a "
            "node that cannot read the store, the value keeps growing. So the lowest value of all nodes is correct.",
        ),
        gauge("jobs_failing", "max", "Jobs whose last run failed, on any node."),
        counter("jobs_ok_total", "Job runs on this node that succeeded."),
        counter("jobs_failed_total", "Job runs on this node that failed."),
        counter(
            "jobs_stopped_total",
            "Job runs on this node that ended early because the node stopped. Another node continues the jobs.",
        ),
        counter("jobs_lost_total", "Job runs on this node that another process took over."),
    ),
    "Tenants": (
        gauge("tenant_connections", "sum", "Connections of the tenant to this node.", "tenant"),
        gauge(
            "tenant_users_online",
            "-",
            "Users of the tenant with a session on this node. A user with devices on two nodes counts on both nodes.",
            "tenant",
        ),
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


CATALOGUE: dict[str, Metric] = {metric.name: metric for metrics in SECTIONS.values() for metric in metrics}
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
        f"| `{it.name}` | {', '.join(filter(None, (it.type, it.combine)))} "
        f"| {', '.join(f'`{label}`' for label in it.labels)} | {it.help} |"
        for it in metrics
    ]
    return [f"## {title}", "", "| metric | type | labels besides `node` | meaning |", "|---|---|---|---|", *rows, ""]


if __name__ == "__main__":  # python -m greendot.telemetry.metrics_catalogue docs/metrics.md
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(renewed(path.read_text()))
