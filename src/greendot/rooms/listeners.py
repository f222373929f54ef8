"""Listeners without a user: clients of foreign protocols that only listen to a room."""

from __future__ import annotations

from greendot.engine.messages import Topic
from greendot.node.session import Connection
from greendot.node.subscriptions import Subscriptions
from greendot.rooms.local_room import LocalRoom


class RoomListeners:
    """Listeners that do not occupy a room. The room need not exist in the store; then it carries signals only."""

    def __init__(self, local: Subscriptions[LocalRoom]) -> None:
        self._local = local

    async def attach(self, connection: Connection, topic: Topic) -> None:
        """Attach a connection that its foreign protocol has authorised, until `detach`."""
        while not connection.closing:
            await self._local.open([topic])
            local = self._local.get(topic)
            if local is not None:
                if not connection.closing:
                    self._local.attach(local, connection)
                return

    def detach(self, connection: Connection, topic: Topic) -> None:
        self._local.detach(topic, connection)
