"""End of HTTP on a socket: the socket becomes a WebSocket, or is refused and closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from greendot.node.timer_model import Timer
from greendot.transport.connection import SocketConnection
from greendot.transport.http_exchange import App, RequestThrottle, date_field
from greendot.transport.ingress import IngressPolicy, PendingSocket
from greendot.transport.parse_budget import ParseBudget
from greendot.transport.request_head import Field, Refusal
from greendot.transport.websocket import Framing
from greendot.transport.websocket_handshake import HandshakeFields, KnownHandshakes, switching_protocols

_CLOSE = b"connection: close\r\n"
_REFUSED = (
    b"HTTP/1.1 %b\r\n%b%bcache-control: no-store\r\nx-content-type-options: nosniff\r\n"
    b"referrer-policy: no-referrer\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n\r\n%b"
)


class Timers(Protocol):
    """Timers of the node (`node.timers`)."""

    def now(self) -> float: ...
    def set(self, delay_s: float, call: Callable[[Any], None], argument: Any = None) -> Timer: ...
    def cancel(self, timer: Timer | None) -> None: ...


class SocketHost(Protocol):
    """Node, as the server uses it."""

    ingress: IngressPolicy
    read_buffer: memoryview  # for one read of a WebSocket

    @property
    def timers(self) -> Timers: ...

    @property
    def token_in_query(self) -> bool: ...
    def connect(self, agent: str | None, token: str, address: str) -> SocketConnection: ...
    def crowded_s(self) -> float | None: ...


class ForeignRequest(NamedTuple):
    """Valid handshake of a client that speaks a foreign protocol."""

    path: bytes
    query: bytes
    headers: Mapping[bytes, bytes]  # by name in lower case
    agent: str | None
    address: str


class ForeignSocket(NamedTuple):
    """New socket of a foreign protocol, and the subprotocol to name in the response, if there is one."""

    framing: Framing
    subprotocol: bytes = b""


class SocketRoute(NamedTuple):
    """WebSocket path of a foreign protocol. A path that ends with a slash stands for the paths below it."""

    path: bytes
    connect: Callable[[ForeignRequest], ForeignSocket]

    def serves(self, path: bytes) -> bool:
        if self.path.endswith(b"/"):
            return path.startswith(self.path) and b"/" not in path[len(self.path) :] and path != self.path
        return path == self.path


def route_of(routes: Sequence[SocketRoute], path: bytes) -> SocketRoute | None:
    """Return the route of a path; None if no foreign protocol has the path."""
    return next((route for route in routes if route.serves(path)), None)


class PortState(NamedTuple):
    """State that the sockets of one port share."""

    app: App
    default_headers: list[Field]
    dashboard_socket: Callable[[], Framing] | None  # makes the dashboard's sockets; None: not served on this port
    clients: bool  # False: a port without clients
    connections: set[Any]  # protocols whose `shutdown` is called when the server closes
    tasks: set[asyncio.Task[None]]  # requests being answered
    gate: RequestThrottle
    parsing: ParseBudget
    buffer: memoryview  # for one read; shared, because the data is copied at once
    handshakes: KnownHandshakes
    routes: Sequence[SocketRoute] = ()  # of foreign protocols


class WebSocketRequest(Struct, frozen=True):
    """Valid opening handshake."""

    key: bytes
    asked: HandshakeFields
    headers: Mapping[bytes, bytes]  # by name in lower case
    dashboard_socket: Callable[[], Framing] | None = None  # makes the dashboard's socket; None: a client
    rest: bytes = b""  # bytes received behind the handshake
    route: SocketRoute | None = None  # of a foreign protocol
    path: bytes = b""  # with `route` only, as is the query
    query: bytes = b""


def accept(
    sockets: SocketHost, transport: asyncio.Transport, request: WebSocketRequest, visit: PendingSocket
) -> Refusal | None:
    """Upgrade a socket to a WebSocket, or return the refusal. Only this function admits WebSockets."""
    address = admit(sockets, visit, request.headers, is_client=request.dashboard_socket is None)
    if not isinstance(address, str):
        return address
    asked = request.asked
    framing: Framing
    if request.dashboard_socket is not None:
        framing = request.dashboard_socket()
    elif request.route is not None:
        _accept_foreign(sockets, transport, request, visit, address)
        return None
    else:
        framing = sockets.connect(asked.agent, asked.token, address)
    response = switching_protocols(request.key, by_name=asked.by_name)
    _open(sockets, transport, request, visit, framing, response)
    return None


def _accept_foreign(
    sockets: SocketHost, transport: asyncio.Transport, request: WebSocketRequest, visit: PendingSocket, address: str
) -> None:
    assert request.route is not None
    asked = ForeignRequest(request.path, request.query, request.headers, request.asked.agent, address)
    made = request.route.connect(asked)
    _open(sockets, transport, request, visit, made.framing, switching_protocols(request.key, other=made.subprotocol))


def _open(
    sockets: SocketHost,
    transport: asyncio.Transport,
    request: WebSocketRequest,
    visit: PendingSocket,
    framing: Framing,
    response: bytes,
) -> None:
    group, visit.group = visit.group, None  # the WebSocket's `depart` ends the count
    framing.open(transport, visit.fd, sockets.read_buffer, response, sockets.ingress.depart, group)
    if request.rest and not transport.is_closing():
        framing.feed(request.rest)


def admit(
    sockets: SocketHost, visit: PendingSocket, headers: Mapping[bytes, bytes], *, is_client: bool = True
) -> Refusal | str:
    """Return the address of a client or dashboard that may connect, or the refusal."""
    address = sockets.ingress.receive(visit, headers, secure=visit.fd < 0)
    if isinstance(address, str) and is_client:
        if visit.is_surplus and (refusal := sockets.ingress.surplus(visit)) is not None:
            return refusal
        if (wait_s := sockets.crowded_s()) is not None:
            return Refusal(b"503 Service Unavailable", retry_s=ceil(wait_s))
    return address


def refuse(transport: asyncio.Transport, refusal: Refusal) -> None:
    """Write a refusal and close the socket."""
    if not transport.is_closing():
        transport.write(refusal_bytes(refusal))
        transport.close()


def refusal_bytes(refusal: Refusal) -> bytes:
    """Return the HTTP response of a refusal."""
    headers = refusal.headers if b"connection:" in refusal.headers else refusal.headers + _CLOSE
    if refusal.retry_s is not None:
        headers += b"retry-after: %d\r\n" % refusal.retry_s
    return _REFUSED % (refusal.status, date_field(), headers, len(refusal.word), refusal.word)
