"""Pusher Channels protocol 7 on WebSockets: from the first frame of a socket to its end."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from secrets import randbits
from urllib.parse import parse_qs
from weakref import WeakValueDictionary

import msgspec
from msgspec import Raw

from greendot.compat.connection import NodeServices
from greendot.compat.pusher import connection as codes
from greendot.compat.pusher import frames
from greendot.compat.pusher.apps import PusherApp, PusherApps
from greendot.compat.pusher.client_events import ClientEvents
from greendot.compat.pusher.connection import PusherConnection
from greendot.compat.pusher.dialect import PusherDialect, read_watched
from greendot.compat.pusher.frames import ClientFrame
from greendot.compat.pusher.identity import Identities, NotAccepted
from greendot.compat.pusher.signature_model import is_signed, user_text
from greendot.compat.pusher.subscriptions import Subscriber
from greendot.errors import Refused
from greendot.ids import Key, valid_id
from greendot.protocol import commands as wire
from greendot.transport.upgrade import ForeignRequest, ForeignSocket

PATH = b"/app/"
OLDEST, NEWEST = 5, 7  # protocol versions that clients may ask for
MOST_WATCHED = 100  # users in a watchlist
NOBODY = PusherApp("", "", "", ())  # app of a socket that is closed as soon as it is open
Handler = Callable[[PusherConnection, ClientFrame], Awaitable[None] | None]


class PusherProtocol:
    """Protocol of all Pusher sockets of a node (`node.session.ForeignProtocol`)."""

    def __init__(
        self,
        services: NodeServices,
        apps: PusherApps,
        identities: Identities,
        subscriber: Subscriber,
        client_events: ClientEvents,
    ) -> None:
        self._services = services
        self._apps = apps
        self._identities = identities
        self._subscriber = subscriber
        self._client_events = client_events
        self._dialects: WeakValueDictionary[str, PusherDialect] = WeakValueDictionary()  # by tenant
        self._handlers: dict[str, Handler] = {
            "pusher:ping": self._ping_received,
            "pusher:pong": lambda connection, frame: None,
            "pusher:subscribe": self._subscribe,
            "pusher:unsubscribe": self._unsubscribe,
            "pusher:signin": self._signin,
        }

    # --- sockets ---

    def connect(self, request: ForeignRequest) -> ForeignSocket:
        """Return the connection of a new socket. A wrong request is answered with a close code, as clients expect."""
        app = self._apps.by_key(request.path.removeprefix(PATH).decode("latin-1"))
        tenant = "" if app is None else app.tenant
        dialect = self._dialects.get(tenant)
        if dialect is None:
            dialect = self._dialects[tenant] = PusherDialect(self._services.clock.monotonic)
        number = f"{randbits(32)}.{randbits(32)}"
        connection = PusherConnection(self._services, self, dialect, number, app or NOBODY)
        connection.set_up(self._services, request)
        connection.code = codes.NO_APP if app is None else _version_refusal(request.query)
        return ForeignSocket(connection)

    def opened(self, connection: PusherConnection) -> None:
        if connection.code:
            why = _WHY[connection.code]
            connection.close_as(connection.code, why)
            return
        # Spread, so that the pings of clients do not come together.
        timeout_s = max(1, round(self._services.heartbeat_s * random.uniform(1.0, 1.4)))
        connection.send(frames.established(connection.id, timeout_s))

    def ping(self, connection: PusherConnection) -> None:
        connection.send_ping()

    def ended(self, connection: PusherConnection) -> None:
        self._subscriber.end(connection)

    def room_closed(self, connection: PusherConnection, room: str) -> None:
        self._subscriber.room_closed(connection, room)

    def removed(self, connection: PusherConnection, room: str, reason: str) -> None:
        self._subscriber.removed(connection, room, reason)

    def refused(self, connection: PusherConnection, message: str, refused: Refused) -> None:
        connection.send(frames.error_frame(codes.RATE_LIMITED, refused.message), record=False, key="refused")

    # --- frames ---

    def received(self, connection: PusherConnection, message: str) -> Awaitable[None] | None:
        try:
            frame = frames.read_frame(message)
            handler = self._handlers.get(frame.event)
            if not self._follow_app(connection):
                return None
            if handler is not None:
                return handler(connection, frame)
            if frame.event.startswith("client-"):
                return self._client_events.received(connection, frame)
            why = f"there is no event {frame.event[:64]!r} of clients; client events begin with `client-`"
        except msgspec.DecodeError as error:
            why = f"the frame is not valid: {error}"
        connection.send(frames.error_frame(None, why[:300]), record=False, key="wrong")
        return None

    def _follow_app(self, connection: PusherConnection) -> bool:
        """Use the app as it is configured now. Close a socket whose key is gone, or belongs to another tenant now."""
        app = self._apps.by_key(connection.app.key)
        if app is None or app.tenant != connection.app.tenant:
            if not connection.closing:
                connection.close_as(codes.NO_APP, "this key is not valid any more; connect with the app's new key")
            return False
        connection.app = app
        return True

    async def apps_replaced(self) -> None:
        """Close the sockets whose app is gone, in slices."""
        context = self._services.context
        async for some in context.slices.cut([*context.registry.connections.values()]):
            for connection in some:
                if isinstance(connection, PusherConnection) and not connection.code:
                    self._follow_app(connection)

    def status_changed(self, key: Key) -> None:
        """Adapt to a user on this node who has become invisible, or visible again."""
        for connection in self._services.context.registry.connections_of(*key):
            if isinstance(connection, PusherConnection):
                self._subscriber.shown_or_hidden(connection)

    def _ping_received(self, connection: PusherConnection, frame: ClientFrame) -> None:
        connection.send(frames.PONG, record=False, key="pong")

    def _subscribe(self, connection: PusherConnection, frame: ClientFrame) -> Awaitable[None]:
        return self._subscriber.subscribe(connection, frames.read_subscribe(frame.data))

    def _unsubscribe(self, connection: PusherConnection, frame: ClientFrame) -> None:
        self._subscriber.unsubscribe(connection, frames.read_unsubscribe(frame.data).channel)

    # --- sign-in ---

    async def _signin(self, connection: PusherConnection, frame: ClientFrame) -> None:
        try:
            asked = frames.read_signin(frame.data)
            key, _, signature = asked.auth.partition(":")
            text = user_text(connection.id, asked.user_data)
            if key != connection.app.key or not is_signed(connection.app.secrets, text, signature):
                raise NotAccepted("the auth of the sign-in is wrong; check key and secret of the app's auth endpoint")
            user = frames.read_user(asked.user_data)
            grants = self._identities.grants(connection, str(user.id), user.user_info)
            is_new = connection.session is None
            await self._identities.open(connection, grants)
        except msgspec.DecodeError as error:
            self._refuse_signin(connection, f"the sign-in is not valid: {error}")
            return
        except NotAccepted as error:
            self._refuse_signin(connection, str(error))
            return
        connection.send(frames.signed_in(asked.user_data))
        if is_new:
            await self._subscriber.user_known(connection)
        if user.watchlist:
            await self._watch(connection, [str(watched) for watched in user.watchlist])

    @staticmethod
    def _refuse_signin(connection: PusherConnection, why: str) -> None:
        connection.close_as(codes.UNAUTHORIZED, why, frames.error_frame(codes.UNAUTHORIZED, why[:300]))

    async def _watch(self, connection: PusherConnection, users: list[str]) -> None:
        """Watch the users of a watchlist. Send the ids of those who are online now."""
        if len(users) > MOST_WATCHED:
            why = f"a watchlist may have at most {MOST_WATCHED} users; the first are watched"
            connection.send(frames.error_frame(codes.LONG_WATCHLIST, why))
        watched = [user for user in dict.fromkeys(users) if valid_id(user)][:MOST_WATCHED]
        if not watched:
            return
        if connection.online is None:  # else the client signs in again, and knows who is online
            connection.online = set()
        try:
            found = await self._services.dispatcher.execute(connection, wire.Watch(users=watched))
        except Refused as refused:
            connection.send(frames.error_frame(None, refused.message))
            return
        assert isinstance(found, Raw)
        online = {one.user for one in read_watched(found).presence if one.state != "offline"}
        if shown := [user for user in watched if user in online and user not in connection.online]:
            connection.online.update(shown)
            connection.send(frames.watchlist("online", shown))


_WHY = {
    codes.NO_APP: "there is no app with this key; check the key",
    codes.BAD_VERSION: "the version of the client is not valid",
    codes.NO_PROTOCOL_7: f"this protocol version is not supported; use {OLDEST} to {NEWEST}",
    codes.NO_PROTOCOL: "the query has no protocol version; connect with protocol=7",
}


def _version_refusal(query: bytes) -> int:
    """Return the close code for the versions in the query of a request; 0 if they are right."""
    try:
        given = parse_qs(query.decode("latin-1"), max_num_fields=20)
    except ValueError:
        return codes.BAD_VERSION
    protocol = given.get("protocol", [""])[0]
    if not protocol:
        return codes.NO_PROTOCOL
    if not (protocol.isascii() and protocol.isdecimal() and OLDEST <= int(protocol[:9]) <= NEWEST):
        return codes.NO_PROTOCOL_7
    version = given.get("version", ["0"])[0]
    return 0 if version[:1].isdigit() and len(version) <= 64 else codes.BAD_VERSION
