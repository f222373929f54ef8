"""Port that serves HTTP and WebSocket.

Each socket starts in the `ProtocolSniffer`. A first packet that is a plain WebSocket handshake skips the HTTP parser.
Anything else goes on to the `HttpProtocol`, which upgrades sockets too. Both admit WebSockets through `accept`.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from greendot.errors import ConfigError
from greendot.node.timer_model import Timer
from greendot.transport.acceptor import Acceptor
from greendot.transport.event_stream import StreamHost
from greendot.transport.http1 import MAX_HEAD, REQUEST_S, TOO_SLOW, HttpProtocol
from greendot.transport.http_exchange import RequestThrottle
from greendot.transport.ingress import PendingSocket
from greendot.transport.parse_budget import ParseBudget
from greendot.transport.plain_socket import SocketProtocol
from greendot.transport.tls import Certificate, release
from greendot.transport.upgrade import PortState, SocketRoute, WebSocketRequest, accept, refuse, route_of
from greendot.transport.websocket import Framing
from greendot.transport.websocket_handshake import PATH, KnownHandshakes

UNDER_WAY_S = 2.0  # time for requests being answered when the server closes
SEND_BUFFER = 128 * 1024  # bytes the kernel may buffer for one client; the kernel doubles this number for its overhead


class ProtocolSniffer(SocketProtocol):
    """Protocol of a socket whose first bytes have not been examined yet."""

    __slots__ = ("_deadline", "_first", "_sockets", "_transport", "_visit", "_web")

    _transport: asyncio.Transport

    def __init__(self, sockets: StreamHost, web: PortState, visit: PendingSocket, first: bytes) -> None:
        """Create the protocol. `first` has the bytes that were read already; it may be empty."""
        self._sockets = sockets
        self._web = web
        self._visit = visit
        self._first = first
        self._deadline: Timer | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        if self._first and self._answer_handshake(self._first):  # nearly every socket
            return
        self._deadline = self._sockets.timers.set(REQUEST_S, ProtocolSniffer._too_slow, self)
        self._web.connections.add(self)
        if self._first:
            # In the next turn: the HTTP protocol may pause reading, and the transport begins to read after this method.
            asyncio.get_running_loop().call_soon(self._receive_first)

    def connection_lost(self, exc: Exception | None) -> None:
        self._first = b""
        self._leave()
        self._sockets.ingress.leave(self._visit)
        release(self._transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._web.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.feed(bytes(self._web.buffer[:nbytes]))

    def feed(self, data: bytes) -> None:
        self._receive(self._first + data)

    def eof_received(self) -> bool:
        if not self._first:
            return False
        self._receive_first()
        return bool(self._transport.get_protocol().eof_received())  # type: ignore[attr-defined]

    def _receive_first(self) -> None:
        if self._first:
            self._receive(self._first)

    def _receive(self, data: bytes) -> None:
        self._first = b""
        self._leave()
        if self._transport.is_closing() or self._answer_handshake(data):
            return
        assert self._deadline is not None
        within_s = self._deadline.due - self._sockets.timers.now()
        protocol = HttpProtocol(self._sockets, self._web, self._visit, within_s)
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        protocol.feed(data)

    def _answer_handshake(self, data: bytes) -> bool:
        """Upgrade the socket if `data` is a plain handshake, or refuse it.

        Return False if the socket is for the HTTP protocol.
        """
        refusal = self._sockets.ingress.crowded(self._visit)
        if refusal is None:
            upgrade = self._web.handshakes.read(data) if self._web.clients else None
            if upgrade is None:
                return False
            key, asked, headers, path, query = upgrade.key, upgrade.asked, upgrade.headers, upgrade.path, upgrade.query
            if path == PATH:
                request = WebSocketRequest(key, asked, headers)
            else:
                route = route_of(self._web.routes, path)
                request = WebSocketRequest(key, asked, headers, route=route, path=path, query=query)
            refusal = accept(self._sockets, self._transport, request, self._visit)
        if refusal is not None:
            refuse(self._transport, refusal)
        return True

    def shutdown(self) -> None:
        """Close the socket, because the server is closing."""
        self._transport.close()

    def _leave(self) -> None:
        self._sockets.timers.cancel(self._deadline)
        self._web.connections.discard(self)

    def _too_slow(self) -> None:
        self._sockets.ingress.count(TOO_SLOW.counter)
        refuse(self._transport, TOO_SLOW)


class Listener:
    """Server of one address, until closed."""

    def __init__(
        self,
        sockets: StreamHost,
        app: Any,
        certificate: Certificate | None = None,
        *,
        hsts_s: int = 0,
        dashboard_socket: Callable[[], Framing] | None = None,
        clients: bool = True,
        routes: Sequence[SocketRoute] = (),
    ) -> None:
        """Create a listener that does not listen yet.

        `dashboard_socket` makes the sockets of the dashboard. With `clients` False no other WebSockets are accepted.
        `routes` are the WebSocket paths of foreign protocols.
        """
        self._sockets = sockets
        self._certificate = certificate
        headers = [(b"strict-transport-security", b"max-age=%d" % hsts_s)] if certificate is not None and hsts_s else []
        others = [route.path for route in routes]
        handshakes = KnownHandshakes(token_in_query=sockets.token_in_query, others=others)
        shared = (RequestThrottle(), ParseBudget(), memoryview(bytearray(MAX_HEAD)), handshakes)
        self._web = PortState(app, headers, dashboard_socket, clients, set(), set(), *shared, routes)
        self._acceptor: Acceptor | None = None
        self.port = 0
        self.shared = False  # set before `start` where several processes listen on the port

    async def start(self, host: str, port: int) -> None:
        """Listen. Raise ConfigError if the address is not available."""
        listener = bind(host, port, shared=self.shared)
        self.port = listener.getsockname()[1]
        certificate = self._certificate
        self._acceptor = Acceptor(
            listener,
            self._sockets.ingress,
            partial(ProtocolSniffer, self._sockets, self._web),
            lambda: None if certificate is None else certificate.context,
        )

    def reload(self) -> None:
        """Read the certificate again, if the listener has one."""
        if self._certificate is not None:
            self._certificate.reload()

    def stop_accepting(self) -> None:
        if self._acceptor is not None:
            self._acceptor.close()

    async def close(self) -> None:
        """Stop accepting, let requests under way end, then close the remaining sockets."""
        self.stop_accepting()
        for protocol in [*self._web.connections]:
            protocol.shutdown()
        if self._web.tasks:
            await asyncio.wait(self._web.tasks, timeout=UNDER_WAY_S)


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Return a socket that is bound to the address and does not listen yet.

    Processes that share a port must all pass `shared` and run as the same user. Raise ConfigError if the address is not
    available.
    """
    try:
        # As bytes, an ASCII name or address does not load the tables of international domain names.
        name = host.encode() if host.isascii() else host
        family, kind, proto, _, address = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, proto)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host!r}: {error.strerror}") from None
    except UnicodeError:
        raise ConfigError(f"cannot listen on {host!r}: it is not a host name") from None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Each connection inherits this. By default the kernel buffers megabytes for a client that does not read.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    if shared:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"port {port} is in use by another program, perhaps another Greendot. Stop it, or choose another port: "
                f"--port {port + 10 if port < 65_000 else port - 10}"
            ) from None
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}") from None
    listener.setblocking(False)
    return listener
