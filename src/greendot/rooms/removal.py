"""Removal of members from rooms on this node. A removed member gets no further frame of the room."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

from greendot.engine.messages import Acknowledged, MemberRemoved, Topic
from greendot.engine.port import Bus
from greendot.errors import StoreUnavailable
from greendot.node.channel import ReplyKey, RoomKey
from greendot.node.context import NodeContext
from greendot.node.session import Connection
from greendot.node.subscriptions import Subscriptions
from greendot.protocol.codec import encode_error, encode_event
from greendot.protocol.events import RoomChanged
from greendot.rooms.local_room import LocalRoom
from greendot.rooms.members import STORE_S, not_a_member
from greendot.rooms.session_rooms import SessionRooms


class MemberRemoval:
    """Removal of subscribers who may no longer be in a room."""

    def __init__(
        self,
        bus: Bus,
        context: NodeContext,
        local: Subscriptions[LocalRoom],
        session_rooms: SessionRooms,
        *,
        leave: Callable[[Connection, str], None],
        is_member: Callable[[str, str, str], Awaitable[bool]],  # reads the store, for a tenant, room and user
    ) -> None:
        self._bus = bus
        self._context = context
        self._local = local
        self._session_rooms = session_rooms
        self._leave = leave
        self._is_member = is_member

    def receive(self, topic: Topic, message: MemberRemoved) -> None:
        """Remove a member at the request of a node, which waits for the acknowledgement."""
        local = self._local.get(Topic("room", message.tenant, message.room))
        if local is not None:
            local.removals += 1
            local.roles.pop(message.user, None)
        if message.unless_member:
            self._context.tasks.spawn(self._remove_unless_member(topic, message))
        else:
            self._carry_out(topic, message)

    def _carry_out(self, topic: Topic, message: MemberRemoved) -> None:
        self.remove(message.tenant, message.room, message.user, message.reason)
        self._acknowledge(topic, message)

    def _acknowledge(self, topic: Topic, message: MemberRemoved) -> None:
        self._bus.publish(Topic("node", "", message.asker), Acknowledged(message.number, topic.name))

    async def _remove_unless_member(self, topic: Topic, message: MemberRemoved) -> None:
        """Remove a user whom the app has not added again since. The user's devices may have joined again already.

        A device that joined during the read was admitted after the removal, so the user has been added again.
        """
        room, stays, known = Topic("room", message.tenant, message.room), False, None
        while not stays and known != (now := self._listening(room, message.user)):
            known, stays = now, await self._was_added_again(message)
        if stays:
            self._acknowledge(topic, message)
        else:
            self._carry_out(topic, message)

    def _listening(self, room: Topic, user: str) -> set[Connection]:
        local = self._local.get(room)
        return set() if local is None else {*self._context.registry.connections_in(local.channel, user)}

    async def _was_added_again(self, message: MemberRemoved) -> bool:
        """Return whether the user is a member now; False if the store does not answer."""
        try:
            async with asyncio.timeout(STORE_S):
                return await self._is_member(message.tenant, message.room, message.user)
        except (StoreUnavailable, TimeoutError):
            return False

    def remove(self, tenant: str, room: str, user: str, reason: str) -> None:
        """Remove all sessions of a user from a room on this node."""
        local = self._local.get(Topic("room", tenant, room))
        if local is not None:
            local.removals += 1
        for session in self._context.registry.sessions_of(tenant, user):
            self._session_rooms.exit(session, room)  # including lingering sessions
        for connection in [*self._context.registry.connections_of(tenant, user)]:
            self.lose(connection, (room,), reason)

    def lose(self, connection: Connection, rooms: Collection[str], reason: str) -> None:
        """Remove a connection from rooms it may not be in any more, and drop their frames from its send buffer.

        The client gets a `room.changed` for each room it had joined, and an error for each reply that was dropped.
        """
        if connection.session is not None:
            connection.session.removals += 1
        lost = (connection.rooms or set()).intersection(rooms)
        for room in lost:
            self._leave(connection, room)
        # A connection that has not joined a room may have requested its history.
        dropped = connection.drop(lambda key: isinstance(key, RoomKey) and key.room in rooms)
        for room in rooms:
            connection.removed_from(room, reason)
        for room in sorted(lost):
            event = RoomChanged(room, removed=True, reason=reason)
            connection.send(encode_event(event, self._context.clock.now_ms()))
        for key in dropped:
            if isinstance(key, RoomKey) and isinstance(key.what, ReplyKey):
                connection.send(encode_error(not_a_member(key.room), key.what.id))
