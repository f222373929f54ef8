"""Centrifuge protocol on a node: commands of clients become native commands, their outcomes become replies.

Commands of a connection are handled in order. All checks, limits and effects are those of the native commands.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from importlib.util import find_spec
from typing import Any
from urllib.parse import parse_qs

from msgspec import UNSET

from greendot import __version__
from greendot.compat.centrifuge.channel_model import Namespaces, room_of
from greendot.compat.centrifuge.channels import CentrifugeServices
from greendot.compat.centrifuge.codec_model import (
    PING_FRAME,
    BadCommand,
    Command,
    Connect,
    ConnectResult,
    History,
    Method,
    Ping,
    Presence,
    PresenceStats,
    Publish,
    Refresh,
    RefreshResult,
    Result,
    Rpc,
    Send,
    SubRefresh,
    Subscribe,
    SubscribeResult,
    Unsubscribe,
    error_frame,
    read_command,
    reply_frame,
    split_frame,
)
from greendot.compat.centrifuge.codes_model import CfErr, CfError, CfRefused, error_of
from greendot.compat.centrifuge.commands import MOST_TTL_S, ChannelCommands, make_dialect
from greendot.compat.centrifuge.connection import CentrifugeConnection
from greendot.compat.centrifuge.rpc import RpcProxy
from greendot.compat.centrifuge.tokens import granted_channels
from greendot.connect.dispatch import refusal_of
from greendot.errors import EngineUnavailable, KeysUnavailable, Refused, StoreUnavailable, TokenError, Unstorable
from greendot.ids import incarnation_of, valid_id
from greendot.node.channel import ReplyKey, RoomKey
from greendot.node.session import Session
from greendot.protocol import commands as wire
from greendot.protocol.codes import Close
from greendot.telemetry import log_events
from greendot.telemetry.log import log
from greendot.transport.upgrade import ForeignRequest, ForeignSocket

PATH = b"/connection/websocket"
PROTOBUF = b"centrifuge-protobuf"
CONNECT_S = 10.0  # time for a new socket to send `connect`
AT_ONCE = 64  # commands of one frame that are handled without giving other connections a turn
MOST_REFUSED = 100  # commands of one frame over the limit that are answered
PING_S, PONG_S = 25, 10.0  # seconds between two pings, and time for the answer
VERSION = f"greendot {__version__}"
_NAMES: dict[type[Method], str] = {  # of results in replies
    Subscribe: "subscribe",
    Unsubscribe: "unsubscribe",
    Publish: "publish",
    Presence: "presence",
    PresenceStats: "presence_stats",
    History: "history",
    Refresh: "refresh",
    SubRefresh: "sub_refresh",
    Rpc: "rpc",
}
Handler = Callable[[CentrifugeConnection, Session, Any], Awaitable[Result]]


class CentrifugeProtocol:
    """Centrifuge protocol of all tenants that have it (`node.session.ForeignProtocol`)."""

    def __init__(
        self,
        services: CentrifugeServices,
        commands: ChannelCommands,
        namespaces: Mapping[str, Namespaces],
        rpc: RpcProxy,
    ) -> None:
        self._services = services
        self._node = services.node
        self._commands = commands
        self._namespaces = namespaces
        self._timers = services.node.context.timers
        self._ping_s = max(1, min(PING_S, int(services.node.heartbeat_s)))
        # Until the token names the tenant, by whether the client reads Protobuf.
        self._no_tenant = {False: make_dialect(False, Namespaces({}), False)}
        if has_protobuf():
            self._no_tenant[True] = make_dialect(True, Namespaces({}), False)
        self._handlers: dict[type[Method], Handler] = {
            Subscribe: commands.subscribe,
            Unsubscribe: commands.unsubscribe,
            SubRefresh: commands.refresh,
            Publish: commands.publish,
            Presence: commands.presence,
            PresenceStats: commands.presence_stats,
            History: commands.history,
            Refresh: self._refresh,
            Rpc: rpc.call,
        }

    # --- the socket ---

    def connect(self, request: ForeignRequest) -> ForeignSocket:
        """Return the connection of a new client."""
        offered = request.headers.get(b"sec-websocket-protocol", b"")
        named = PROTOBUF in [name.strip() for name in offered.split(b",")]
        is_binary = named or _asks_for_protobuf(request.query)
        dialect = self._no_tenant.get(is_binary, self._no_tenant[False])
        connection = CentrifugeConnection(self._node, self, dialect, self._node.connections.new_id())
        connection.is_binary = is_binary
        connection.set_up(self._node, request)
        # A subprotocol that is not named in the response would look like a broken network, and the client would retry.
        return ForeignSocket(connection, PROTOBUF if named else b"")

    def opened(self, connection: CentrifugeConnection) -> None:
        if connection.is_binary and True not in self._no_tenant:
            connection.close(Close.VERSION, "this server has no Protobuf: install greendot[protobuf], or use JSON")
            return
        self._services.hello.strangers.add(connection)
        connection.alarm = self._timers.set(CONNECT_S, self._check_connected, connection)

    def _check_connected(self, connection: CentrifugeConnection) -> None:
        if connection.session is not None or connection.closing:
            return
        if connection.is_connecting:  # the token may turn out to be expired, and the client may send no other
            connection.alarm = self._timers.set(CONNECT_S, self._check_connected, connection)
        else:
            connection.is_stale = True
            connection.close(Close.PROTOCOL_ERROR, "no connect within 10 s; send connect first")

    def ended(self, connection: CentrifugeConnection) -> None:
        self._timers.cancel(connection.alarm)
        for subscription in connection.subscriptions.values():
            self._timers.cancel(subscription.timer)
        connection.subscriptions.clear()

    def room_closed(self, connection: CentrifugeConnection, room: str) -> None:
        """Do nothing: every client of this protocol has a user, whose access the node checks."""

    def ping(self, connection: CentrifugeConnection) -> None:
        connection.send(PING_FRAME, record=False, key="ping")

    def _ping(self, connection: CentrifugeConnection) -> None:
        if not connection.closing:
            self.ping(connection)
            connection.alarm = self._timers.set(PONG_S, self._check_pong, connection)

    def _check_pong(self, connection: CentrifugeConnection) -> None:
        """Close a connection whose client has sent nothing since the last ping."""
        if connection.closing:
            return
        if self._timers.now() - connection.received_at > PONG_S:
            connection.close(Close.HEARTBEAT_LOST, "no pong")
        else:
            connection.alarm = self._timers.set(max(0.1, self._ping_s - PONG_S), self._ping, connection)

    # --- commands ---

    def received(self, connection: CentrifugeConnection, message: str) -> Awaitable[None] | None:
        if message == "{}":
            return None
        try:
            text = connection.json_of(message)
            if text == "{}":
                return None
            lines = split_frame(text)
        except BadCommand as bad:
            connection.close(Close.PROTOCOL_ERROR, bad.error.message)
            return None
        return self._handle(connection, lines)

    def refused(self, connection: CentrifugeConnection, message: str, refused: Refused) -> None:
        """Answer the commands of a frame that is over the limit of the connection."""
        error = error_of(refused)
        try:
            text = connection.json_of(message)
        except BadCommand as bad:
            connection.close(Close.PROTOCOL_ERROR, bad.error.message)
            return
        for line in text.split("\n")[:MOST_REFUSED]:
            try:
                command = read_command(line)
            except BadCommand as bad:
                command = Command(bad.id, Ping())
            if command.id:
                connection.send(error_frame(command.id, error))

    async def _handle(self, connection: CentrifugeConnection, lines: list[str]) -> None:
        for number, line in enumerate(lines):
            if number and number % AT_ONCE == 0:
                await self._node.context.slices.turn()
            if connection.closing:
                return
            # The dispatcher has counted the frame, which is the first command.
            wait_s = 0.0 if not number or connection.limit is None else connection.limit.admit(connection.received_at)
            if not wait_s:
                await self._handle_one(connection, line)
            elif connection.limit is not None:
                self.refused(connection, line, self._node.rate_limits.over(connection.limit, wait_s))
                if connection.limit.flooding:
                    connection.close(Close.OVERLOADED, "command rate far above the limit; reconnect later")

    async def _handle_one(self, connection: CentrifugeConnection, line: str) -> None:
        try:
            command = read_command(line)
        except BadCommand as bad:
            if bad.id and connection.session is not None:
                connection.send(error_frame(bad.id, bad.error))
            else:
                connection.close(Close.PROTOCOL_ERROR, bad.error.message)
            return
        method, session = command.method, connection.session
        if isinstance(method, Ping | Send):
            return
        if session is not None and not isinstance(method, Connect):
            await self._answer(connection, session, command)
        elif session is None and isinstance(method, Connect):
            await self._connect(connection, command.id, method)
        else:
            wrong = "connect was sent twice" if session is not None else "the first command must be connect"
            connection.close(Close.PROTOCOL_ERROR, wrong)

    async def _answer(self, connection: CentrifugeConnection, session: Session, command: Command) -> None:
        method = command.method
        self._commands.forget_lost(connection, session, getattr(method, "channel", ""))
        try:
            result = await self._handlers[type(method)](connection, session, method)
        except CfRefused as refused:
            connection.send(error_frame(command.id, refused.error))
        except (Refused, EngineUnavailable, StoreUnavailable, Unstorable) as error:
            connection.send(error_frame(command.id, error_of(refusal_of(error))))
        else:
            # A reply with data of a room has the room's key, so it can be withdrawn from a removed user.
            room = room_of(getattr(method, "channel", ""))
            key = RoomKey(room, ReplyKey(command.id)) if room else None
            connection.send(reply_frame(command.id, _NAMES[type(method)], result), key=key)

    # --- the connection ---

    async def _connect(self, connection: CentrifugeConnection, id: int, connect: Connect) -> None:
        """Open the session of a token. A client whose token has expired gets an error, and may send another token."""
        connection.is_connecting = True
        try:
            connection.granted = await self._services.tokens.verify(connect.token, self._node.clock.now_ms())
        except KeysUnavailable as error:
            connection.close(Close.OVERLOADED, str(error))
        except TokenError as error:
            log(log_events.HELLO_REFUSED, reason=error, code=int(Close.BAD_TOKEN))
            if error.expired:
                connection.is_connecting = False
                connection.send(error_frame(id, CfError(CfErr.TOKEN_EXPIRED, "token expired")))
            else:
                connection.close(Close.BAD_TOKEN, str(error))
        else:
            await self._open(connection, connection.granted.tenant, id, connect)

    async def _open(self, connection: CentrifugeConnection, tenant: str, id: int, connect: Connect) -> None:
        if tenant not in self._namespaces:
            connection.close(Close.BAD_TOKEN, "the tenant of the token does not serve this protocol")
        elif await self._node.dispatcher.open_session(connection, _hello(connect)) and connection.session is not None:
            await self._welcome(connection, connection.session, id, connect)

    async def _welcome(self, connection: CentrifugeConnection, session: Session, id: int, connect: Connect) -> None:
        connection.is_connecting = False
        connection.dialect = self._commands.dialect(connection, session.tenant)
        connection.hold()  # publications of server-side subscriptions follow the reply that names these
        subs = await self._subscribe_granted(connection, session, connect)
        if connection.closing:
            return
        result = ConnectResult(
            client=session.id,
            version=VERSION,
            expires=True,
            ttl=self._ttl_s(session),
            ping=self._ping_s,
            pong=True,
            session=session.id,
            node=incarnation_of(session.id),
            subs=subs or UNSET,
        )
        connection.release([(reply_frame(id, "connect", result), None)])
        self._timers.cancel(connection.alarm)
        connection.alarm = self._timers.set(self._ping_s, self._ping, connection)

    async def _subscribe_granted(
        self, connection: CentrifugeConnection, session: Session, connect: Connect
    ) -> dict[str, SubscribeResult]:
        """Subscribe a client to the channels of its token. Close it after a temporary refusal, so that it returns."""
        subs: dict[str, SubscribeResult] = {}
        for channel in granted_channels(connect.token):
            known = connect.subs.get(channel)
            try:
                subs[channel] = await self._commands.subscribe_claimed(connection, session, channel, known)
            except (CfRefused, Refused) as refused:
                log(log_events.HELLO_REFUSED, reason=refused, code=0)
                error = refused.error if isinstance(refused, CfRefused) else error_of(refused)
                if error.temporary:
                    connection.close(Close.OVERLOADED, "a channel of the token is not available now; reconnect later")
            if connection.closing:
                break
        return subs

    def _ttl_s(self, session: Session) -> int:
        return min(max(1, (session.grants.expires_at - self._node.clock.now_ms()) // 1000), MOST_TTL_S)

    async def _refresh(self, connection: CentrifugeConnection, session: Session, asked: Refresh) -> Result:
        try:
            await self._services.tokens.verify(asked.token, self._node.clock.now_ms())
        except KeysUnavailable as error:
            raise CfRefused(CfErr.INTERNAL, str(error), temporary=True) from None
        except TokenError as error:
            if not error.expired:
                connection.close(Close.BAD_TOKEN, str(error))
            raise CfRefused(CfErr.TOKEN_EXPIRED, "token expired") from None
        await self._node.dispatcher.execute(connection, wire.TokenRefresh(token=asked.token))
        self._commands.keep_claimed(connection, session, granted_channels(asked.token))
        return RefreshResult(session.id, VERSION, expires=True, ttl=self._ttl_s(session))


def has_protobuf() -> bool:
    """Return whether the library for Protobuf is installed."""
    try:
        return find_spec("google.protobuf") is not None
    except ModuleNotFoundError:  # there is no package `google`
        return False


def _asks_for_protobuf(query: bytes) -> bool:
    if not query:
        return False
    asked = parse_qs(query.decode("latin-1"))
    return "protobuf" in (*asked.get("format", ()), *asked.get("cf_protocol", ()))


def _hello(connect: Connect) -> wire.Hello:
    """Return the native hello. Clients of one kind are one device: their lost session ends when one returns."""
    name = connect.name if valid_id(connect.name) else "centrifuge"
    return wire.Hello(device=name, client=wire.ClientInfo(name=name[:64], version=connect.version[:64]))
