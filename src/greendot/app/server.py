"""Server from the settings: engine, store, node, HTTP, ports.

Parts that only some settings need (Redis, PostgreSQL, webhooks, push, the dashboard) are imported where they are made.
Their modules and libraries are half of the load time, and every start pays for the imports at the top of this file.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

from greendot.app.adapters import check_outbox, lock_store, make_engine, make_outbox, make_store, pushes
from greendot.app.config_checks import check_secret
from greendot.app.demo import Dev, DevPeriods
from greendot.app.http import HttpServices
from greendot.app.jobs import JobServices, make_jobs
from greendot.app.listeners import Ports
from greendot.app.node import Node
from greendot.app.webhooks import make_publish_hooks, make_visibility_clients, make_webhooks
from greendot.auth.api_keys import ApiKeys
from greendot.clock import Clock, SystemClock
from greendot.config import Settings
from greendot.engine.port import Transition
from greendot.errors import ConfigError, RoomBeingDeleted
from greendot.jobs.job import Planned
from greendot.jobs.scheduler import Scheduler
from greendot.node.tasks import all_ended
from greendot.push.quiet_hours import is_zone
from greendot.store.inbox import Notice
from greendot.store.rooms import Draft

if TYPE_CHECKING:
    from greendot.admin.dashboard import Dashboard
    from greendot.app.centrifuge import CentrifugeService
    from greendot.app.push import PushService
    from greendot.app.pusher import PusherService
    from greendot.app_outbox.relay import Relay
    from greendot.webhooks.service import Webhooks

ROOMS = ("lobby", "design", "random")  # open rooms of dev mode


class Greendot:
    """One server. `driven` False leaves its timers to a test."""

    def __init__(self, settings: Settings, clock: Clock | None = None, *, driven: bool = True) -> None:
        check_secret(settings)
        self.settings = settings
        clock = clock or SystemClock()
        engine, store = make_engine(settings, clock), make_store(settings)
        self._visibility_clients = make_visibility_clients(settings, clock)
        self._publish_hooks = make_publish_hooks(settings, clock)
        self.pushing: PushService | None = None
        if settings.pushes and settings.push.in_server:
            from greendot.app.push import make_pushing

            self.pushing = make_pushing(settings, engine, store, clock)
        self.node = Node(
            settings,
            engine,
            store,
            clock,
            driven=driven,
            visibility_clients=self._visibility_clients,
            publish_hooks=self._publish_hooks,
            push_queued=self.pushing.worker.wake if self.pushing else lambda: None,
        )
        services = make_http_services(settings, self.node, clock)
        self.dashboard = make_dashboard(settings, self.node, services.keys) if settings.admin.enabled else None
        dev = (
            Dev(self.node.tokens, make_dev_periods(settings), settings.server.dev_gate) if settings.server.dev else None
        )
        self.pusher = make_pusher(settings, self.node, clock) if settings.pusher_apps else None
        self.centrifuge = make_centrifuge(settings, self.node, services.keys) if settings.centrifuges else None
        foreign = [api for api in (self.pusher, self.centrifuge) if api is not None]
        self.ports = Ports(settings, self.node, services, self.dashboard, dev, foreign)
        self.server = self.ports.main
        self._relay: Relay | None = None
        if settings.outbox.url:
            self._relay = make_relay(settings, self.node, clock)
            self.node.counters.append(self._relay.items)
        self._webhooks: Webhooks | None = None
        if settings.hooks:
            self._webhooks = make_webhooks(settings, self.node.store, clock)
            self.node.engine.turned = both(self.node.turned, self._webhooks.turned)
            self.node.counters.append(self._webhooks.items)
        if self.pushing is not None:
            self.node.counters.append(self.pushing.items)
        self.scheduler = Scheduler(self.node.store, self._make_jobs(), clock, settings.jobs.lease_s)
        self.node.counters.append(self.scheduler.items)
        self._driven = driven
        self._lock: int | None = None

    def share_ports(self, worker: int) -> None:
        """Share the ports with other processes, as the worker of this number. Call before `start`."""
        self.ports.share(worker)

    def reload(self, settings: Settings | None = None) -> None:
        """Read the certificate again, if there is one. Apply the apps of foreign protocols in changed settings."""
        self.ports.reload()
        if settings is not None and self.pusher is not None:
            self.pusher.reload(settings)

    async def start(self) -> None:
        """Start, and return when clients may connect. Raise ConfigError with the reason if that is not possible."""
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
                with suppress(RoomBeingDeleted):
                    await self.node.store.put_room("default", room, open=True, receipts=True)
        if self.dashboard is not None:
            self.dashboard.start()
        if self._relay is not None:
            self._relay.start()
        if self._webhooks is not None:
            self._webhooks.start()
        if self._driven:
            self.scheduler.start()
        if self.pushing is not None and self._driven:
            self.pushing.worker.start()

    async def stop(self) -> None:
        """Report not ready, accept no new clients, send connected ones to other nodes, then close all parts."""
        self.node.announce_end()
        await asyncio.sleep(self.settings.server.drain_notice_s)
        self.ports.stop_accepting()
        if self.dashboard is not None:
            self.dashboard.close()
        # Jobs and the outbox need no sockets: other nodes can take them over at once.
        others = [self.scheduler.close(), *([] if self._relay is None else [self._relay.close()])]
        await all_ended(self.node.drain(self.settings.server.drain_s), *others)
        outbound = [part for part in (self._webhooks, self.pushing, self.pusher, self.centrifuge) if part is not None]
        await all_ended(*(part.close() for part in (*self.ports, *outbound)))
        await all_ended(self.node.close())
        await all_ended(*(client.close() for client in self._visibility_clients.values()))
        await all_ended(*(hook.client.close() for hook in self._publish_hooks.values() if hook is not None))
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _make_jobs(self) -> list[Planned]:
        def pruned(inboxes: int) -> None:
            self.node.metrics.inbox_pruned_total += inboxes

        around = JobServices(self.node.inbox_service.notify, pushes(self.settings), pruned)
        return make_jobs(self.settings, self.node.store, self.node.engine, around)


def make_dev_periods(settings: Settings) -> DevPeriods:
    """Return the periods that the demo page explains."""
    given = settings.presence
    return DevPeriods(**{name: getattr(given, name) for name in DevPeriods.__struct_fields__})


def make_pusher(settings: Settings, node: Node, clock: Clock) -> PusherService:
    from greendot.app.pusher import PusherService

    service = PusherService(settings, node.foreign_services(), clock)
    node.statuses.listeners.append(service.status_changed)
    return service


def make_centrifuge(settings: Settings, node: Node, keys: ApiKeys) -> CentrifugeService:
    from greendot.app.centrifuge import CentrifugeService

    return CentrifugeService(settings, node, keys)


def make_dashboard(settings: Settings, node: Node, keys: ApiKeys) -> Dashboard:
    from greendot.admin.access import DashboardPeriods, DashboardServices
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
            restrictions=node.restrictions,
            moderation=node.moderation,
            lasting=DashboardPeriods(settings.node.lease_s, *days),
            metrics=node.metrics,
            key=settings.admin.key,
            dev=settings.server.dev,
        )
    )


class AppPublisher:
    """Publisher of messages and notifications from the app's outbox (`app_outbox.relay.Publisher`)."""

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


