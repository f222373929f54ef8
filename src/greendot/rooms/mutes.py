"""Mutes of users on this node: in a room and in the tenant, the later end counts.

The node sends a device the end of a mute whenever the node receives a change, in the room or in the tenant. Each event
has the later end of both mutes, as the node knows them. So the last event is right, whichever change arrives last.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import UNSET, UnsetType

from greendot.engine.messages import Topic
from greendot.node.context import NodeContext
from greendot.node.session import Connection, Session
from greendot.node.subscriptions import Subscriptions
from greendot.protocol.codec import encode_event
from greendot.protocol.events import RoomChanged
from greendot.rooms.local_room import LocalRoom
from greendot.rooms.members import muted
from greendot.store.restrictions import FOREVER


class RoomMutes:
    """Mutes as far as this node knows them. `tenant_mute` returns the end of a mute in the tenant; 0: none."""

    def __init__(
        self, context: NodeContext, local: Subscriptions[LocalRoom], tenant_mute: Callable[[str, str], int]
    ) -> None:
        self._context = context
        self._local = local
        self._tenant_mute = tenant_mute

    def check(self, session: Session, room: str | None, in_room: int) -> None:
        """Raise Refused if the user is muted in the room, until `in_room`, or in the tenant."""
        now = self._context.clock.now_ms()
        if in_room > now:
            raise muted(f"in room {room!r}", in_room, now)
        if until := self._tenant_mute(session.tenant, session.user):
            raise muted("everywhere", until, now)

    def until(self, session: Session, in_room: int) -> int | UnsetType | None:
        """Return when the user's mute ends, for clients: UNSET if the user is not muted, None if there is no end."""
        until = max(in_room, self._tenant_mute(session.tenant, session.user))
        return mute_end(until) if until > self._context.clock.now_ms() else UNSET

    def tenant_changed(self, tenant: str, user: str) -> None:
        """Send the end of the user's mute to the user's connections, for each room that they have joined."""
        for connection in self._context.registry.connections_of(tenant, user):
            for room in sorted(connection.rooms or ()):
                self._send(connection, self._local.get(Topic("room", tenant, room)), tenant, user, room)

    def room_changed(self, local: LocalRoom, user: str) -> None:
        """Send the end of the user's mute to the user's connections that have joined the room."""
        tenant, room = local.channel.topic.tenant, local.channel.topic.name
        for connection in self._context.registry.connections_in(local.channel, user):
            if room in (connection.rooms or ()):
                self._send(connection, local, tenant, user, room)

    def _send(self, connection: Connection, local: LocalRoom | None, tenant: str, user: str, room: str) -> None:
        now = self._context.clock.now_ms()
        state = local.roles.get(user) if local is not None else None
        latest = max(self._tenant_mute(tenant, user), 0 if state is None else state.muted)
        event = RoomChanged(room, muted_until=mute_end(latest) if latest > now else 0)
        connection.send(encode_event(event, now), record=False, key=("muted", room))


def mute_end(until: int) -> int | None:
    """Return the end of a mute, for clients: None if there is no end."""
    return None if until == FOREVER else until
