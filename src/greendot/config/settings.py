"""What can be set, with the defaults."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from greendot.config.admin import Admin
from greendot.config.ingress import IngressSection, Tls
from greendot.config.jobs import Jobs
from greendot.config.logs import Log, Traces
from greendot.config.metrics import Metrics
from greendot.config.mistakes import Secret
from greendot.config.push import Push, TenantPush
from greendot.config.visibility import Visibility
from greendot.config.webhooks import Hook, Webhooks

POSTGRES = ("postgresql://", "postgres://")
OF_THE_NODE = ("sends_per_s",)  # limits that no tenant can have of its own

Seconds = Annotated[float, Meta(ge=0, le=30 * 86_400)]
Positive = Annotated[float, Meta(gt=0, le=30 * 86_400)]
Count = Annotated[int, Meta(ge=1, le=10_000_000)]
Rate = Annotated[int, Meta(ge=0, le=10_000_000)]


class ServerSection(Struct, frozen=True, forbid_unknown_fields=True):
    # A server is there for others, so all addresses; with --dev it is not.
    host: str = "0.0.0.0"  # to listen on; 127.0.0.1 with --dev  # noqa: S104
    port: Annotated[int, Meta(ge=0, le=65535)] = 8000  # 0 takes a free one
    workers: Annotated[int, Meta(ge=1, le=1024)] = 1  # processes on one port; more than 1 need Redis
    data_dir: str = ".greendot"  # the embedded store and, in dev mode, the generated secret and key
    drain_notice_s: Seconds = 0.0  # a stopping server goes on for so long while `/readyz` says 503: proxies notice
    drain_s: Seconds = 5.0  # then its clients are sent away, within so long; those who stay are cut off
    log: str = "info"  # debug, info, warning or error
    dev: bool = False  # to try things out: demo page, tokens for whoever asks, loopback only
    tenant_metrics: bool = (
        False  # connections, users, sends and refusals of each registered tenant, by name, in /metrics
    )


Algorithm = Literal["HS256", "HS384", "HS512", "RS256", "ES256", "EdDSA"]


class AuthKey(Struct, frozen=True, forbid_unknown_fields=True):
    kid: Annotated[str, Meta(min_length=1, max_length=256)]
    alg: Algorithm
    secret: Secret = ""  # of these three exactly one: for HS256, HS384, HS512
    public_key: str = ""  # PEM, or a certificate: for RS256, ES256, EdDSA
    file: str = ""  # either of the two
    tenant: str = ""  # its tokens can only be of this tenant; empty: of any
    retired: bool = False  # its tokens are refused
    not_after: datetime | None = None  # its tokens hold no longer than this


class Auth(Struct, frozen=True, forbid_unknown_fields=True):
    secret: Secret = ""  # HS256; at least 32 characters
    tenants: Literal["any", "registered"] = "any"  # whose users may come: any that a token names, or registered ones
    keys: tuple[AuthKey, ...] = ()  # further ones, chosen by a token's `kid`; in the file only
    algorithms: tuple[Algorithm, ...] = ()  # those that are taken; empty: those of the keys
    jwks_url: str = ""  # of keys another server publishes: https://, or http:// on this machine
    jwks_refresh_s: Annotated[float, Meta(ge=10, le=86_400)] = 300.0  # how often they are fetched
    jwks_timeout_s: Annotated[float, Meta(gt=0, le=9)] = 5.0  # for an answer; a hello waits for it
    audience: str = ""  # what a token's `aud` must be, or have in it; empty: whatever it is
    issuer: str = ""  # what its `iss` must be; empty: whatever it is
    leeway_s: Annotated[float, Meta(ge=0, le=600)] = 0.0  # tokens hold so much longer, and from so much before `nbf`
    longest_token_s: Annotated[float, Meta(gt=0, le=400 * 86_400)] = (
        30 * 86_400.0
    )  # tokens that hold longer are refused
    token_in_query: bool = False  # take tokens from the address too, where they end up in logs of others


class Api(Struct, frozen=True, forbid_unknown_fields=True):
    key: Secret = ""  # a first API key, for tenant `default`
    docs: bool = True  # /docs, /openapi.json and /asyncapi.json, for everybody who reaches the port


class Presence(Struct, frozen=True, forbid_unknown_fields=True):
    heartbeat_s: Positive = 30.0  # how often a client is asked to be heard
    dead_after_s: Positive = 75.0  # a connection silent for so long is closed
    grace_s: Seconds = 30.0  # a lost socket's session counts for so long
    clean_grace_s: Seconds = 5.0  # the same after a clean close by the client
    silent_grace_s: Seconds = 15.0  # the same after `dead_after_s` of silence
    idle_s: Positive = 300.0  # without activity for so long is idle
    last_seen_days: Annotated[float, Meta(gt=0, le=3650)] = 30.0  # how long it is known when somebody was here
    celebrity_watchers: Count = 1_000  # above so many on a node, a change is told in slices
    celebrity_polling: Count = 20_000  # above so many on a node, changes are not told: watchers ask
    polled: tuple[str, ...] = ()  # `tenant/user`: theirs are not told however few watch


class Typing(Struct, frozen=True, forbid_unknown_fields=True):
    ttl_s: Positive = 5.0  # how long a start is held
    throttle_s: Seconds = 2.0  # at most one start per user, room and this is let through
    large_room: Count = 100  # above so many listeners only the count is sent
    repeat_s: Seconds = 0.0  # how often clients repeat a start; 0: a third of the way from throttle_s to ttl_s

    @property
    def repeats_every_s(self) -> float:
        """How often clients repeat a start: `repeat_s`, or the default that follows from the other two."""
        return self.repeat_s or self.throttle_s + (self.ttl_s - self.throttle_s) / 3


class Node(Struct, frozen=True, forbid_unknown_fields=True):
    lease_s: Positive = 15.0  # a node silent for so long is dead
    renew_s: Positive = 5.0  # how often a node says that it is there


class Admission(Struct, frozen=True, forbid_unknown_fields=True):
    hellos_per_s: Count = 2_000  # new clients taken; those beyond are told when to come back
    hellos_at_once: Count = 500  # being answered at the same time: bounds how late the loop can be in a storm
    waiting: Count = 2_000  # hellos that may wait for that, of clients that return, and as many of new ones
    strangers: Count = 10_000  # sockets that have not said hello; beyond it an upgrade is answered 503


class Overload(Struct, frozen=True, forbid_unknown_fields=True):
    lag_s: Positive = 0.1  # the loop is late by so much: signals of low priority are shed
    backlog: Count = 50_000  # the same, when so many writes wait
    bus_lag_s: Positive = 1.0  # the same, when what is published takes so long to be heard
    refuse_times: Annotated[float, Meta(ge=1, le=1_000)] = 4.0  # so many times that: new work is refused
    hold_s: Positive = 1.0  # things must have been well for so long; three times that if it happens again and again


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool = True  # false switches the rate limits off (load tests); sizes and counts stay
    watches: Count = 10_000  # per connection
    rooms: Count = 500  # per connection
    user_connections: Rate = 100  # of one user on a node; 0: no limit
    tenant_connections: Rate = 0  # of one tenant on a node; 0: no limit
    commands_per_s: Count = 50  # per connection
    commands_burst: Count = 200  # that may come at once
    sends_per_s: Annotated[int, Meta(ge=0, le=100_000_000)] = 0  # writes to sockets by one node; 0: as many as it can
    # From here on 0 is no limit. What is not said is bounded by the commands.
    burst_s: Annotated[float, Meta(gt=0, le=3_600)] = 4.0  # what comes in so long at the rates below may come at once
    user_commands_per_s: Rate = 200  # commands of all kinds of a user, on a node
    tenant_commands_per_s: Rate = 20_000  # commands of all kinds of a tenant, on a node
    connection_typing_per_s: Rate = 0  # starts and stops of typing of a connection
    user_typing_per_s: Rate = 20  # starts and stops of typing of a user, on a node
    room_typing_per_s: Rate = 200  # starts and stops of typing in a room, on a node
    tenant_typing_per_s: Rate = 0  # starts and stops of typing of a tenant, on a node
    connection_signals_per_s: Rate = 0  # signals of a connection
    user_signals_per_s: Rate = 100  # signals of a user, on a node
    room_signals_per_s: Rate = 1_000  # signals in a room, on a node
    tenant_signals_per_s: Rate = 0  # signals of a tenant, on a node
    connection_sends_per_s: Rate = 0  # messages of a connection
    user_sends_per_s: Rate = 50  # messages of a user, on a node
    room_sends_per_s: Rate = 100  # messages in a room, on a node
    tenant_sends_per_s: Rate = 10_000  # messages of a tenant, on a node
    connection_watches_per_s: Rate = 5_000  # users watched or asked for of a connection
    user_watches_per_s: Rate = 10_000  # users watched or asked for of a user, on a node
    tenant_watches_per_s: Rate = 100_000  # users watched or asked for of a tenant, on a node
    key_requests_per_s: Rate = 500  # by HTTP, with one API key, what has no limit of its own: reads, changes of rooms
    tenant_requests_per_s: Rate = 1_000  # requests by HTTP of a tenant, on a node

    def rate(self, scope: str, activity: str) -> int:
        """Of what `scope` may do a second; 0 where there is no such limit."""
        found: int = getattr(self, f"{scope}_{activity}_per_s", 0)
        return found


class Engine(Struct, frozen=True, forbid_unknown_fields=True):
    url: str = "memory"  # or redis://, rediss://, redis+sentinel://, redis+cluster://
    prefix: str = ""  # of every key and channel in Redis, when it is shared with others
    when_away: Literal["refuse", "accept"] = "refuse"  # new clients while Redis cannot be reached
    stale_after_s: Seconds = 30.0  # when watchers are told that Redis is away
    restore_batch: Count = 500  # sessions told to Redis together, ten times a second, after it lost them


class Store(Struct, frozen=True, forbid_unknown_fields=True):
    url: str = ""  # empty: sqlite, greendot.db in the data directory; or sqlite:///FILE, postgresql://
    pool: Annotated[int, Meta(ge=1, le=1_000)] = 8  # connections to PostgreSQL, per process
    migrate: bool = False  # bring old tables in PostgreSQL up to date at the start; `greendot migrate` does it too


class Outbox(Struct, frozen=True, forbid_unknown_fields=True):
    url: str = ""  # empty: there is none; `store`: in the store's database; or postgresql://, the app's own
    poll_s: Annotated[float, Meta(gt=0, le=60)] = 1.0  # how often it is looked at when nothing tells of new rows


class Inbox(Struct, frozen=True, forbid_unknown_fields=True):
    keep_days: Annotated[float, Meta(gt=0, le=36_500)] = 90.0  # notifications older than this are removed


class Privacy(Struct, frozen=True, forbid_unknown_fields=True):
    hash_key: Secret = ""  # what addresses, browsers and, in logs, ids are hashed with; empty: made of auth.secret
    log_ids: Literal["plain", "hashed"] = "plain"  # users, rooms and sessions in log lines


class Kind(Struct, frozen=True, forbid_unknown_fields=True):
    promise: Literal["ephemeral", "recomputable", "durable", "acknowledged"] = "durable"
    bus: Literal["full", "hint"] = "full"  # hint: the content of a notification stays in the store


class Tenant(Struct, frozen=True, forbid_unknown_fields=True):
    limits: Limits = Limits()  # in force for it: what its section does not say is as in [limits]
    webhooks: Hook = Hook()  # its own: no other's is used for it
    visibility: Visibility = Visibility()  # the same, as in [visibility]
    push: TenantPush = TenantPush()  # the same, as in [push]


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """All of them. `load` makes one from its sources and checks it."""

    server: ServerSection = ServerSection()
    door: IngressSection = IngressSection()
    tls: Tls = Tls()
    auth: Auth = Auth()
    api: Api = Api()
    admin: Admin = Admin()
    metrics: Metrics = Metrics()
    presence: Presence = Presence()
    typing: Typing = Typing()
    node: Node = Node()
    admission: Admission = Admission()
    overload: Overload = Overload()
    limits: Limits = Limits()
    engine: Engine = Engine()
    store: Store = Store()
    outbox: Outbox = Outbox()
    inbox: Inbox = Inbox()
    webhooks: Webhooks = Webhooks()
    jobs: Jobs = Jobs()
    push: Push = Push()
    log: Log = Log()
    traces: Traces = Traces()
    privacy: Privacy = Privacy()
    visibility: Visibility = Visibility()
    kinds: dict[str, Kind] = {}  # of notifications, by name; in the file only
    tenants: dict[str, Tenant] = {}  # those with settings of their own, by name; in the file only

    @property
    def on_postgres(self) -> bool:
        return self.store.url.startswith(POSTGRES)

    @property
    def store_path(self) -> str:
        """The SQLite file, or `:memory:`; empty with PostgreSQL."""
        if self.on_postgres:
            return ""
        if not self.store.url:
            return str(Path(self.server.data_dir) / "greendot.db")
        return self.store.url.removeprefix("sqlite:///")

    @property
    def hooks(self) -> dict[str, Hook]:
        """The tenants whose apps are told by webhook."""
        named = {"default": self.webhooks} | {name: tenant.webhooks for name, tenant in self.tenants.items()}
        if self.webhooks.url:
            named["default"] = self.webhooks
        return {tenant: hook for tenant, hook in named.items() if hook.url}

    def push_of(self, tenant: str) -> TenantPush:
        """How a tenant pushes: as its own section says, or as all others."""
        own = self.tenants.get(tenant)
        return self.push if own is None else own.push

    @property
    def pushes(self) -> bool:
        """Whether any tenant does."""
        return self.push.pushes or any(tenant.push.pushes for tenant in self.tenants.values())

    @property
    def outbox_url(self) -> str:
        """The database with the outbox; empty if there is none."""
        return self.store.url if self.outbox.url == "store" else self.outbox.url
