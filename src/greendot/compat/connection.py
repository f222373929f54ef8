"""Connections of clients that speak a foreign protocol, and what the node offers to these protocols."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct

from greendot.clock import Clock
from greendot.connect.connections import ClientConnections
from greendot.connect.dispatch import Dispatcher
from greendot.engine.port import Engine
from greendot.ids import Key
from greendot.limits.publisher_backpressure import Backpressure
from greendot.limits.rate_limits import RateLimits
from greendot.node.context import NodeContext
from greendot.node.session import Connection, ForeignProtocol
from greendot.protocol.cluster import ListenedQuery
from greendot.protocol.replies import SessionsReply
from greendot.protocol.versions import Dialect
from greendot.rooms.messages import RoomMessages
from greendot.rooms.service import RoomService
from greendot.store.port import Store
from greendot.transport.upgrade import ForeignRequest

WS_PING = b"\x89\x00"  # frame that every WebSocket client answers by itself


class NodeServices(Struct, frozen=True):
    """Services of the node that foreign protocols use. Commands run through the dispatcher, as those of clients do."""

    clock: Clock
    context: NodeContext
    engine: Engine
    store: Store
    connections: ClientConnections
    dispatcher: Dispatcher
    rooms: RoomService
    room_messages: RoomMessages
    rate_limits: RateLimits
    backpressure: Backpressure
    sessions_of: Callable[[str, str], Awaitable[SessionsReply]]  # by tenant and user, on all nodes
    listened: Callable[[ListenedQuery], Awaitable[dict[str, int]]]  # rooms with their listeners, on all nodes
    is_invisible: Callable[[Key], bool]  # by tenant and user, of users with sessions on this node
    heartbeat_s: float
    expires_ms: int = 86_400_000  # longest lifetime of an identity that a foreign protocol has verified


class ForeignConnection(Connection):
    """Connection whose frames a foreign protocol reads, and whose output a dialect of this protocol converts."""

    __slots__ = ("_of_tenant", "foreign", "granted")

    def __init__(
        self, services: NodeServices, foreign: ForeignProtocol, dialect: Dialect, number: str, tenant: str | None = None
    ) -> None:
        """Create a connection. `tenant` is known already if the request names it."""
        super().__init__(services.connections, number)
        self._of_tenant = tenant
        self.foreign: ForeignProtocol = foreign
        self.granted = None
        self.dialect = dialect

    def set_up(self, services: NodeServices, request: ForeignRequest) -> None:
        """Record the client's address and program, as for other clients."""
        services.connections.adopt(self, request)

    @property
    def tenant(self) -> str | None:
        return self._of_tenant if self.session is None else self.session.tenant

    def send_ping(self) -> None:
        """Send a ping of the WebSocket protocol. Its answer is a sign of life."""
        self.send(WS_PING, record=False, key="ping")
