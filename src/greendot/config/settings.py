"""Settings by section, with their defaults."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from greendot.config.fields import Count, Port, Positive, Rate, Seconds, Secret, about
from greendot.config.ingress import IngressSection, Tls
from greendot.config.jobs import Jobs
from greendot.config.monitoring import Admin, Log, Metrics, Traces
from greendot.config.push import Push, TenantPush
from greendot.config.visibility import Visibility
from greendot.config.webhooks import Hook, Webhooks

POSTGRES = ("postgresql://", "postgres://")
OF_THE_NODE = ("sends_per_s",)  # limits of the whole node, which no tenant can have of its own


class ServerSection(Struct, frozen=True, forbid_unknown_fields=True):
    # All addresses, because a server is for clients on other machines. With --dev: loopback.
    host: Annotated[str, about("to listen on; 127.0.0.1 with --dev")] = "0.0.0.0"  # noqa: S104
    port: Annotated[Port, about("0 takes a free one")] = 8000
    workers: Annotated[int, Meta(ge=1, le=1024), about("processes on one port; more than 1 need Redis")] = 1
    data_dir: Annotated[str, about("the embedded store and, in dev mode, the generated secret and key")] = ".greendot"
    drain_notice_s: Annotated[
        Seconds, about("a stopping server goes on for so long while `/readyz` says 503: proxies notice")
    ] = 0.0
    drain_s: Annotated[Seconds, about("then its clients are sent away, within so long; those who stay are cut off")] = (
        5.0
    )
    log: Annotated[str, about("debug, info, warning or error")] = "info"
    dev: Annotated[bool, about("to try things out: demo page, tokens for whoever asks, loopback only")] = False
    tenant_metrics: Annotated[
        bool, about("connections, users, sends and refusals of each registered tenant, by name, in /metrics")
    ] = False


Algorithm = Literal["HS256", "HS384", "HS512", "RS256", "ES256", "EdDSA"]


class AuthKey(Struct, frozen=True, forbid_unknown_fields=True):
    kid: Annotated[str, Meta(min_length=1, max_length=256)]
    alg: Algorithm
    secret: Annotated[Secret, about("of these three exactly one: for HS256, HS384, HS512")] = ""
    public_key: Annotated[str, about("PEM, or a certificate: for RS256, ES256, EdDSA")] = ""
    file: Annotated[str, about("either of the two")] = ""
    tenant: Annotated[str, about("its tokens can only be of this tenant; empty: of any")] = ""
    retired: Annotated[bool, about("its tokens are refused")] = False
    not_after: Annotated[datetime | None, about("its tokens hold no longer than this")] = None


class Auth(Struct, frozen=True, forbid_unknown_fields=True):
    secret: Annotated[Secret, about("HS256; at least 32 characters")] = ""
    tenants: Annotated[
        Literal["any", "registered"], about("whose users may come: any that a token names, or registered ones")
    ] = "any"
    keys: Annotated[tuple[AuthKey, ...], about("further ones, chosen by a token's `kid`; in the file only")] = ()
    algorithms: Annotated[tuple[Algorithm, ...], about("those that are taken; empty: those of the keys")] = ()
    jwks_url: Annotated[str, about("of keys another server publishes: https://, or http:// on this machine")] = ""
    jwks_refresh_s: Annotated[float, Meta(ge=10, le=86_400), about("how often they are fetched")] = 300.0
    jwks_timeout_s: Annotated[float, Meta(gt=0, le=9), about("for an answer; a hello waits for it")] = 5.0
    audience: Annotated[str, about("what a token's `aud` must be, or have in it; empty: whatever it is")] = ""
    issuer: Annotated[str, about("what its `iss` must be; empty: whatever it is")] = ""
    leeway_s: Annotated[
        float, Meta(ge=0, le=600), about("tokens hold so much longer, and from so much before `nbf`")
    ] = 0.0
    longest_token_s: Annotated[float, Meta(gt=0, le=400 * 86_400), about("tokens that hold longer are refused")] = (
        30 * 86_400.0
    )
    token_in_query: Annotated[bool, about("take tokens from the address too, where they end up in logs of others")] = (
        False
    )

    @property
    def longest_token_ms(self) -> int:
        """Return how long after its issue a token can be accepted, in milliseconds."""
        return round((self.longest_token_s + self.leeway_s) * 1000)


class Api(Struct, frozen=True, forbid_unknown_fields=True):
    key: Annotated[Secret, about("a first API key, for tenant `default`")] = ""
    docs: Annotated[bool, about("/docs, /openapi.json and /asyncapi.json, for everybody who reaches the port")] = True


class Presence(Struct, frozen=True, forbid_unknown_fields=True):
    heartbeat_s: Annotated[Positive, about("how often a client is asked to be heard")] = 30.0
    dead_after_s: Annotated[Positive, about("a connection silent for so long is closed")] = 75.0
    grace_s: Annotated[Seconds, about("a lost socket's session counts for so long")] = 30.0
    clean_grace_s: Annotated[Seconds, about("the same after a clean close by the client")] = 5.0
    silent_grace_s: Annotated[Seconds, about("the same after `dead_after_s` of silence")] = 15.0
    idle_s: Annotated[Positive, about("without activity for so long is idle")] = 300.0
    last_seen_days: Annotated[float, Meta(gt=0, le=3650), about("how long it is known when somebody was here")] = 30.0
    celebrity_watchers: Annotated[Count, about("above so many on a node, a change is told in slices")] = 1_000
    celebrity_polling: Annotated[Count, about("above so many on a node, changes are not told: watchers ask")] = 20_000
    polled: Annotated[tuple[str, ...], about("`tenant/user`: theirs are not told however few watch")] = ()


class Typing(Struct, frozen=True, forbid_unknown_fields=True):
    ttl_s: Annotated[Positive, about("how long a start is held")] = 5.0
    throttle_s: Annotated[Seconds, about("at most one start per user, room and this is let through")] = 2.0
    large_room: Annotated[Count, about("above so many listeners only the count is sent")] = 100
    repeat_s: Annotated[
        Seconds, about("how often clients repeat a start; 0: a third of the way from throttle_s to ttl_s")
    ] = 0.0

    @property
    def repeats_every_s(self) -> float:
        """Return the seconds between two starts of a client that keeps typing.

        `repeat_s`, or if that is 0 a third of the way from `throttle_s` to `ttl_s`.
        """
        return self.repeat_s or self.throttle_s + (self.ttl_s - self.throttle_s) / 3


class Node(Struct, frozen=True, forbid_unknown_fields=True):
    lease_s: Annotated[Positive, about("a node silent for so long is dead")] = 15.0
    renew_s: Annotated[Positive, about("how often a node says that it is there")] = 5.0


class Admission(Struct, frozen=True, forbid_unknown_fields=True):
    hellos_per_s: Annotated[Count, about("new clients taken; those beyond are told when to come back")] = 2_000
    hellos_at_once: Annotated[
        Count, about("being answered at the same time: bounds how late the loop can be in a storm")
    ] = 500
    waiting: Annotated[
        Count, about("hellos that may wait for that, of clients that return, and as many of new ones")
    ] = 2_000
    strangers: Annotated[Count, about("sockets that have not said hello; beyond it an upgrade is answered 503")] = (
        10_000
    )


class Overload(Struct, frozen=True, forbid_unknown_fields=True):
    lag_s: Annotated[Positive, about("the loop is late by so much: signals of low priority are shed")] = 0.1
    backlog: Annotated[Count, about("the same, when so many writes wait")] = 50_000
    bus_lag_s: Annotated[Positive, about("the same, when what is published takes so long to be heard")] = 1.0
    refuse_times: Annotated[float, Meta(ge=1, le=1_000), about("so many times that: new work is refused")] = 4.0
    hold_s: Annotated[
        Positive, about("things must have been well for so long; three times that if it happens again and again")
    ] = 1.0


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, about("false switches the rate limits off (load tests); sizes and counts stay")] = True
    watches: Annotated[Count, about("per connection")] = 10_000
    rooms: Annotated[Count, about("per connection")] = 500
    user_connections: Annotated[Rate, about("of one user on a node; 0: no limit")] = 100
    tenant_connections: Annotated[Rate, about("of one tenant on a node; 0: no limit")] = 0
    commands_per_s: Annotated[Count, about("per connection")] = 50
    commands_burst: Annotated[Count, about("that may come at once")] = 200
    sends_per_s: Annotated[
        int, Meta(ge=0, le=100_000_000), about("writes to sockets by one node; 0: as many as it can")
    ] = 0
    # In all rates below, 0 means no limit. The limits of commands bound everything without a limit of its own.
    burst_s: Annotated[
        float, Meta(gt=0, le=3_600), about("what comes in so long at the rates below may come at once")
    ] = 4.0
    user_commands_per_s: Annotated[Rate, about("commands of all kinds of a user, on a node")] = 200
    tenant_commands_per_s: Annotated[Rate, about("commands of all kinds of a tenant, on a node")] = 20_000
    connection_typing_per_s: Annotated[Rate, about("starts and stops of typing of a connection")] = 0
    user_typing_per_s: Annotated[Rate, about("starts and stops of typing of a user, on a node")] = 20
    room_typing_per_s: Annotated[Rate, about("starts and stops of typing in a room, on a node")] = 200
    tenant_typing_per_s: Annotated[Rate, about("starts and stops of typing of a tenant, on a node")] = 0
    connection_signals_per_s: Annotated[Rate, about("signals of a connection")] = 0
    user_signals_per_s: Annotated[Rate, about("signals of a user, on a node")] = 100
    room_signals_per_s: Annotated[Rate, about("signals in a room, on a node")] = 1_000
    tenant_signals_per_s: Annotated[Rate, about("signals of a tenant, on a node")] = 0
    connection_sends_per_s: Annotated[Rate, about("messages of a connection")] = 0
    user_sends_per_s: Annotated[Rate, about("messages of a user, on a node")] = 50
    room_sends_per_s: Annotated[Rate, about("messages in a room, on a node")] = 100
    tenant_sends_per_s: Annotated[Rate, about("messages of a tenant, on a node")] = 10_000
    connection_watches_per_s: Annotated[Rate, about("users watched or asked for of a connection")] = 5_000
    user_watches_per_s: Annotated[Rate, about("users watched or asked for of a user, on a node")] = 10_000
    tenant_watches_per_s: Annotated[Rate, about("users watched or asked for of a tenant, on a node")] = 100_000
    key_requests_per_s: Annotated[
        Rate, about("by HTTP, with one API key, what has no limit of its own: reads, changes of rooms")
    ] = 500
    tenant_requests_per_s: Annotated[Rate, about("requests by HTTP of a tenant, on a node")] = 1_000

    def rate(self, scope: str, activity: str) -> int:
        """Return how much of an activity is allowed per second in a scope; 0 if there is no such limit."""
        found: int = getattr(self, f"{scope}_{activity}_per_s", 0)
        return found


class Engine(Struct, frozen=True, forbid_unknown_fields=True):
    url: Annotated[str, about("or redis://, rediss://, redis+sentinel://, redis+cluster://")] = "memory"
    prefix: Annotated[str, about("of every key and channel in Redis, when it is shared with others")] = ""
    when_away: Annotated[Literal["refuse", "accept"], about("new clients while Redis cannot be reached")] = "refuse"
    stale_after_s: Annotated[Seconds, about("when watchers are told that Redis is away")] = 30.0
    restore_batch: Annotated[
        Count, about("sessions told to Redis together, ten times a second, after it lost them")
    ] = 500


class Store(Struct, frozen=True, forbid_unknown_fields=True):
    url: Annotated[str, about("empty: sqlite, greendot.db in the data directory; or sqlite:///FILE, postgresql://")] = (
        ""
    )
    pool: Annotated[int, Meta(ge=1, le=1_000), about("connections to PostgreSQL, per process")] = 8
    migrate: Annotated[
        bool, about("bring old tables in PostgreSQL up to date at the start; `greendot migrate` does it too")
    ] = False


class Outbox(Struct, frozen=True, forbid_unknown_fields=True):
    url: Annotated[
        str, about("empty: there is none; `store`: in the store's database; or postgresql://, the app's own")
    ] = ""
    poll_s: Annotated[float, Meta(gt=0, le=60), about("how often it is looked at when nothing tells of new rows")] = 1.0


class Inbox(Struct, frozen=True, forbid_unknown_fields=True):
    keep_days: Annotated[float, Meta(gt=0, le=36_500), about("notifications older than this are removed")] = 90.0


class Privacy(Struct, frozen=True, forbid_unknown_fields=True):
    hash_key: Annotated[
        Secret, about("what addresses, browsers and, in logs, ids are hashed with; empty: made of auth.secret")
    ] = ""
    log_ids: Annotated[Literal["plain", "hashed"], about("users, rooms and sessions in log lines")] = "plain"


class Kind(Struct, frozen=True, forbid_unknown_fields=True):
    promise: Literal["ephemeral", "recomputable", "durable", "acknowledged"] = "durable"
    bus: Annotated[Literal["full", "hint"], about("hint: the content of a notification stays in the store")] = "full"


class Tenant(Struct, frozen=True, forbid_unknown_fields=True):
    limits: Limits = Limits()  # limits in force; settings that the tenant's section leaves out are those of [limits]
    webhooks: Hook = Hook()  # the tenant's own; nothing is inherited
    visibility: Visibility = Visibility()  # in force, completed from [visibility]
    push: TenantPush = TenantPush()  # in force, completed from [push]


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
    kinds: Annotated[dict[str, Kind], about("of notifications, by name; in the file only")] = {}
    tenants: Annotated[dict[str, Tenant], about("those with settings of their own, by name; in the file only")] = {}

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
