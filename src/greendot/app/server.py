"""From settings to a running server: engine, store, node, HTTP, one port.

What only some settings ask for (Redis, PostgreSQL, webhooks, push, the dashboard) is imported where it is made: its
modules and libraries are half of what there is to load, and every start pays for what is at the top of this file.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from greendot.app.demo import Dev, DevPeriods
from greendot.app.http import HttpServices
from greendot.app.jobs import JobServices, check_timetables, make_jobs
from greendot.app.listeners import Ports
from greendot.app.node import Neighbours, Node
from greendot.app.tokens import make_tokens
from greendot.auth.api_keys import ApiKeys
from greendot.clock import Clock, SystemClock
from greendot.config import Look, Settings
from greendot.config.webhooks import Hook as HookSettings
from greendot.engine.memory import MemoryEngine
from greendot.engine.port import Engine, Transition
from greendot.engine.redis.url import parse
from greendot.errors import ConfigError, StoreUnavailable
from greendot.jobs.job import Planned
from greendot.jobs.scheduler import Scheduler
from greendot.node.tasks import all_ended
from greendot.push.quiet_hours import is_zone
from greendot.store.port import Draft, Notice, Store
from greendot.store.sqlite import SqliteStore
from greendot.store.sqlite.lock import lock_file
from greendot.transport.address_model import networks
from greendot.transport.tls import Certificate

if TYPE_CHECKING:
    from greendot.admin.dashboard import Dashboard
    from greendot.app.push import PushService
    from greendot.app_outbox.relay import Relay
    from greendot.engine.redis.engine import Options
    from greendot.store.postgres import PostgresOutbox
    from greendot.transport.http_client import Terms
    from greendot.visibility.webhook_client import HttpVisibilityClient
    from greendot.webhooks.hook import Hook
    from greendot.webhooks.service import Webhooks

ROOMS = ("lobby", "design", "random")  # the open rooms of dev mode


class Greendot:
    """One server. `start`, then `stop`; `driven` False leaves its timers to a test."""

    def __init__(self, settings: Settings, clock: Clock | None = None, *, driven: bool = True) -> None:
        _check_secret(settings)
        self.settings = settings
        clock = clock or SystemClock()
        engine, store = make_engine(settings, clock), make_store(settings)
        self._asked = make_asked(settings, clock)
        self.pushing: PushService | None = None
        if settings.pushes and settings.push.in_server:
            from greendot.app.push import make_pushing

            self.pushing = make_pushing(settings, engine, store, clock)
        neighbours = Neighbours(self._asked, self.pushing.worker.wake if self.pushing else lambda: None)
        self.node = Node(settings, engine, store, clock, driven=driven, neighbours=neighbours)
        if self.pushing is not None:
            self.node.counters.append(self.pushing.items)
        services = make_http_services(settings, self.node, clock)
        self.dashboard = make_dashboard(settings, self.node, services.keys) if settings.admin.enabled else None
        dev = Dev(self.node.tokens, make_dev_periods(settings)) if settings.server.dev else None
        self.ports = Ports(settings, self.node, services, self.dashboard, dev)
        self.server = self.ports.main
        self._relay: Relay | None = None
        if settings.outbox.url:
            self._relay = make_relay(settings, self.node, clock)
            self.node.counters.append(self._relay.items)
        self._webhooks: Webhooks | None = None
        if settings.hooks:
            self._webhooks = make_webhooks(settings, self.node.store, clock)
            self.node.engine.turned = both(self.node.recorder.turned, self._webhooks.turned)
            self.node.counters.append(self._webhooks.items)
        self.scheduler = Scheduler(self.node.store, self._make_jobs(), clock, settings.jobs.lease_s)
        self.node.counters.append(self.scheduler.items)
        self._driven = driven
        self._lock: int | None = None

    def share_ports(self, worker: int) -> None:
        """Other processes listen on the same ports, and this is the worker of this number. Said before `start`."""
        self.ports.share(worker)

    def reload(self) -> None:
        """Read the certificate again, if there is one."""
        self.ports.reload()

    async def start(self) -> None:
        """Returns when clients may come. ConfigError says what stands in the way."""
        self._lock = lock_store(self.settings)
        await self.node.start()
        try:
            await check_outbox(self.settings)
            await self.ports.start()
        except ConfigError:
            await self.node.close()
            raise
        if self.settings.server.dev:
            for room in ROOMS:
                await self.node.store.put_room("default", room, open=True)
        if self._relay is not None:
            self._relay.start()
        if self._webhooks is not None:
            self._webhooks.start()
        if self._driven:
            self.scheduler.start()
        if self.pushing is not None and self._driven:
            self.pushing.worker.start()

    async def stop(self) -> None:
        """Not ready any more, then no new clients; the present ones are asked to go elsewhere; all is closed."""
        self.node.announce_end()
        await asyncio.sleep(self.settings.server.drain_notice_s)
        self.ports.stop_accepting()
        if self.dashboard is not None:
            self.dashboard.close()
        # Jobs and the outbox need no sockets: others can have them at once.
        others = [self.scheduler.close(), *([] if self._relay is None else [self._relay.close()])]
        await all_ended(self.node.drain(self.settings.server.drain_s), *others)
        about_events = [part for part in (self._webhooks, self.pushing) if part is not None]
        await all_ended(*(part.close() for part in (*self.ports, *about_events)))
        await all_ended(self.node.close())
        await all_ended(*(app.close() for app in self._asked.values()))
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _make_jobs(self) -> list[Planned]:
        def pruned(inboxes: int) -> None:
            self.node.metrics.inbox_pruned_total += inboxes

        around = JobServices(self.node.inbox_service.notify, pushes(self.settings), pruned)
        return make_jobs(self.settings, self.node.store, self.node.engine, around)


def make_dev_periods(settings: Settings) -> DevPeriods:
    """Those the demo page tells of."""
    given = settings.presence
    return DevPeriods(**{name: getattr(given, name) for name in DevPeriods.__struct_fields__})


def make_dashboard(settings: Settings, node: Node, keys: ApiKeys) -> Dashboard:
    from greendot.admin.access import DashboardServices, RetentionPeriods
    from greendot.admin.dashboard import Dashboard

    days = settings.presence.last_seen_days, settings.inbox.keep_days, settings.jobs.cleanup_tokens.unused_days
    return Dashboard(
        DashboardServices(
            engine=node.engine,
            store=node.store,
            clock=node.clock,
            timers=node.timers,
            tasks=node.tasks,
            keys=keys,
            cluster=node.cluster,
            node=node,
            revocation_service=node.revocation_service,
            inbox_service=node.inbox_service,
            lasting=RetentionPeriods(settings.node.lease_s, *days),
            metrics=node.metrics,
            key=settings.admin.key,
            dev=settings.server.dev,
        )
    )


class AppPublisher:
    """The way of what an app says, by HTTP or by its outbox (relay.relay.Delivery)."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def append(self, tenant: str, room: str, draft: Draft) -> object:
        self._node.engine.typing_stop(tenant, room, draft.user)
        return await self._node.room_messages.append(tenant, room, draft)

    async def notify(self, notices: Sequence[Notice]) -> object:
        return await self._node.inbox_service.notify(notices)


