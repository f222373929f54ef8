"""Pusher protocol of a server, made from the settings and the node. Imported only if an app uses the protocol."""

from __future__ import annotations

from starlette.routing import Route

from greendot.app.webhooks import call_terms
from greendot.clock import Clock
from greendot.compat.connection import NodeServices
from greendot.compat.pusher.apps import PusherApp, PusherApps
from greendot.compat.pusher.cache import EventCache
from greendot.compat.pusher.channel_events import ChannelEvents
from greendot.compat.pusher.client_events import ClientEvents
from greendot.compat.pusher.http import PusherRoutes
from greendot.compat.pusher.identity import Identities
from greendot.compat.pusher.protocol import PATH, PusherProtocol
from greendot.compat.pusher.publisher import EventPublisher
from greendot.compat.pusher.subscriptions import Subscriber
from greendot.compat.pusher.webhooks import PusherWebhooks
from greendot.config import Settings
from greendot.transport.http_client import Caller
from greendot.transport.upgrade import SocketRoute


class PusherService:
    """Pusher protocol on one node: its WebSocket path, its HTTP routes and its webhooks."""

    def __init__(self, settings: Settings, services: NodeServices, clock: Clock) -> None:
        self._apps = PusherApps(pusher_apps(settings))
        terms = call_terms(settings)
        self._webhooks = PusherWebhooks(self._apps, lambda url: Caller(url, terms), clock)
        events = ChannelEvents(services, self._webhooks.report)
        identities = Identities(services)
        subscriber = Subscriber(services, identities, EventCache(services), events)
        self._tasks = services.context.tasks
        self._protocol = PusherProtocol(services, self._apps, identities, subscriber, ClientEvents(services, events))
        self.status_changed = self._protocol.status_changed
        self.sockets = SocketRoute(PATH, self._protocol.connect)
        self.routes: list[Route] = PusherRoutes(services, self._apps, EventPublisher(services)).routes()

    def reload(self, settings: Settings) -> None:
        """Use the apps of changed settings from now on, and close the sockets of apps that are gone."""
        self._apps.replace(pusher_apps(settings))
        self._tasks.spawn(self._protocol.apps_replaced())

    async def close(self) -> None:
        await self._webhooks.close()


def pusher_apps(settings: Settings) -> list[PusherApp]:
    return [
        PusherApp(
            tenant,
            app.app_id,
            app.key,
            tuple(secret for secret in (app.secret, app.secret_before) if secret),
            client_events=app.client_events,
            client_events_per_s=app.client_events_per_s,
            presence_members=app.presence_members,
            event_bytes=app.event_bytes,
            subscription_count=app.subscription_count,
            webhook_url=app.webhook_url,
            webhook_events=frozenset(app.webhook_events) if app.webhook_url else frozenset(),
        )
        for tenant, app in settings.pusher_apps.items()
    ]
