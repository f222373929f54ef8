"""Centrifuge protocol of a node: the WebSocket path and its connections."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qs

from greendot.compat.centrifuge.channel_model import Namespaces
from greendot.compat.centrifuge.channels import CentrifugeServices, Channels
from greendot.compat.centrifuge.commands import ChannelCommands
from greendot.compat.centrifuge.connection import CentrifugeConnection
from greendot.compat.centrifuge.protocol import CentrifugeProtocol
from greendot.transport.upgrade import ForeignRequest, ForeignSocket, SocketRoute

PATH = b"/connection/websocket"
PROTOBUF = b"centrifuge-protobuf"


class CentrifugeServer:
    """Centrifuge protocol for the tenants that have it."""

    def __init__(self, services: CentrifugeServices, namespaces: Mapping[str, Namespaces]) -> None:
        self._node = services.node
        self.channels = Channels(services, namespaces)
        commands = ChannelCommands(services, self.channels, namespaces)
        self.protocol = CentrifugeProtocol(services, commands, namespaces)
        services.node.connections.order_listeners.append(commands.ordered)
        self.route = SocketRoute(PATH, self.connect)

    def connect(self, request: ForeignRequest) -> ForeignSocket:
        """Return the connection of a new client."""
        connection = CentrifugeConnection(
            self._node, self.protocol, self.protocol.no_tenant, self._node.connections.new_id()
        )
        connection.set_up(self._node, request)
        offered = request.headers.get(b"sec-websocket-protocol", b"")
        named = PROTOBUF in [name.strip() for name in offered.split(b",")]
        connection.is_binary = named or _asks_for_protobuf(request.query)
        # A subprotocol that is not named in the response would look like a broken network, and the client would retry.
        return ForeignSocket(connection, PROTOBUF if named else b"")


def _asks_for_protobuf(query: bytes) -> bool:
    if not query:
        return False
    asked = parse_qs(query.decode("latin-1"))
    return "protobuf" in (*asked.get("format", ()), *asked.get("cf_protocol", ()))
