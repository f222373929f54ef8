"""Log events of a server: name, level and sentence. docs/logs.md lists them all.

Names and levels are a contract for searches and alerts. The levels:

- ERROR: an operator must find the cause. One of these things happened:
    - a part of Greendot is broken;
    - an input is invalid, such as a certificate or a row of the app outbox;
    - Greendot gave up work until an operator acts, such as the delivery of webhook events or a push;
    - a limit of the machine keeps new clients away.
- WARNING: an operator should know about the event, and Greendot continues. The end of an outage has this level too, so
  that a log at level WARNING has both the beginning and the end. An alert that must not fire at the end of an outage
  selects events by name, such as `redis.lost` and `store.lost`, and not by level.
- INFO: normal operation. For example, `node.recovered` has the result of the recovery that follows `redis.back`.
- DEBUG: events about a single client, request or message. `work.later` has this level, too: during an outage, Greendot
  postpones some work, and the outage has its own event.

An event about a single client has a higher level if an operator should know about it, as with `connection.slow`.

Above DEBUG, the number of lines does not grow with the number of clients, because repeats are summed up. The first line
of an event is logged. Further lines within `log.repeat_s` seconds are counted, and a summary line has their number.
`apart` names fields: lines with different values in these fields are counted separately. With `every=True`, each line
is logged.
"""

from __future__ import annotations

from greendot.telemetry.log import DEBUG, ERROR, INFO, WARNING, LogEvent

# --- the node ---
NODE_STARTED = LogEvent("node.started", INFO, "node %(node)s started, Greendot %(version)s")
NODE_DRAINS = LogEvent(
    "node.drains",
    INFO,
    "draining: closing %(clients)d connections over %(within_s).1f s; their clients reconnect to other nodes",
)
NODE_DRAINED = LogEvent(
    "node.drained",
    INFO,
    "drained: %(clients)d connections closed in %(took_s).1f s; %(cut_off)d clients did not answer the close frame; "
    "%(waiting)d connections had a command without a reply",
)
NODE_STUCK = LogEvent("node.stuck", ERROR, "shutdown did not finish within %(after_s)g s; process terminated")
NODE_REBORN = LogEvent(
    "node.reborn",
    WARNING,
    "this process was declared dead, and continues with a new node id (previous id: %(was)s, new id: %(node)s)",
    every=True,
)
NODE_DEAD = LogEvent(
    "node.dead", WARNING, "node %(peer)s declared dead: lease not renewed for %(lease_s)g s", apart=("peer",)
)
NODE_FOUND_DEAD = LogEvent(
    "node.found_dead",
    WARNING,
    "node %(peer)s declared dead: its lease expired while no other node was running",
    apart=("peer",),
)
NODE_DEAD_AGAIN = LogEvent(
    "node.dead_again",
    WARNING,
    "node %(peer)s declared dead again: Redis is back, but with old data in which the node was alive",
    apart=("peer",),
)
NODE_REAPED = LogEvent(
    "node.reaped",
    INFO,
    "dead nodes removed (%(peers)s): %(sessions)d sessions ended, %(users)d users went offline",
    apart=("peers",),
)
NODE_NOT_SIGNED_OFF = LogEvent(
    "node.not_signed_off",
    WARNING,
    "this node could not sign off: %(reason)s; other nodes declare it dead when its lease expires",
)
NODE_RECOVERED = LogEvent(
    "node.recovered",
    INFO,
    "recovery finished in %(took_s).1f s; %(sessions)d sessions restored in the engine",
    every=True,
)
NODE_COLLECTED = LogEvent(
    "node.collected",
    INFO,
    "memory grew to %(before_mb)d MB without new clients or topics; a full garbage collection took %(took_s).2f s and "
    "found %(objects)d unreachable objects; %(after_mb)d MB remain in use",
    every=True,
)
NODE_STALE = LogEvent("node.stale", WARNING, "engine unreachable for %(after_s)g s; presence marked stale")
WORK_LATER = LogEvent("work.later", DEBUG, "%(work)s: %(reason)s; retrying later", apart=("work",))
WORK_FAILED = LogEvent("work.failed", ERROR, "internal error: %(work)s failed", apart=("work",))
CERTIFICATE_READ = LogEvent("certificate.read", INFO, "TLS certificate reloaded; new connections use it")
CERTIFICATE_KEPT = LogEvent(
    "certificate.kept", ERROR, "TLS certificate not reloaded: %(reason)s; the previous certificate stays in use"
)
SETTINGS_KEPT = LogEvent("settings.kept", ERROR, "settings not reloaded: %(reason)s; the previous settings stay in use")
LIBRARY_SAID = LogEvent("library.said", WARNING, "")  # a line of a library, with the library's own level and text