def both(one: Callable[[Transition], None], other: Callable[[Transition], None]) -> Callable[[Transition], None]:
    def turned(turn: Transition) -> None:
        one(turn)
        other(turn)

    return turned


def looks() -> tuple[Look, ...]:
    """What is asked of settings beyond their own rules: keys and files that can be used."""
    return (
        Look(("auth",), _check_keys),
        Look(("engine.url",), lambda settings: settings.engine.url == "memory" or parse(settings.engine.url).context()),
        Look(("tls",), lambda settings: settings.tls.cert and Certificate(settings.tls.cert, settings.tls.key)),
        Look(("webhooks.ca_file",), lambda settings: settings.webhooks.ca_file and call_terms(settings)),
        Look(("jobs",), check_timetables),
        Look(("push", "tenants"), _check_accounts, ("push",)),
    )


def secret_look() -> Look:
    """And what only a server needs."""
    return Look(("auth", "engine.url", "server.dev"), _check_secret_unless_made, ("auth.secret",))


def _check_secret_unless_made(settings: Settings) -> None:
    if not settings.server.dev:
        _check_secret(settings)


def _check_keys(settings: Settings) -> None:
    # Keys that others publish are fetched when a server runs.
    make_tokens(msgspec.structs.replace(settings.auth, jwks_url=""), SystemClock().monotonic)


