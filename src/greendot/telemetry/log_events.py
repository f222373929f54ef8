"""Log events of a server: name, level and sentence. docs/logs.md lists them all.

`debug` is for a single client, request or message. It is also for work that waits for a component whose outage is
logged once. At `info` a healthy server logs nothing, however many clients are connected.
"""

from __future__ import annotations

from greendot.telemetry.log import DEBUG, ERROR, INFO, WARNING, LogEvent

# --- the node ---
NODE_STARTED = LogEvent("node.started", INFO, "node %(node)s serves, Greendot %(version)s")
NODE_DRAINS = LogEvent(
    "node.drains", INFO, "draining: %(clients)d clients are asked to go to another node, over %(within_s).1f s"
)
NODE_DRAINED = LogEvent(
    "node.drained",
    INFO,
    "drained: %(clients)d clients in %(took_s).1f s; %(cut_off)d did not answer and were cut off, %(waiting)d were"
    " waiting for an answer of ours",
)
NODE_STUCK = LogEvent("node.stuck", ERROR, "not stopped within %(after_s)g s: ended all the same")
NODE_REBORN = LogEvent("node.reborn", WARNING, "node %(was)s was taken for dead; it goes on as %(node)s", every=True)
NODE_DEAD = LogEvent(
    "node.dead", WARNING, "node %(peer)s is dead: its lease was not renewed for %(lease_s)g s", apart=("peer",)
)
NODE_FOUND_DEAD = LogEvent(
    "node.found_dead", WARNING, "node %(peer)s died when nobody was there to see it", apart=("peer",)
)
NODE_DEAD_AGAIN = LogEvent(
    "node.dead_again",
    WARNING,
    "node %(peer)s is dead: Redis came back with records from before its death",
    apart=("peer",),
)
NODE_REAPED = LogEvent(
    "node.reaped", INFO, "reaped %(peers)s: %(sessions)d sessions ended, %(users)d users offline", apart=("peers",)
)
NODE_NOT_SIGNED_OFF = LogEvent(
    "node.not_signed_off", WARNING, "this node could not sign off: %(reason)s. The others will notice."
)
NODE_RECOVERED = LogEvent(
    "node.recovered", INFO, "recovered in %(took_s).1f s: %(sessions)d sessions told to the engine again", every=True
)
NODE_STALE = LogEvent(
    "node.stale", WARNING, "the engine is away for long: watchers are told that what they see is stale"
)
WORK_LATER = LogEvent("work.later", DEBUG, "%(work)s: done later: %(reason)s", apart=("work",))
WORK_FAILED = LogEvent("work.failed", ERROR, "%(work)s failed", apart=("work",))
CERTIFICATE_READ = LogEvent("certificate.read", INFO, "the certificate was read again: new connections get it")
CERTIFICATE_KEPT = LogEvent("certificate.kept", ERROR, "the certificate stays the one there was: %(reason)s")
LIBRARY_SAID = LogEvent("library.said", WARNING, "")  # any log line of a library, at the level of the library

# --- Redis and the store ---
REDIS_CONNECTED = LogEvent("redis.connected", INFO, "redis %(server)s: connected", apart=("server",))
REDIS_LOST = LogEvent("redis.lost", WARNING, "redis %(server)s: %(reason)s; connecting again", apart=("server",))
REDIS_BACK = LogEvent(
    "redis.back", WARNING, "redis %(server)s: connected again after %(away_s).1f s", apart=("server",)
)
REDIS_FORGOT = LogEvent("redis.forgot", WARNING, "redis %(server)s: its data is gone; restoring", apart=("server",))
REDIS_UNUSED = LogEvent("redis.unused", INFO, "redis %(server)s: no partition is there any more", apart=("server",))
REDIS_SWEPT = LogEvent(
    "redis.swept",
    INFO,
    "swept: %(sessions)d sessions, %(users)d users and %(nodes)d nodes that were not there any more",
)
REDIS_PASS_CUT = LogEvent("redis.pass_cut", INFO, "a pass over the buckets was cut short: %(reason)s")
STORE_LOST = LogEvent("store.lost", WARNING, "the store cannot be reached: %(reason)s; it is tried again")
STORE_BACK = LogEvent("store.back", WARNING, "the store answers again after %(away_s).1f s")

# --- clients ---
CONNECTION_ENDED = LogEvent("connection.ended", DEBUG, "connection ended: %(outcome)s %(code)s, session %(session)s")
CONNECTION_SLOW = LogEvent(
    "connection.slow", WARNING, "a client is slow: half of what may wait for it is used; session %(session)s"
)
HELLO_REFUSED = LogEvent("hello.refused", DEBUG, "hello refused: %(reason)s")
COMMAND_DONE = LogEvent("command.done", DEBUG, "%(type)s of session %(session)s: %(outcome)s")
PAGE_REFUSED = LogEvent(
    "page.refused", WARNING, "a page from %(origin)r was refused: it is neither from this host nor in door.origins"
)
SOCKETS_EXHAUSTED = LogEvent("sockets.exhausted", ERROR, "no more connections can be taken: %(reason)s")
WATCHERS_SWITCHED = LogEvent(
    "watchers.switched", INFO, "the watchers of %(user)s (tenant %(tenant)s) %(outcome)s: there are %(watchers)d"
)
RECORD_WRITTEN = LogEvent("record.written", DEBUG, "message %(message)s was written to %(channel)s")
RECORD_RECEIVED = LogEvent("record.received", DEBUG, "something said in %(channel)s was heard of")
OVERLOAD_BEGAN = LogEvent("overload.began", WARNING, "overload: %(reason)s; %(outcome)s", every=True)
OVERLOAD_EASED = LogEvent(
    "overload.eased", WARNING, "overload: new work is taken again, signals are still shed", every=True
)
OVERLOAD_OVER = LogEvent("overload.over", WARNING, "overload is over: everything is taken again", every=True)
CLIENTS_ENDED = LogEvent(
    "clients.ended", WARNING, "an operator has %(clients)d clients closed with %(code)d", every=True
)
REVOCATION_UNSURE = LogEvent(
    "revocation.unsure", WARNING, "the token of a revoked session may not be revoked on all nodes: %(reason)s"
)
VISIBILITY_UNKNOWN = LogEvent(
    "visibility.unknown", WARNING, "what a user hides cannot be read, so they are hidden: %(reason)s"
)
VISIBILITY_UNANSWERED = LogEvent(
    "visibility.unanswered",
    WARNING,
    "the app of tenant %(tenant)s does not say who may see whom, so nobody does: %(reason)s",
    apart=("tenant",),
)