# --- Redis and the store ---
REDIS_CONNECTED = LogEvent("redis.connected", INFO, "redis %(server)s: connected", apart=("server",))
REDIS_LOST = LogEvent("redis.lost", WARNING, "redis %(server)s: %(reason)s; reconnecting", apart=("server",))
REDIS_BACK = LogEvent("redis.back", WARNING, "redis %(server)s: reconnected after %(away_s).1f s", apart=("server",))
REDIS_FORGOT = LogEvent("redis.forgot", WARNING, "redis %(server)s: data lost; restoring sessions", apart=("server",))
REDIS_UNUSED = LogEvent(
    "redis.unused",
    INFO,
    "redis %(server)s: none of Greendot's keys are on it any more; disconnecting",
    apart=("server",),
)
REDIS_SWEPT = LogEvent(
    "redis.swept",
    INFO,
    "sweep: %(sessions)d leftover sessions ended, %(users)d users went offline, %(nodes)d dead nodes removed",
)
REDIS_BUCKETS = LogEvent(
    "redis.buckets",
    WARNING,
    "a node of an older version has joined; this version needs a fixed number of buckets (hashes of users in Redis); "
    "all nodes now use this number; no action is needed",
)
REDIS_PASS_CUT = LogEvent(
    "redis.pass_cut", INFO, "the scan of all presence buckets (hashes in Redis) was interrupted: %(reason)s"
)
STORE_LOST = LogEvent("store.lost", WARNING, "store unreachable: %(reason)s; retrying")
STORE_BACK = LogEvent("store.back", WARNING, "store reachable again after %(away_s).1f s")

# --- clients ---
CONNECTION_ENDED = LogEvent("connection.ended", DEBUG, "connection ended: %(outcome)s %(code)s, session %(session)s")
CONNECTION_SLOW = LogEvent(
    "connection.slow", WARNING, "slow client: the send buffer of session %(session)s is half full"
)
HELLO_REFUSED = LogEvent("hello.refused", DEBUG, "hello refused: %(reason)s")
COMMAND_DONE = LogEvent("command.done", DEBUG, "command %(type)s of session %(session)s: %(outcome)s")
PAGE_REFUSED = LogEvent(
    "page.refused",
    WARNING,
    "connection from origin %(origin)r refused: the origin is neither this host nor in door.origins; if the origin is "
    "part of your app, add it to door.origins",
)
SOCKETS_EXHAUSTED = LogEvent(
    "sockets.exhausted",
    ERROR,
    "cannot accept new connections: %(reason)s; raise the limit of file descriptors or memory",
)
WATCHERS_SWITCHED = LogEvent(
    "watchers.switched", INFO, "user %(user)s (tenant %(tenant)s) has %(watchers)d watchers: %(outcome)s"
)
RECORD_WRITTEN = LogEvent("record.written", DEBUG, "message %(message)s written to %(channel)s")
RECORD_RECEIVED = LogEvent("record.received", DEBUG, "record of %(channel)s received from the bus")
OVERLOAD_BEGAN = LogEvent("overload.began", WARNING, "overload: %(reason)s; %(outcome)s", every=True)
OVERLOAD_EASED = LogEvent(
    "overload.eased",
    WARNING,
    "overload: new work is accepted again; low-priority signals, such as typing, are still dropped",
    every=True,
)
OVERLOAD_OVER = LogEvent(
    "overload.over", WARNING, "overload ended: low-priority signals, such as typing, are delivered again", every=True
)
CLIENTS_ENDED = LogEvent(
    "clients.ended",
    WARNING,
    "closing %(clients)d client connections with code %(code)d, as requested by an operator",
    every=True,
)
REVOCATION_UNSURE = LogEvent(
    "revocation.unsure", WARNING, "token of a revoked session may still be valid on some nodes: %(reason)s"
)
VISIBILITY_UNKNOWN = LogEvent(
    "visibility.unknown",
    WARNING,
    "cannot read the visibility of a user: %(reason)s; the user is hidden until a retry succeeds",
)
VISIBILITY_UNANSWERED = LogEvent(
    "visibility.unanswered",
    WARNING,
    "visibility webhook of tenant %(tenant)s failed: %(reason)s; if no recent answer of the webhook shows a user, the "
    "user is hidden",
    apart=("tenant",),
)
PUBLISH_UNANSWERED = LogEvent(
    "publish.unanswered",
    WARNING,
    "before_publish webhook of tenant %(tenant)s failed: %(reason)s; the setting before_publish.on_failure decides "
    "whether the message is published",
    apart=("tenant",),
)
RPC_UNANSWERED = LogEvent(
    "rpc.unanswered",
    WARNING,
    "the app of tenant %(tenant)s did not answer a call (centrifuge.rpc_url): %(reason)s; clients get error 100",
    apart=("tenant",),
)

# --- HTTP and operators ---
REQUEST_REFUSED = LogEvent("request.refused", DEBUG, "%(method)s %(route)s refused with status %(status)d")
DASHBOARD_OPENED = LogEvent("dashboard.opened", INFO, "dashboard opened with key %(key)s", apart=("key",))
AUDIT_ACTED = LogEvent(
    "audit.acted",
    WARNING,
    "audit: key %(key)s performed %(act)s on %(kind)s %(target)s of tenant %(tenant)s: %(outcome)s",
    every=True,
)
KEYS_AWAY = LogEvent(
    "keys.away", WARNING, "cannot load keys from auth.jwks_url: %(reason)s; retrying, known keys stay in use"
)
KEYS_BACK = LogEvent("keys.back", WARNING, "keys loaded from auth.jwks_url again")

