"""Connections of clients that speak a foreign protocol, and what the node offers to these protocols."""

from __future__ import annotations

from msgspec import Struct

from greendot.clock import Clock
from greendot.connect.connections import ClientConnections
from greendot.connect.dispatch import Dispatcher
from greendot.node.context import NodeContext
from greendot.node.session import Connection, ForeignProtocol
from greendot.protocol.codes import Close
from greendot.protocol.versions import Dialect
from greendot.rooms.service import RoomService
from greendot.transport.upgrade import ForeignRequest

WS_PING = b"\x89\x00"  # frame that every WebSocket client answers by itself


class NodeServices(Struct, frozen=True):
    """Services of the node that foreign protocols use. Commands run through the dispatcher, as those of clients do."""

    clock: Clock
    context: NodeContext
    connections: ClientConnections
    dispatcher: Dispatcher
    rooms: RoomService
    heartbeat_s: float
    expires_ms: int  # lifetime of an identity that a foreign protocol has verified


class ForeignConnection(Connection):
    """Connection whose frames a foreign protocol reads, and whose output a dialect of this protocol converts."""

    __slots__ = ("foreign", "granted")

    def __init__(self, services: NodeServices, foreign: ForeignProtocol, dialect: Dialect, number: str) -> None:
        super().__init__(services.connections, number)
        self.foreign: ForeignProtocol = foreign
        self.granted = None
        self.dialect = dialect

    def set_up(self, services: NodeServices, request: ForeignRequest) -> None:
        """Record the client's address and program, as for other clients."""
        services.connections.adopt(self, request)

    def send_ping(self) -> None:
        """Send a ping of the WebSocket protocol. Its answer is a sign of life."""
        self.send(WS_PING, record=False, key="ping")


def retries_later(code: int) -> bool:
    """Return whether a client closed with a code of ours should wait before it returns."""
    return code in (Close.DRAINING, Close.OVERLOADED, Close.TOO_SLOW, Close.RESYNC)
