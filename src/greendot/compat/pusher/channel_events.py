"""Events about channels: webhooks of the app, and the number of subscribers for the channel itself.

A node sends the webhooks of its own connections. It asks the other nodes whether a channel has become occupied or
vacant. It waits a moment before it reports an end, so that a reload of a page causes no webhook.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from greendot.compat.connection import NodeServices
from greendot.compat.pusher.apps import PusherApp
from greendot.compat.pusher.channel_model import ChannelName
from greendot.compat.pusher.dialect import APP, COUNT
from greendot.engine.messages import Deliver, Topic
from greendot.errors import EngineUnavailable
from greendot.node.session import Session
from greendot.protocol.cluster import ListenedQuery
from greendot.protocol.codec import encode_event
from greendot.protocol.events import Signal

VACANT_S = 3.0  # a channel is reported as vacant after this time
COUNT_S, LARGE_COUNT_S = 0.5, 5.0  # shortest time between two counts, and in a channel with more than LARGE clients
LARGE = 100
MISSED_S = 5.0  # shortest time between two reports of a missing last event in one channel
MOST_MISSED = 10_000

Place = tuple[str, str]  # tenant and room


class ChannelEvents:
    """Events about the channels of all apps on this node. `report` queues a webhook."""

    def __init__(self, services: NodeServices, report: Callable[[PusherApp, dict[str, Any]], None]) -> None:
        self._services = services
        self._report = report
        self._due: set[Place] = set()  # channels whose number of subscribers is about to be sent
        self._checks: set[Place] = set()  # channels about to be reported as occupied or vacant
        self._occupied: set[Place] = set()  # channels that had listeners on this node at the last check
        self._missed: dict[Place, float] = {}

    def subscribed(self, app: PusherApp, channel: ChannelName) -> None:
        self._check_soon(app, channel, 0.0)

    def counts_changed(self, app: PusherApp, channel: ChannelName, session: Session | None) -> None:
        """Send the number of subscribers soon, if the app wants it. Report the channel if it becomes vacant.

        Clients of an invisible user are not counted. For them no number is sent, because its time would show the user.
        """
        if channel.kind == "user":
            return
        self._check_soon(app, channel, VACANT_S)
        if session is None or not self._services.is_invisible(session.key):
            self.count_soon(app, channel)

    def count_soon(self, app: PusherApp, channel: ChannelName) -> None:
        """Send the number of subscribers soon, if the app wants it."""
        place = app.tenant, channel.room
        if app.subscription_count and channel.kind not in ("presence", "user") and place not in self._due:
            self._due.add(place)
            local = self._services.context.hub.find(Topic("room", *place))
            is_large = local is not None and len(local.listeners) > LARGE
            self._later(LARGE_COUNT_S if is_large else COUNT_S, self._send_count, app, channel)

    def client_event(self, app: PusherApp, socket_id: str, event: dict[str, Any]) -> None:
        if "client_event" in app.webhook_events:
            self._report(app, {"name": "client_event", **event, "socket_id": socket_id})

    def entered(self, app: PusherApp, channel: ChannelName, user: str) -> None:
        """Report the first session of a user in a presence channel."""
        if "member_added" in app.webhook_events:
            self._report(app, {"name": "member_added", "channel": channel.name, "user_id": user})

    def left(self, app: PusherApp, channel: ChannelName, session: Session | None) -> None:
        """Note the end of a subscription. Report the member of a presence channel, once the user is gone."""
        self.counts_changed(app, channel, session)
        if channel.kind == "presence" and session is not None and "member_removed" in app.webhook_events:
            self._later(VACANT_S, self._check_member, app, channel, session.user)

    async def _check_member(self, app: PusherApp, channel: ChannelName, user: str) -> None:
        """Report a member who is gone. While a session of the user lingers here, the user is not gone."""
        page = await self._services.engine.present_page(app.tenant, channel.room, None, 0, user)
        if not page.is_there:
            self._report(app, {"name": "member_removed", "channel": channel.name, "user_id": user})
        elif any(it.connection is None for it in self._services.context.registry.sessions_of(app.tenant, user)):
            self._later(VACANT_S, self._check_member, app, channel, user)

    def cache_missed(self, app: PusherApp, channel: ChannelName) -> None:
        now, place = self._services.context.timers.now(), (app.tenant, channel.room)
        if "cache_miss" in app.webhook_events and now - self._missed.get(place, float("-inf")) >= MISSED_S:
            if len(self._missed) >= MOST_MISSED:
                self._missed.clear()
            self._missed[place] = now
            self._report(app, {"name": "cache_miss", "channel": channel.name})

    # --- occupied and vacant ---

    def _check_soon(self, app: PusherApp, channel: ChannelName, delay_s: float) -> None:
        place = app.tenant, channel.room
        wanted = {"channel_occupied", "channel_vacated"} & app.webhook_events
        if wanted and channel.kind != "user" and place not in self._checks:
            self._checks.add(place)
            self._later(delay_s, self._check, app, channel)

    async def _check(self, app: PusherApp, channel: ChannelName) -> None:
        place = app.tenant, channel.room
        self._checks.discard(place)
        count = await self.count(app.tenant, channel.room)
        local = self._services.context.hub.find(Topic("room", *place))
        here, was_occupied = 0 if local is None else len(local.listeners), place in self._occupied
        (self._occupied.add if here else self._occupied.discard)(place)
        name = ""
        if here and not was_occupied and count == here:  # else another node has reported it
            name = "channel_occupied"
        elif not count and was_occupied:
            name = "channel_vacated"
        if name in app.webhook_events:
            self._report(app, {"name": name, "channel": channel.name})

    # --- numbers ---

    async def count(self, tenant: str, room: str, *, shown_only: bool = False) -> int:
        """Return the number of clients that listen to a room, on all nodes that answer."""
        return (await self._services.listened(ListenedQuery(tenant, [room], shown_only=shown_only))).get(room, 0)

    async def _send_count(self, app: PusherApp, channel: ChannelName) -> None:
        self._due.discard((app.tenant, channel.room))
        count = await self.count(app.tenant, channel.room, shown_only=True)
        body = Raw(msgspec.json.encode({"subscription_count": count}))
        signal = Signal(sender=APP, name=None, kind=COUNT, room=channel.room, body=body)
        frame = encode_event(signal, self._services.clock.now_ms())
        self._services.engine.publish(Topic("room", app.tenant, channel.room), Deliver(frame, key=(COUNT,)))
        if "subscription_count" in app.webhook_events:
            event = {"name": "subscription_count", "channel": channel.name, "subscription_count": count}
            self._report(app, event)

    def _later(self, delay_s: float, call: Callable[..., Any], *arguments: object) -> None:
        context = self._services.context

        async def run() -> None:
            try:
                await call(*arguments)
            except EngineUnavailable:
                pass  # the next change reports it

        context.timers.set(delay_s, lambda _: context.tasks.spawn(run()))