# --- apps and providers ---
WEBHOOK_FAILED = LogEvent(
    "webhook.failed", WARNING, "webhook of tenant %(tenant)s failed: %(reason)s; retrying", apart=("tenant",)
)
WEBHOOK_TAKEN = LogEvent(
    "webhook.taken", WARNING, "webhook of tenant %(tenant)s accepts events again", apart=("tenant",)
)
WEBHOOK_STOPPED = LogEvent(
    "webhook.stopped",
    ERROR,
    "webhook of tenant %(tenant)s stopped: %(reason)s; to resume, run greendot webhooks replay --all --tenant "
    "%(tenant)s",
    apart=("tenant",),
)
WEBHOOK_DEAD_LETTER = LogEvent(
    "webhook.dead_letter",
    ERROR,
    "webhook of tenant %(tenant)s: event %(message)s given up as a dead letter: %(reason)s; fix the cause and run "
    "greendot webhooks replay --id %(message)s (greendot webhooks dead lists all dead letters)",
    apart=("tenant",),
)
PUSH_CIRCUIT_OPEN = LogEvent(
    "push.circuit_open",
    WARNING,
    "pushes by %(provider)s of tenant %(tenant)s paused: %(reason)s",
    apart=("provider", "tenant"),
)
PUSH_GOES_ON = LogEvent(
    "push.goes_on", WARNING, "pushes by %(provider)s of tenant %(tenant)s resumed", apart=("provider", "tenant")
)
PUSH_FAILED = LogEvent(
    "push.failed", ERROR, "internal error: push %(message)s of tenant %(tenant)s failed", apart=("tenant", "provider")
)
PUSH_GIVEN_UP = LogEvent(
    "push.given_up",
    ERROR,
    "push %(message)s of tenant %(tenant)s given up: %(reason)s; fix the cause and run greendot push replay --id "
    "%(message)s (greendot push dead lists all such pushes)",
    apart=("tenant",),
)
PUSH_TO_ALL = LogEvent(
    "push.to_all", WARNING, "engine did not answer in time; due notifications are pushed without checking presence"
)
PUSH_NO_TOKEN = LogEvent("push.no_token", WARNING, "cannot renew the FCM access token: %(reason)s; retrying")
OUTBOX_AWAY = LogEvent("outbox.away", WARNING, "cannot relay the app outbox: %(reason)s; retrying")
OUTBOX_OLD = LogEvent(
    "outbox.old",
    WARNING,
    "the table of the app outbox has no columns for importance, collapse key and push: %(reason)s; run greendot outbox "
    "install",
)
OUTBOX_BACK = LogEvent("outbox.back", WARNING, "app outbox is relayed again")
OUTBOX_SET_ASIDE = LogEvent(
    "outbox.set_aside",
    ERROR,
    "row %(message)s of the app outbox cannot be sent and was set aside: %(reason)s; fix the cause and run "
    "greendot outbox retry %(message)s",
    every=True,
)
OUTBOX_NOT_SENT = LogEvent("outbox.not_sent", ERROR, "internal error: row %(message)s of the app outbox was not sent")
OUTBOX_ONE_BY_ONE = LogEvent(
    "outbox.one_by_one",
    DEBUG,
    "batch of %(rows)d rows of the app outbox failed: %(reason)s; sending the rows one by one",
)

# --- jobs and processes ---
JOB_ENDED = LogEvent("job.ended", INFO, "job %(job)s: %(outcome)s after %(took_s).1f s: %(note)s", apart=("job",))
JOB_FAILED = LogEvent("job.failed", ERROR, "job %(job)s: %(outcome)s after %(took_s).1f s: %(note)s", apart=("job",))
JOB_LOST = LogEvent("job.lost", WARNING, "job %(job)s: the run was taken over by another process", apart=("job",))
JOB_GOES_ON = LogEvent("job.goes_on", INFO, "job %(job)s in progress: %(done)d items processed", apart=("job",))
WORKER_READY = LogEvent("worker.ready", INFO, "%(worker)s is ready", apart=("worker",))
WORKER_ENDED = LogEvent("worker.ended", WARNING, "%(outcome)s; a replacement starts %(when)s", apart=("worker",))
WORKER_ENDED_LATE = LogEvent("worker.ended_late", WARNING, "%(outcome)s during shutdown", apart=("worker",))
WORKER_ENDED_EARLY = LogEvent("worker.ended_early", ERROR, "%(outcome)s before it was ready", apart=("worker",))
WORKER_KILLED = LogEvent(
    "worker.killed", ERROR, "%(worker)s did not stop within %(after_s)g s and is killed", apart=("worker",)
)
LOCAL_ENGINE_ENDED = LogEvent(
    "engine.process_ended",
    ERROR,
    "the private engine (the Redis that belongs to this server) %(outcome)s; it starts again %(when)s, and sessions "
    "are restored",
)
WORKER_ORPHANED = LogEvent("worker.orphaned", WARNING, "parent process ended; stopping this worker")