def _check_accounts(settings: Settings) -> None:
    if settings.pushes:
        from greendot.app.push import check_accounts

        check_accounts(settings)


def _check_secret(settings: Settings) -> None:
    auth = settings.auth
    if not (auth.secret or auth.keys or auth.jwks_url):
        raise ConfigError(
            "auth.secret is not set, so no token could be verified. Set GREENDOT_AUTH_SECRET to a long random text "
            "(openssl rand -hex 32), or name other keys (auth.keys, auth.jwks_url), or try things out with: "
            "greendot serve --dev"
        )
    if not auth.secret and settings.engine.url != "memory":
        raise ConfigError(
            "auth.secret is not set, and nodes that share a Redis sign with it what they tell each other. Set "
            "GREENDOT_AUTH_SECRET, the same for all (openssl rand -hex 32). Where it is not to sign tokens, name in "
            "auth.algorithms those that may, without HS256."
        )


def load_parts(settings: Settings) -> None:
    """Import the large parts these settings ask for: processes that are forked afterwards share them."""
    asked = {
        "greendot.engine.redis.engine": settings.engine.url != "memory",
        "greendot.store.postgres": settings.on_postgres or settings.outbox.url,
        "greendot.webhooks.service": settings.hooks,
        "greendot.app.push": settings.pushes,
        "greendot.admin.dashboard": settings.admin.enabled,
    }
    for name in asked:
        if asked[name]:
            import_module(name)


def make_http_services(settings: Settings, node: Node, clock: Clock) -> HttpServices:
    """Give the HTTP API what it needs of the node."""
    return HttpServices(
        engine=node.engine,
        store=node.store,
        clock=clock,
        keys=ApiKeys(settings.api.key, node.store, clock),
        statuses=node.statuses,
        snapshots=node.watching.snapshots,
        visibility_updates=node.visibility_updates,
        rooms=node.rooms,
        room_messages=node.room_messages,
        inbox_service=node.inbox_service,
        rate_limits=node.rate_limits,
        backpressure=node.backpressure,
        revocation_service=node.revocation_service,
        devices=node.devices,
        slices=node.slices,
        is_zone=is_zone,
        node=node,
    )


def make_engine(settings: Settings, clock: Clock) -> Engine:
    presence, typing = settings.presence, settings.typing
    if settings.engine.url != "memory":
        from greendot.engine.redis.engine import RedisEngine

        return RedisEngine(settings.engine.url, redis_options(settings), clock)
    return MemoryEngine(
        clock,
        grace_ms=round(presence.grace_s * 1000),
        typing_ttl_ms=round(typing.ttl_s * 1000),
        typing_throttle_ms=round(typing.throttle_s * 1000),
        seen_retention_ms=round(presence.last_seen_days * 86_400_000),
    )


def redis_options(settings: Settings) -> Options:
    from greendot.engine.redis.engine import Options
    from greendot.engine.redis.nodes import LeasePeriods

    presence, typing, node = settings.presence, settings.typing, settings.node
    return Options(
        # Nodes that verify the same tokens trust each other: what signs the one signs the other.
        key=blake2b(settings.auth.secret.encode(), person=b"greendot-bus").digest(),
        prefix=settings.engine.prefix,
        periods=LeasePeriods(node.lease_s, node.renew_s, presence.grace_s),
        typing_ttl_ms=round(typing.ttl_s * 1000),
        typing_throttle_ms=round(typing.throttle_s * 1000),
        seen_retention_ms=round(presence.last_seen_days * 86_400_000),
    )


def lock_store(settings: Settings) -> int | None:
    """While it is held no backup is put in the file's place, and no second server uses it with an engine of its own:
    its clients would miss half of what is said."""
    if settings.store_path in (":memory:", ""):
        return None
    # Nodes that share an engine hear each other.
    lock = lock_file(settings.store_path, alone=settings.engine.url == "memory")
    if lock is None:
        raise ConfigError(
            f"another Greendot is running on {settings.store_path}; with the memory engine they would not hear each "
            "other. Stop it, or give this one a store of its own with --store sqlite:///FILE"
        )
    return lock


