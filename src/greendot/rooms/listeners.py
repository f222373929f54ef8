"""Listeners without a user: clients of foreign protocols that only listen to a room."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from greendot.engine.messages import Topic
from greendot.errors import StoreUnavailable
from greendot.node.session import Connection
from greendot.node.subscriptions import Subscriptions
from greendot.rooms.local_room import LocalRoom
from greendot.rooms.members_model import NONE
from greendot.store.rooms import Room

ATTEMPTS = 100  # maximum number of reads of a room's members that a new listener waits for


class RoomListeners:
    """Listeners that do not occupy a room. The store may lack the room; such a room carries only signals."""

    def __init__(self, local: Subscriptions[LocalRoom], check: Callable[[LocalRoom], None]) -> None:
        self._local = local
        self._check = check  # reads the members of a room again

    async def attach(self, connection: Connection, topic: Topic, may: Callable[[Room | None], bool]) -> bool:
        """Attach a connection until `detach`, if `may` allows it. Return whether the connection is attached.

        `may` gets the room as this node knows it in the turn in which the connection is attached; None if the store
        has no such room. Raise StoreUnavailable if the room is not known.
        """
        for _ in range(ATTEMPTS):
            await self._local.open([topic])
            local = self._local.get(topic)
            if connection.closing:
                return False
            if local is None:
                continue
            if local.unchecked is None and local.members_rev == NONE:  # the last read failed
                self._check(local)
                await self._checked(local)
                if local.members_rev == NONE:
                    break
            elif local.unchecked is not None:
                await self._checked(local)
            elif may(local.room):
                self._local.attach(local, connection)
                return True
            else:
                return False
        raise StoreUnavailable(f"the members of room {topic.name!r} are not known")

    @staticmethod
    async def _checked(local: LocalRoom) -> None:
        if local.checking is not None:
            await asyncio.shield(local.checking)

    def detach(self, connection: Connection, topic: Topic) -> None:
        self._local.detach(topic, connection)
