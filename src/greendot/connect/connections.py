"""Client connections of a node, from the accepted socket to its end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from msgspec import Struct

from greendot.connect.disconnect import DisconnectCleanup
from greendot.connect.dispatch import Dispatcher
from greendot.connect.drain import Drainer
from greendot.connect.event_streams import EventStreams
from greendot.connect.hello import HelloService
from greendot.engine.messages import Disconnect, RoomOrder
from greendot.engine.port import Engine
from greendot.errors import EngineUnavailable
from greendot.ids import hashed, incarnation_of
from greendot.limits.connection_limits import ConnectionLimits, TooManyConnections
from greendot.limits.rate_limits import RateLimits
from greendot.node.bus import BusTable
from greendot.node.context import NodeContext
from greendot.node.session import Connection, ForeignProtocol, log_fields
from greendot.presence.grace_model import EndCause, shown_code
from greendot.presence.sessions import SessionService
from greendot.protocol.codec import encode_event
from greendot.protocol.codes import Close
from greendot.protocol.events import Refresh
from greendot.telemetry import log_events
from greendot.telemetry.log import log
from greendot.telemetry.metrics import Metrics
from greendot.transport.ingress import IngressPolicy
from greendot.transport.upgrade import ForeignRequest
from greendot.transport.websocket import READ

LONGEST_S = 4.0  # longest wait until a client that cannot read an event gets `refresh`; the shortest is half as long


_kept_hash = lru_cache(maxsize=1024)(hashed)  # many clients have the same agent, or come from the same address


class ConnectionOptions(Struct, frozen=True):
    """Options of client connections, from the settings."""

    hash_key: bytes  # for addresses and user agents
    most_strangers: int  # sockets without a hello
    token_in_query: bool


class ClientConnections:
    """Owner of every client connection (`transport.connection.Owner`, `transport.event_stream.StreamHost`)."""

    def __init__(
        self,
        engine: Engine,
        context: NodeContext,
        metrics: Metrics,
        ingress: IngressPolicy,
        sessions: SessionService,
        hello: HelloService,
        dispatcher: Dispatcher,
        cleanup: DisconnectCleanup,
        drainer: Drainer,
        rate_limits: RateLimits,
        connection_limits: ConnectionLimits,
        streams: EventStreams,
        options: ConnectionOptions,
    ) -> None:
        self.timers = context.timers
        self.ingress = ingress
        self.streams = streams
        self.read_buffer = memoryview(bytearray(READ))
        self.now = context.clock.monotonic
        self._clock = context.clock
        self.has_output, self.waiting = context.hub.has_output, context.hub.waiting
        self.set_timer = context.timers.set
        self.cancel_timer = context.timers.cancel
        self.received = dispatcher.received
        self.counted = dispatcher.counted
        self.violated = dispatcher.violated
        self.count_coalesced = metrics.coalesce
        self.token_in_query = options.token_in_query
        self.bus: BusTable = {Disconnect: self._disconnect_received, RoomOrder: self._ordered}
        self.order_listeners: list[Callable[[Connection, RoomOrder], None]] = []  # of foreign protocols
        self._engine = engine
        self._registry = context.registry
        self._metrics = metrics
        self._sessions = sessions
        self._hello = hello
        self._dispatcher = dispatcher
        self._cleanup = cleanup
        self._drainer = drainer
        self._rate_limits = rate_limits
        self._connection_limits = connection_limits
        self._options = options
        self._numbers = 0
        self._unread: dict[Connection, set[str]] = {}  # types of events that have no version the client reads

    # --- new sockets ---

    def crowded_s(self) -> float | None:
        """Return the seconds after which a client may retry if too many sockets have not sent hello; else None."""
        if len(self._hello.strangers) < self._options.most_strangers:
            return None
        self._metrics.realtime_upgrades_refused_total += 1
        return self._hello.turn_s()

    def connect(self, agent: str | None, token: str = "", address: str | None = None) -> Connection:
        """Return the connection for a socket that is being upgraded. `token` came with its request."""
        connection = Connection(self, self.new_id(), token)
        key = self._options.hash_key
        connection.agent_hash = _kept_hash(key, agent) if agent else None
        connection.ip_hash = _kept_hash(key, address) if address else None
        return connection

    def new_id(self) -> str:
        """Return an id for a new connection. The id names its node."""
        self._numbers += 1
        return f"{self._sessions.incarnation}/{self._numbers}"

    def adopt(self, connection: Connection, request: ForeignRequest) -> None:
        """Set up a connection that speaks a foreign protocol."""
        key = self._options.hash_key
        connection.agent_hash = _kept_hash(key, request.agent) if request.agent else None
        connection.ip_hash = _kept_hash(key, request.address)

    def opened(self, connection: Connection) -> None:
        self._metrics.ws_connections_total += 1
        self._registry.connections[connection.id] = connection
        self._rate_limits.opened(connection)
        if connection.foreign is not None:
            self._sessions.deadlines.expect_frames(connection)
            self._opened_foreign(connection, connection.foreign)
        else:
            self._hello.strangers.add(connection)
            self._sessions.deadlines.expect_hello(connection)
        if self._drainer.begun:
            self._drainer.turn_away(connection)

    def _opened_foreign(self, connection: Connection, foreign: ForeignProtocol) -> None:
        try:
            if connection.tenant is not None:
                self._connection_limits.enter(connection, connection.tenant)
                self._registry.counted(connection, connection.tenant)
        except TooManyConnections as error:
            connection.close(Close.OVERLOADED, str(error))
        else:
            foreign.opened(connection)

    # --- ended sockets ---

    def ended(self, connection: Connection, cause: EndCause, code: int) -> None:
        if code == Close.TOO_SLOW:
            self._metrics.realtime_client_slow_closed_total += 1
        if cause is EndCause.CLIENT_CLOSE and self._dispatcher.bye_waits(connection):
            cause = EndCause.BYE
        connection.ended_by = (cause, code)
        if connection.foreign is not None:
            connection.foreign.ended(connection)
        self._registry.ended(connection, shown_code(cause, code))
        if self._hello.forget(connection):
            connection.waiting = None
        # While a command is under way, the cleanup waits, because it must also undo what the command registers.
        if connection.waiting is None:
            self._cleanup.add(connection)

    def gone(self, connection: Connection) -> None:
        if connection.timer is not None:
            self.timers.cancel(connection.timer)
            connection.timer = None
        self._registry.gone(connection)
        self._connection_limits.gone(connection)
        self._drainer.gone()

    async def disconnect(self, session_id: str, code: int, reason: str, tenant: str) -> bool:
        """Close a tenant's session on any node. Return False if there is no such session or node.

        Raise EngineUnavailable if the node is live, but receives no messages now.
        """
        is_elsewhere = incarnation_of(session_id) != self._sessions.incarnation
        if session_id in self._registry.sessions or not is_elsewhere:
            return self._disconnect(session_id, code, reason, tenant)
        # A node that was taken for dead continues under another name. Its sessions keep their ids.
        node = incarnation_of(session_id)
        is_reached = await self._engine.reach(node, Disconnect(session_id, code, reason, tenant))
        if not is_reached and node in self._engine.live_nodes():
            raise EngineUnavailable(f"node {node} is live, but receives no messages now")
        return is_reached

    async def disconnect_all(self, session_ids: Iterable[str], code: int, reason: str, tenant: str) -> int:
        """Close several sessions of a tenant, and return their number. An error does not keep other sessions open."""
        work = (self.disconnect(session, code, reason, tenant) for session in session_ids)
        found = await asyncio.gather(*work, return_exceptions=True)
        for outcome in found:
            if isinstance(outcome, BaseException):
                raise outcome
        return found.count(True)

    def _disconnect_received(self, topic: Any, message: Disconnect) -> None:
        self._disconnect(message.session, message.code, message.reason, message.tenant)

    def _disconnect(self, session_id: str, code: int, reason: str, tenant: str | None) -> bool:
        session = self._registry.sessions.get(session_id)
        if session is None or tenant not in (None, session.tenant):
            return False
        if code == Close.REPLACED:
            self._sessions.moved(session)
        if session.connection is None:
            return False
        session.connection.close(code, reason)
        return True

    def _ordered(self, topic: Any, order: RoomOrder) -> None:
        """Pass an order of the app to the protocols of the clients it is for."""
        if not self.order_listeners:
            return
        for connection in [*self._registry.connections_of(order.tenant, order.user)]:
            session = connection.session
            if connection.foreign is not None and session is not None and order.session in ("", session.id):
                for follow in self.order_listeners:
                    follow(connection, order)

    def cut(self, session_id: str) -> bool:
        """Abort a session's socket, as a broken network does.

        Return False if the session has no socket on this node.
        """
        session = self._registry.sessions.get(session_id)
        if session is None or session.connection is None:
            return False
        session.connection.abort()
        return True

    # --- old versions ---

    def unread(self, connection: Connection, types: Iterable[str]) -> None:
        """Send `refresh` for event types that the client cannot read: once, after a random wait.

        The wait keeps a room full of old clients from fetching at the same time.
        """
        unread = self._unread.get(connection)
        if unread is None:
            unread = self._unread[connection] = set()
            self.timers.set(LONGEST_S * random.uniform(0.5, 1.0), self._send_refresh, connection)
        unread.update(types)

    def _send_refresh(self, connection: Connection) -> None:
        now = self._clock.now_ms()
        for of in sorted(self._unread.pop(connection)):
            connection.send(encode_event(Refresh(of), now))

    # --- metrics ---

    def count_dropped(self, frame: bytes) -> None:
        self._metrics.drop(frame, "slow")

    def slow(self, connection: Connection) -> None:
        self._metrics.realtime_client_slow_total += 1
        log(log_events.CONNECTION_SLOW, **log_fields(connection.session))

    def count_send_failed(self) -> None:
        self._metrics.realtime_socket_send_failed_total += 1
