"""Identities of Pusher clients: the user of a sign-in, or of the first presence channel.

A connection has one user at most. The first identity opens the user's session, as a hello of a native client does.
"""

from __future__ import annotations

import random
from secrets import token_hex

import msgspec
from msgspec import Raw, structs

from greendot.auth.model import Grants
from greendot.compat.connection import NodeServices
from greendot.compat.pusher import frames
from greendot.compat.pusher.connection import PusherConnection
from greendot.compat.pusher.dialect import APP
from greendot.ids import ID_RULE, valid_id, valid_text
from greendot.protocol.commands import ClientInfo, Hello
from greendot.protocol.tokens import encoded_info

LONGEST_NAME = 200  # characters


class NotAccepted(Exception):
    """Identity or subscription that is refused. The message is for the app's developer."""

    def __init__(self, message: str, kind: str = "AuthError", status: int = 401) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status


class Identities:
    """Users of connections."""

    def __init__(self, services: NodeServices) -> None:
        self._services = services

    def grants(self, connection: PusherConnection, user: str, info: Raw) -> Grants:
        """Return the grants of a user whom the app has verified. Raise NotAccepted if the id or the info is wrong."""
        if not valid_id(user):
            raise NotAccepted(f"{user[:64]!r} is not a valid user id: {ID_RULE}", status=400)
        if user == APP:
            raise NotAccepted(f"the user id {APP!r} stands for the app; use another id", status=400)
        name, encoded = user_info(info)
        now = self._services.clock.now_ms()
        # Identities end at different times, so that their clients do not return together.
        lasts_ms = round(self._services.expires_ms * random.uniform(0.8, 1.0))
        return Grants(
            connection.app.tenant, user, now + lasts_ms, name, issued_at=now, info=encoded, rooms=_signed(connection)
        )

    async def open(self, connection: PusherConnection, grants: Grants) -> None:
        """Open the session of a user. Raise NotAccepted if the connection belongs to another user."""
        session = connection.session
        if session is None:
            connection.granted = grants
            # Watchers see the names of devices, so the name does not contain the socket id.
            hello = Hello(device=f"pusher-{token_hex(6)}", client=ClientInfo("pusher", "7"))
            if not await self._services.dispatcher.open_session(connection, hello):
                raise NotAccepted("the server does not accept this user now", status=503)
            assert connection.session is not None
            connection.session.unstored = {*grants.rooms}
        elif session.user != grants.user:
            raise NotAccepted(
                f"this socket belongs to user {session.user!r}; use another connection for user {grants.user!r}",
                status=403,
            )

    @staticmethod
    def allow(connection: PusherConnection, room: str) -> None:
        """Grant the connection's user a room: the app has signed a subscription to its channel."""
        session = connection.session
        if session is not None:
            session.unstored = (session.unstored or set()) | {room}
            if room not in session.grants.rooms:
                session.grants = structs.replace(session.grants, rooms=(*session.grants.rooms, room))

    @staticmethod
    def disallow(connection: PusherConnection, room: str) -> None:
        session = connection.session
        if session is not None:
            session.unstored = (session.unstored or set()) - {room}
            left = tuple(allowed for allowed in session.grants.rooms if allowed != room)
            session.grants = structs.replace(session.grants, rooms=left)


def _signed(connection: PusherConnection) -> tuple[str, ...]:
    """Return the rooms of subscriptions that the app has signed."""
    return tuple(one.channel.room for one in connection.subscriptions.values() if one.channel.needs_auth)


def user_info(info: Raw) -> tuple[str | None, bytes | None]:
    """Return the name in the info of a user, and the info for a profile. Info that is not an object is left out.

    Raise NotAccepted if it is too large.
    """
    try:
        found = frames.read_object(info)
    except msgspec.DecodeError:
        return None, None
    try:
        encoded = encoded_info(found)
    except ValueError as error:
        raise NotAccepted(f"user_info {error}", "LimitReached", 413) from None
    name = found.get("name")
    shown = name if isinstance(name, str) and 0 < len(name) <= LONGEST_NAME and valid_text(name) else None
    return shown, encoded
