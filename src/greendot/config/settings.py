"""Settings by section, with their defaults."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from greendot.config.before_publish import BeforePublish
from greendot.config.centrifuge import Centrifuge
from greendot.config.fields import Count, Port, Positive, Rate, Seconds, Secret, about
from greendot.config.ingress import IngressSection, Tls
from greendot.config.jobs import Jobs
from greendot.config.monitoring import Admin, Log, Metrics, Traces
from greendot.config.push import Push, TenantPush
from greendot.config.pusher import Pusher
from greendot.config.visibility import Visibility
from greendot.config.webhooks import Hook, Webhooks

POSTGRES = ("postgresql://", "postgres://")
OF_THE_NODE = ("sends_per_s",)  # limits of the whole node, which no tenant can have of its own


class ServerSection(Struct, frozen=True, forbid_unknown_fields=True):
    # All addresses, because a server is for clients on other machines. With --dev: dev_host.
    host: Annotated[str, about("address to listen on; dev_host with --dev")] = "0.0.0.0"  # noqa: S104
    port: Annotated[Port, about("port to listen on; 0: any free port")] = 8000
    workers: Annotated[int, Meta(ge=1, le=1024), about("processes that share the port and an engine")] = 1
    data_dir: Annotated[
        str, about("folder of the embedded store and, in dev mode, of the generated secret and key")
    ] = ".greendot"
    drain_notice_s: Annotated[
        Seconds, about("a stopping server keeps serving for this time while `/readyz` answers 503, for load balancers")
    ] = 0.0
    drain_s: Annotated[
        Seconds, about("then it sends its clients to other nodes; connections still open after this time are closed")
    ] = 5.0
    log: Annotated[str, about("log level: debug, info, warning or error")] = "info"
    dev: Annotated[bool, about("development mode: demo page, tokens without a login, loopback by default")] = False
    dev_host: Annotated[
        str, about("address to listen on in dev mode; on any but loopback, demo and tokens require `dev_gate`")
    ] = "127.0.0.1"
    dev_gate: Annotated[
        Secret, about("gate token of dev mode; empty: none on loopback, else a random one, printed at the start")
    ] = ""
    tenant_metrics: Annotated[
        bool, about("add connections, users, sends and refusals of each registered tenant, by name, to /metrics")
    ] = False


Algorithm = Literal["HS256", "HS384", "HS512", "RS256", "ES256", "EdDSA"]


class AuthKey(Struct, frozen=True, forbid_unknown_fields=True):
    kid: Annotated[str, Meta(min_length=1, max_length=256)]
    alg: Algorithm
    secret: Annotated[Secret, about("for HS256, HS384, HS512; set exactly one of secret, public_key and file")] = ""
    public_key: Annotated[str, about("public key or certificate in PEM; for RS256, ES256, EdDSA")] = ""
    file: Annotated[str, about("file with the secret or the public key")] = ""
    tenant: Annotated[str, about("the only tenant that tokens of this key may name; empty: any tenant")] = ""
    retired: Annotated[bool, about("refuse tokens of this key")] = False
    not_after: Annotated[datetime | None, about("time at which tokens of this key expire at the latest")] = None


class Auth(Struct, frozen=True, forbid_unknown_fields=True):
    secret: Annotated[Secret, about("secret for HS256; at least 32 characters")] = ""
    tenants: Annotated[
        Literal["any", "registered"],
        about("tenants whose users may connect: any that a token names, or registered ones only"),
    ] = "any"
    keys: Annotated[tuple[AuthKey, ...], about("further keys, selected by a token's `kid`; in the file only")] = ()
    algorithms: Annotated[tuple[Algorithm, ...], about("accepted algorithms; empty: those of the configured keys")] = ()
    jwks_url: Annotated[
        str, about("URL of a JWKS that another server publishes: https://, or http:// on this machine")
    ] = ""
    jwks_refresh_s: Annotated[float, Meta(ge=10, le=86_400), about("interval between two fetches of the JWKS")] = 300.0
    jwks_timeout_s: Annotated[
        float, Meta(gt=0, le=9), about("time limit of a fetch; a hello with an unknown key waits for the fetch")
    ] = 5.0
    audience: Annotated[str, about("value that a token's `aud` must equal or contain; empty: any")] = ""
    issuer: Annotated[str, about("value that a token's `iss` must equal; empty: any")] = ""
    leeway_s: Annotated[
        float,
        Meta(ge=0, le=600),
        about("tolerated clock difference: tokens are valid this much longer, and this much before `nbf`"),
    ] = 0.0
    longest_token_s: Annotated[
        float, Meta(gt=0, le=400 * 86_400), about("longest lifetime of a token; tokens with a longer one are refused")
    ] = 30 * 86_400.0
    token_in_query: Annotated[
        bool, about("also accept tokens in the URL, which proxies and browsers write to logs")
    ] = False

    @property
    def longest_token_ms(self) -> int:
        """Return how long after its issue a token can be accepted, in milliseconds."""
        return round((self.longest_token_s + self.leeway_s) * 1000)


class Api(Struct, frozen=True, forbid_unknown_fields=True):
    key: Annotated[Secret, about("first API key, for tenant `default`")] = ""
    docs: Annotated[bool, about("serve /docs, /openapi.json and /asyncapi.json, without a login")] = True
    client: Annotated[
        bool, about("serve the JavaScript client, /greendot.js, without a login; dev mode always serves it")
    ] = True


class Presence(Struct, frozen=True, forbid_unknown_fields=True):
    heartbeat_s: Annotated[Positive, about("interval between two heartbeats of a client")] = 30.0
    dead_after_s: Annotated[Positive, about("a connection that is silent for this time is closed")] = 75.0
    grace_s: Annotated[Seconds, about("how long a session continues after its socket was lost")] = 30.0
    clean_grace_s: Annotated[
        Seconds, about("how long a session continues after the client closed the connection cleanly")
    ] = 5.0
    silent_grace_s: Annotated[
        Seconds, about("how long a session continues after its connection was closed for silence (`dead_after_s`)")
    ] = 15.0
    idle_s: Annotated[Positive, about("time without activity after which a session is idle")] = 300.0
    last_seen_days: Annotated[float, Meta(gt=0, le=3650), about("how long the last-seen time of a user is kept")] = 30.0
    celebrity_watchers: Annotated[
        Count, about("with more watchers than this on a node, changes of a user are delivered in slices")
    ] = 1_000
    celebrity_polling: Annotated[
        Count, about("with more watchers than this on a node, changes of a user are not delivered; watchers poll")
    ] = 10_000
    polled: Annotated[
        tuple[str, ...], about("users whose watchers poll unless the app chooses another mode, as `tenant/user`")
    ] = ()


class Typing(Struct, frozen=True, forbid_unknown_fields=True):
    ttl_s: Annotated[Positive, about("how long a typing start lasts unless it is repeated")] = 5.0
    throttle_s: Annotated[Seconds, about("at most one typing start per user and room is delivered in this time")] = 2.0
    large_room: Annotated[Count, about("with more subscribers than this, a room gets counts instead of user ids")] = 100
    repeat_s: Annotated[
        Seconds, about("least time until clients repeat a typing start; 0: a third of the way from throttle_s to ttl_s")
    ] = 0.0

    @property
    def repeats_every_s(self) -> float:
        """Return the seconds between two starts of a client that keeps typing.

        `repeat_s`, or if that is 0 a third of the way from `throttle_s` to `ttl_s`.
        """
        return self.repeat_s or self.throttle_s + (self.ttl_s - self.throttle_s) / 3


class Rooms(Struct, frozen=True, forbid_unknown_fields=True):
    receipts_members: Annotated[
        Count, about("with more members or occupants than this, a room gets counts of readers instead of read receipts")
    ] = 100


class Node(Struct, frozen=True, forbid_unknown_fields=True):
    lease_s: Annotated[Positive, about("a node that does not renew its lease for this time is dead")] = 15.0
    renew_s: Annotated[Positive, about("interval between two renewals of a node's lease")] = 5.0


class Admission(Struct, frozen=True, forbid_unknown_fields=True):
    hellos_per_s: Annotated[Count, about("hellos accepted per second; further clients get a time to retry")] = 5_000
    hellos_at_once: Annotated[
        Count, about("hellos processed at the same time; bounds the event loop's lag in a reconnect storm")
    ] = 500
    waiting: Annotated[
        Count, about("hellos that may wait: this many of returning clients, and as many of new ones")
    ] = 10_000
    strangers: Annotated[Count, about("sockets without a completed hello; further WebSocket upgrades get 503")] = 10_000


class Overload(Struct, frozen=True, forbid_unknown_fields=True):
    lag_s: Annotated[Positive, about("event loop lag at which low-priority signals are shed")] = 0.1
    backlog: Annotated[Count, about("number of waiting writes at which low-priority signals are shed")] = 50_000
    bus_lag_s: Annotated[Positive, about("delay of the bus at which low-priority signals are shed")] = 1.0
    refuse_times: Annotated[
        float, Meta(ge=1, le=1_000), about("multiple of these thresholds at which new work is refused")
    ] = 4.0
    hold_s: Annotated[
        Positive, about("time below half of the thresholds before a level ends; up to three times as long if it recurs")
    ] = 1.0


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, about("false disables the rate limits (load tests); limits of sizes and counts stay")] = (
        True
    )
    watches: Annotated[Count, about("users that one connection may watch")] = 10_000
    rooms: Annotated[Count, about("rooms that one connection may join")] = 500
    user_connections: Annotated[Rate, about("connections of one user on a node; 0: no limit")] = 100
    tenant_connections: Annotated[Rate, about("connections of one tenant, on all nodes together; 0: no limit")] = 0
    commands_per_s: Annotated[Count, about("commands of one connection")] = 50
    commands_burst: Annotated[Count, about("commands that one connection may send at once")] = 200
    sends_per_s: Annotated[int, Meta(ge=0, le=100_000_000), about("socket writes of one node; 0: no limit")] = 0
    # In all rates below, 0 means no limit. The limits of commands bound everything without a limit of its own.
    burst_s: Annotated[
        float, Meta(gt=0, le=3_600), about("burst of the rates below: what they allow in this time may arrive at once")
    ] = 4.0
    user_commands_per_s: Annotated[Rate, about("commands of one user, on a node")] = 200
    tenant_commands_per_s: Annotated[Rate, about("commands of one tenant, on all nodes together")] = 20_000
    connection_typing_per_s: Annotated[Rate, about("typing starts and stops of one connection")] = 0
    user_typing_per_s: Annotated[Rate, about("typing starts and stops of one user, on a node")] = 20
    room_typing_per_s: Annotated[Rate, about("typing starts and stops in one room, on a node")] = 200
    tenant_typing_per_s: Annotated[Rate, about("typing starts and stops of one tenant, on all nodes together")] = 0
    connection_signals_per_s: Annotated[Rate, about("signals of one connection")] = 0
    user_signals_per_s: Annotated[Rate, about("signals of one user, on a node")] = 100
    room_signals_per_s: Annotated[Rate, about("signals in one room, on a node")] = 1_000
    tenant_signals_per_s: Annotated[Rate, about("signals of one tenant, on all nodes together")] = 0
    connection_sends_per_s: Annotated[Rate, about("messages of one connection")] = 0
    user_sends_per_s: Annotated[Rate, about("messages of one user, on a node")] = 50
    room_sends_per_s: Annotated[Rate, about("messages in one room, on a node")] = 100
    tenant_sends_per_s: Annotated[Rate, about("messages of one tenant, on all nodes together")] = 10_000
    connection_watches_per_s: Annotated[Rate, about("users watched or queried by one connection")] = 5_000
    user_watches_per_s: Annotated[Rate, about("users watched or queried by one user, on a node")] = 10_000
    tenant_watches_per_s: Annotated[Rate, about("users watched or queried by one tenant, on all nodes together")] = (
        100_000
    )
    key_requests_per_s: Annotated[
        Rate, about("HTTP requests with one API key: reads, and changes without a limit of their own")
    ] = 500
    tenant_requests_per_s: Annotated[Rate, about("HTTP requests of one tenant, on all nodes together")] = 1_000

    def rate(self, scope: str, activity: str) -> int:
        """Return how much of an activity is allowed per second in a scope; 0 if there is no such limit."""
        found: int = getattr(self, f"{scope}_{activity}_per_s", 0)
        return found


LOCAL = "local"  # engine.url: a private Valkey or Redis, started and stopped with the server


class Engine(Struct, frozen=True, forbid_unknown_fields=True):
    url: Annotated[
        str,
        about(
            "memory; local: a private Valkey or Redis of this server, the default with several workers; "
            "or a URL: redis://, rediss://, unix://, redis+sentinel://, redis+cluster://"
        ),
    ] = "memory"
    prefix: Annotated[str, about("prefix of every key and channel, for a Redis that other programs use too")] = ""
    when_away: Annotated[
        Literal["refuse", "accept"], about("whether to refuse or accept new clients while Redis is unreachable")
    ] = "refuse"
    stale_after_s: Annotated[Seconds, about("outage of Redis after which presence is marked stale")] = 30.0
    restore_batch: Annotated[
        Count, about("sessions and occupants that a node restores in a tenth of a second after Redis lost them")
    ] = 500


class Store(Struct, frozen=True, forbid_unknown_fields=True):
    url: Annotated[str, about("empty: SQLite, greendot.db in data_dir; or sqlite:///FILE, postgresql://")] = ""
    pool: Annotated[int, Meta(ge=1, le=1_000), about("connections to PostgreSQL, per process")] = 8
    migrate: Annotated[
        bool, about("migrate the tables in PostgreSQL when a server starts; `greendot migrate` does the same")
    ] = False


class Outbox(Struct, frozen=True, forbid_unknown_fields=True):
    url: Annotated[
        str, about("database of the app outbox: `store` (that of the store) or postgresql://; empty: no outbox")
    ] = ""
    poll_s: Annotated[
        float,
        Meta(gt=0, le=60),
        about("interval between two polls of the outbox while the database announces no new rows"),
    ] = 1.0


class Inbox(Struct, frozen=True, forbid_unknown_fields=True):
    keep_days: Annotated[float, Meta(gt=0, le=36_500), about("notifications older than this are removed")] = 90.0


class Audit(Struct, frozen=True, forbid_unknown_fields=True):
    keep_days: Annotated[float, Meta(gt=0, le=36_500), about("entries of the audit older than this are removed")] = (
        365.0
    )


class Privacy(Struct, frozen=True, forbid_unknown_fields=True):
    hash_key: Annotated[
        Secret, about("key for hashes of addresses, user agents and ids in logs; empty: derived from auth.secret")
    ] = ""
    log_ids: Annotated[Literal["plain", "hashed"], about("form of user, room, tenant and session ids in log lines")] = (
        "plain"
    )


class Kind(Struct, frozen=True, forbid_unknown_fields=True):
    promise: Literal["ephemeral", "recomputable", "durable", "acknowledged"] = "durable"
    bus: Annotated[
        Literal["full", "hint"],
        about("hint: the content of a notification stays in the store; nodes send each other its number"),
    ] = "full"
    invisible: Annotated[
        Literal["refuse", "anonymous", "show"],
        about(
            "signals (`signal.send`) of invisible users: refuse them, send them without the sender, or show the user"
        ),
    ] = "refuse"


class Tenant(Struct, frozen=True, forbid_unknown_fields=True):
    limits: Limits = Limits()  # limits in force; settings that the tenant's section leaves out are those of [limits]
    webhooks: Hook = Hook()  # the tenant's own; nothing is inherited
    visibility: Visibility = Visibility()  # in force, completed from [visibility]
    push: TenantPush = TenantPush()  # in force, completed from [push]
    before_publish: BeforePublish = BeforePublish()  # in force, completed from [before_publish]
    centrifuge: Centrifuge = Centrifuge()  # the tenant's own; nothing is inherited
    pusher: Pusher = Pusher()  # the tenant's own; nothing is inherited


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of a server. `load` reads them from their sources and checks them."""

    server: ServerSection = ServerSection()
    door: IngressSection = IngressSection()
    tls: Tls = Tls()
    auth: Auth = Auth()
    api: Api = Api()
    admin: Admin = Admin()
    metrics: Metrics = Metrics()
    presence: Presence = Presence()
    typing: Typing = Typing()
    rooms: Rooms = Rooms()
    node: Node = Node()
    admission: Admission = Admission()
    overload: Overload = Overload()
    limits: Limits = Limits()
    engine: Engine = Engine()
    store: Store = Store()
    outbox: Outbox = Outbox()
    inbox: Inbox = Inbox()
    audit: Audit = Audit()
    webhooks: Webhooks = Webhooks()
    before_publish: BeforePublish = BeforePublish()
    jobs: Jobs = Jobs()
    push: Push = Push()
    log: Log = Log()
    traces: Traces = Traces()
    privacy: Privacy = Privacy()
    visibility: Visibility = Visibility()
    centrifuge: Centrifuge = Centrifuge()  # of tenant `default`
    pusher: Pusher = Pusher()  # of tenant `default`
    kinds: Annotated[dict[str, Kind], about("kinds of notifications and signals, by name; in the file only")] = {}
    tenants: Annotated[dict[str, Tenant], about("tenants with settings of their own, by name; in the file only")] = {}

    @property
    def on_postgres(self) -> bool:
        return self.store.url.startswith(POSTGRES)

    @property
    def store_path(self) -> str:
        """Return the SQLite file, or `:memory:`; empty with PostgreSQL."""
        if self.on_postgres:
            return ""
        if not self.store.url:
            return str(Path(self.server.data_dir) / "greendot.db")
        return self.store.url.removeprefix("sqlite:///")

    @property
    def hooks(self) -> dict[str, Hook]:
        """Return the webhooks that have a URL, by tenant."""
        named = {"default": self.webhooks} | {name: tenant.webhooks for name, tenant in self.tenants.items()}
        if self.webhooks.url:
            named["default"] = self.webhooks
        return {tenant: hook for tenant, hook in named.items() if hook.url}

    @property
    def centrifuges(self) -> dict[str, Centrifuge]:
        """Return the settings of the Centrifuge protocol where it is served, by tenant."""
        named = {"default": self.centrifuge} | {name: tenant.centrifuge for name, tenant in self.tenants.items()}
        if self.centrifuge.enabled:
            named["default"] = self.centrifuge
        return {tenant: given for tenant, given in named.items() if given.enabled}

    @property
    def pusher_apps(self) -> dict[str, Pusher]:
        """Return the apps of the Pusher protocol, by tenant."""
        named = {name: tenant.pusher for name, tenant in self.tenants.items()}
        if self.pusher.is_on or "default" not in named:
            named["default"] = self.pusher
        return {tenant: app for tenant, app in named.items() if app.is_on}

    def push_of(self, tenant: str) -> TenantPush:
        """Return the push settings of a tenant: its own, or the shared ones if the tenant has no section."""
        own = self.tenants.get(tenant)
        return self.push if own is None else own.push

    @property
    def pushes(self) -> bool:
        """Return whether any tenant pushes."""
        return self.push.pushes or any(tenant.push.pushes for tenant in self.tenants.values())

    @property
    def outbox_url(self) -> str:
        """Return the URL of the database with the app outbox; empty if there is none."""
        return self.store.url if self.outbox.url == "store" else self.outbox.url