def load_parts(settings: Settings) -> None:
    """Import the large parts that the settings need: processes forked afterwards share them."""
    asked = {
        "greendot.engine.redis.engine": settings.engine.url != "memory",
        "greendot.store.postgres": settings.on_postgres or settings.outbox.url,
        "greendot.webhooks.service": settings.hooks,
        "greendot.app.push": settings.pushes,
        "greendot.admin.dashboard": settings.admin.enabled,
        "greendot.app.centrifuge": settings.centrifuges,
        "greendot.app.pusher": settings.pusher_apps,
    }
    for name in asked:
        if asked[name]:
            import_module(name)


def make_http_services(settings: Settings, node: Node, clock: Clock) -> HttpServices:
    """Return the services that the HTTP API uses, from the node."""
    return HttpServices(
        engine=node.engine,
        store=node.store,
        clock=clock,
        keys=ApiKeys(settings.api.key, node.store, clock),
        statuses=node.statuses,
        snapshots=node.watching.snapshots,
        presence_modes=node.presence_modes,
        visibility_updates=node.visibility_updates,
        rooms=node.rooms,
        room_messages=node.room_messages,
        moderation=node.moderation,
        restrictions=node.restrictions,
        inbox_service=node.inbox_service,
        rate_limits=node.rate_limits,
        backpressure=node.backpressure,
        revocation_service=node.revocation_service,
        devices=node.devices,
        streams=node.streams,
        ingress=node.ingress,
        slices=node.slices,
        is_zone=is_zone,
        node=node,
    )


def make_relay(settings: Settings, node: Node, clock: Clock) -> Relay:
    from greendot.app_outbox.relay import Relay

    return Relay(make_outbox(settings), AppPublisher(node), clock, settings.outbox.poll_s)
