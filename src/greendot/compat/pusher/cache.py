"""Last events of cache channels. They are messages of the channel's room, so every node can read them."""

from __future__ import annotations

from greendot.compat.connection import NodeServices
from greendot.compat.pusher.apps import PusherApp
from greendot.compat.pusher.channel_model import ChannelName
from greendot.compat.pusher.dialect import APP, app_event, server_event

KEPT_MS = 30 * 60_000
NEWEST = 20  # messages of the room among which the last event is looked for


class EventCache:
    """Reader of last events."""

    def __init__(self, services: NodeServices) -> None:
        self._services = services

    async def last(self, app: PusherApp, channel: ChannelName) -> bytes | None:
        """Return the last event of the app in a channel, as a frame; None if there is none, or it is too old."""
        page = await self._services.store.room_page(app.tenant, channel.room, limit=NEWEST)
        since = self._services.clock.now_ms() - KEPT_MS
        for record in reversed(page.messages if page is not None else ()):
            if record.user == APP and record.op is None and record.at > since:
                event = app_event(record.body)
                if event is not None:
                    return server_event(event.event, event.data, channel.name)
        return None