def make_store(settings: Settings) -> Store:
    hooked = {tenant: hook.events for tenant, hook in settings.hooks.items()}
    pushed = Pushed(settings)
    if settings.on_postgres:
        from greendot.store.postgres import PostgresStore

        migrate = settings.store.migrate or settings.server.dev
        return PostgresStore(
            settings.store.url, pool=settings.store.pool, migrate=migrate, hooked=hooked, pushed=pushed
        )
    path = settings.store_path
    if path != ":memory:":
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot make the folder of the store {path}: {error.strerror}") from None
    return SqliteStore(path, hooked=hooked, pushed=pushed)


class Pushed(Collection[str]):
    """The tenants that push. They cannot be listed: all that nothing else is said of do as [push] says."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def __contains__(self, tenant: object) -> bool:
        return isinstance(tenant, str) and self._settings.push_of(tenant).pushes

    def __iter__(self) -> Iterator[str]:
        return iter([tenant for tenant in ("default", *self._settings.tenants) if tenant in self])

    def __len__(self) -> int:
        return len([*self])


def pushes(settings: Settings) -> Callable[[str], bool]:
    """Whether a tenant does."""
    return lambda tenant: settings.push_of(tenant).pushes


def make_webhooks(settings: Settings, store: Store, clock: Clock) -> Webhooks:
    from greendot.webhooks.records import DeliveryPace
    from greendot.webhooks.service import Webhooks

    common, terms = settings.webhooks, call_terms(settings)
    hooks = {tenant: make_hook(tenant, hook, terms, clock) for tenant, hook in settings.hooks.items()}
    pace = DeliveryPace(common.batch_max, common.batch_wait_ms / 1000, round(common.give_up_after_s * 1000))
    return Webhooks(hooks, store, clock, pace)


def make_hook(tenant: str, hook: HookSettings, terms: Terms, clock: Clock) -> Hook:
    from greendot.transport.http_client import Caller
    from greendot.webhooks.hook import Hook

    secrets = (hook.secret, hook.secret_before)
    return Hook(tenant, hook.url, secrets, hook.events, Caller(hook.url, terms), clock)


def make_asked(settings: Settings, clock: Clock) -> dict[str, HttpVisibilityClient]:
    """The apps that say who may see whom, by tenant; "" for those without settings of their own."""
    own = {tenant: section.visibility for tenant, section in settings.tenants.items()}
    visibility_webhook = {tenant: of for tenant, of in (own | {"": settings.visibility}).items() if of.policy == "ask"}
    if not visibility_webhook:
        return {}
    from greendot.visibility.webhook_client import HttpVisibilityClient

    return {
        tenant: HttpVisibilityClient(of.ask_url, of.ask_secret, call_terms(settings, of.ask_timeout_s), clock)
        for tenant, of in visibility_webhook.items()
    }


def call_terms(settings: Settings, timeout_s: float | None = None) -> Terms:
    """How apps are called, whatever for. ConfigError if there are no certificates where the settings say."""
    from greendot.transport.http_client import Terms

    common = settings.webhooks
    if timeout_s is None:
        timeout_s = common.timeout_s
    try:
        return Terms(allowed=networks(common.allow_private), timeout_s=timeout_s, ca_file=common.ca_file)
    except OSError as error:
        raise ConfigError(f"webhooks.ca_file {common.ca_file}: {error.strerror or error}") from None


def make_relay(settings: Settings, node: Node, clock: Clock) -> Relay:
    from greendot.app_outbox.relay import Relay

    return Relay(make_outbox(settings), AppPublisher(node), clock, settings.outbox.poll_s)


def make_outbox(settings: Settings) -> PostgresOutbox:
    from greendot.store.postgres import PostgresOutbox

    return PostgresOutbox(settings.outbox_url, settings.outbox.poll_s)


async def check_outbox(settings: Settings) -> None:
    """ConfigError if the outbox is not there and may not be made. One that cannot be reached now is waited for."""
    if not settings.outbox.url:
        return
    outbox = make_outbox(settings)
    try:
        await outbox.check()
    except StoreUnavailable:
        return
    except ConfigError:
        if not (settings.store.migrate or settings.server.dev):
            raise
        await outbox.install()