# --- HTTP and operators ---
REQUEST_REFUSED = LogEvent("request.refused", DEBUG, "%(method)s %(route)s: %(status)d")
DASHBOARD_OPENED = LogEvent("dashboard.opened", INFO, "the dashboard was opened with the key %(key)s", apart=("key",))
AUDIT_ACTED = LogEvent(
    "audit.acted",
    WARNING,
    "audit: key %(key)s did %(act)s to %(kind)s %(target)s of tenant %(tenant)s: %(outcome)s",
    every=True,
)
KEYS_AWAY = LogEvent("keys.away", WARNING, "auth.jwks_url: %(reason)s. It is tried again; the keys that are known stay")
KEYS_BACK = LogEvent("keys.back", WARNING, "auth.jwks_url: the keys can be fetched again")

# --- apps and providers ---
WEBHOOK_FAILED = LogEvent(
    "webhook.failed", WARNING, "webhook of tenant %(tenant)s: %(reason)s; it is tried again", apart=("tenant",)
)
WEBHOOK_TAKEN = LogEvent("webhook.taken", INFO, "webhook of tenant %(tenant)s: it is taken again", apart=("tenant",))
WEBHOOK_STOPPED = LogEvent(
    "webhook.stopped",
    ERROR,
    "webhook of tenant %(tenant)s: %(reason)s; it is stopped, until it is replayed",
    apart=("tenant",),
)
WEBHOOK_DEAD_LETTER = LogEvent(
    "webhook.dead_letter",
    ERROR,
    "webhook of tenant %(tenant)s: event %(message)s is a dead letter: %(reason)s",
    apart=("tenant",),
)
PUSH_CIRCUIT_OPEN = LogEvent(
    "push.circuit_open",
    WARNING,
    "push by %(provider)s of tenant %(tenant)s rests: %(reason)s",
    apart=("provider", "tenant"),
)
PUSH_GOES_ON = LogEvent(
    "push.goes_on", INFO, "push by %(provider)s of tenant %(tenant)s goes on", apart=("provider", "tenant")
)
PUSH_FAILED = LogEvent(
    "push.failed", ERROR, "push %(message)s of tenant %(tenant)s failed", apart=("tenant", "provider")
)
PUSH_GIVEN_UP = LogEvent(
    "push.given_up", ERROR, "push %(message)s of tenant %(tenant)s is given up: %(reason)s", apart=("tenant",)
)
PUSH_TO_ALL = LogEvent(
    "push.to_all", WARNING, "the engine does not answer in time: what is due is pushed, whoever is here"
)
PUSH_NO_TOKEN = LogEvent("push.no_token", WARNING, "no new access token for FCM: %(reason)s")
OUTBOX_AWAY = LogEvent("outbox.away", WARNING, "the outbox cannot be relayed now: %(reason)s")
OUTBOX_BACK = LogEvent("outbox.back", INFO, "the outbox is relayed again")
OUTBOX_SET_ASIDE = LogEvent(
    "outbox.set_aside",
    ERROR,
    "row %(message)s of the outbox cannot be sent and is set aside: %(reason)s",
    every=True,
)
OUTBOX_NOT_SENT = LogEvent("outbox.not_sent", ERROR, "row %(message)s of the outbox could not be sent")
OUTBOX_ONE_BY_ONE = LogEvent("outbox.one_by_one", DEBUG, "%(rows)d notifications are sent one by one: %(reason)s")

# --- jobs and processes ---
JOB_ENDED = LogEvent("job.ended", INFO, "job %(job)s: %(outcome)s after %(took_s).1f s: %(note)s", apart=("job",))
JOB_FAILED = LogEvent("job.failed", ERROR, "job %(job)s: %(outcome)s after %(took_s).1f s: %(note)s", apart=("job",))
JOB_LOST = LogEvent("job.lost", WARNING, "job %(job)s: the run was lost to another", apart=("job",))
JOB_GOES_ON = LogEvent("job.goes_on", INFO, "job %(job)s goes on: %(done)d done", apart=("job",))
WORKER_READY = LogEvent("worker.ready", INFO, "%(worker)s is ready", apart=("worker",))
WORKER_ENDED = LogEvent("worker.ended", WARNING, "%(outcome)s; another is started %(when)s", apart=("worker",))
WORKER_ENDED_LATE = LogEvent("worker.ended_late", WARNING, "%(outcome)s while it stopped", apart=("worker",))
WORKER_ENDED_EARLY = LogEvent("worker.ended_early", ERROR, "%(outcome)s before it was ready", apart=("worker",))
WORKER_KILLED = LogEvent(
    "worker.killed", ERROR, "%(worker)s did not stop within %(after_s)g s and is killed", apart=("worker",)
)
WORKER_ORPHANED = LogEvent("worker.orphaned", WARNING, "the parent process is gone: this worker stops")
