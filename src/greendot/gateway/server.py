"""One port for everything: HTTP by uvicorn's protocol, and from the upgrade on WebSocket by picows.

A socket comes in by the `Entrance`. If the first it says is a request for a WebSocket as clients make it, it never sees
an HTTP protocol. Anything else goes on to the `Door`, which leads to WebSockets too: both let them in by `accept`.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Mapping
from math import ceil
from typing import Any, NamedTuple, Protocol

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from greendot.core.wheel import Timer
from greendot.errors import ConfigError
from greendot.gateway.acceptor import Acceptor
from greendot.gateway.connection import Connection
from greendot.gateway.doorstep import Doorstep, Refusal, Visit, joined
from greendot.gateway.timers import Timers
from greendot.gateway.tls import Certificate
from greendot.gateway.upgrade import LIVE, PATH, Asked, asked, plain_upgrade, query_of
from greendot.gateway.websocket import Framing, UpgradedProtocol

REQUEST_S = 10.0  # a request that is not complete by then ends its connection
UNDER_WAY_S = 2.0  # for requests that are being answered when the server is closed
SEND_BUFFER = 128 * 1024  # bytes the kernel may hold for one client; it doubles it for what it needs itself
MAX_HEAD = 16 * 1024  # bytes of a request's line and headers
_HANDED_OVER = (b"host", b"upgrade", b"sec-websocket-key", b"sec-websocket-version", b"user-agent")
_PLAIN = (  # as picows wants it; the key follows
    b"GET %b HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: "
    % PATH
)

_REFUSED = (
    b"HTTP/1.1 %b\r\n%bconnection: close\r\ncache-control: no-store\r\nx-content-type-options: nosniff\r\n"
    b"referrer-policy: no-referrer\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n\r\n%b"
)


class Sockets(Protocol):
    """What the server needs of the node."""

    timers: Timers
    doorstep: Doorstep

    @property
    def token_in_query(self) -> bool: ...
    def connect(self, agent: str | None, token: str, address: str) -> Connection: ...
    def crowded_s(self) -> float | None: ...


class Web(NamedTuple):
    """What a port serves beside WebSockets of clients, or instead of them."""

    config: uvicorn.Config
    state: ServerState
    onlooker: Callable[[], Framing] | None  # for the dashboard; None: it is not here
    clients: bool  # False: of the dashboard alone


class Request(NamedTuple):
    """For a WebSocket."""

    head: bytes  # as picows wants it, which answers what is wrong with it
    asked: Asked
    headers: Mapping[bytes, bytes]
    onlooker: Callable[[], Framing] | None = None  # what it becomes if it is the dashboard's


def accept(sockets: Sockets, transport: asyncio.Transport, request: Request, visit: Visit) -> None:
    """Make a WebSocket of a socket that asked for one: here, and nowhere else, it is let in or sent away."""
    secure = transport.get_extra_info("sslcontext") is not None
    address = sockets.doorstep.receive(visit, request.headers, secure=secure)
    if not isinstance(address, str):
        turn_away(transport, address)
        return
    if request.onlooker is None and (wait_s := sockets.crowded_s()) is not None:
        refuse(transport, b"503 Service Unavailable", b"retry-after: %d\r\n" % ceil(wait_s))
        return
    asked = request.asked
    household, visit.household = visit.household, None  # it goes on with the WebSocket
    if (make := request.onlooker) is not None:
        protocol = UpgradedProtocol(lambda request: make(), sockets.doorstep.depart, household, path=LIVE)
    else:
        protocol = UpgradedProtocol(
            lambda request: sockets.connect(asked.agent, asked.token, address),
            sockets.doorstep.depart,
            household,
            by_name=asked.by_name,
        )
    protocol.connection_made(transport)
    protocol.feed(request.head)
    transport.set_protocol(protocol)


def turn_away(transport: asyncio.Transport, refusal: Refusal) -> None:
    retry = b"" if refusal.retry_s is None else b"retry-after: %d\r\n" % refusal.retry_s
    refuse(transport, refusal.status, retry, refusal.word)


def refuse(transport: asyncio.Transport, status: bytes, header: bytes = b"", word: bytes = b"") -> None:
    if not transport.is_closing():
        transport.write(_REFUSED % (status, header, len(word), word))
        transport.close()


class Entrance(asyncio.Protocol):
    """A socket that has not said anything yet."""

    __slots__ = ("_deadline", "_sockets", "_transport", "_visit", "_web")

    _transport: asyncio.Transport
    _deadline: Timer

    def __init__(self, sockets: Sockets, web: Web, visit: Visit) -> None:
        self._sockets = sockets
        self._web = web
        self._visit = visit

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._deadline = self._sockets.timers.set(REQUEST_S, Entrance._too_slow, self)
        self._web.state.connections.add(self)  # type: ignore[arg-type]  # they are only told to shut down

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        self._sockets.doorstep.leave(self._visit)

    def data_received(self, data: bytes) -> None:
        self._leave()
        if (refusal := self._sockets.doorstep.crowded(self._visit)) is not None:
            turn_away(self._transport, refusal)
            return
        in_query = self._sockets.token_in_query
        plain = self._web.clients and len(data) <= MAX_HEAD
        upgrade = plain_upgrade(data, token_in_query=in_query) if plain else None
        if upgrade is not None:
            request = Request(b"%b%b\r\n\r\n" % (_PLAIN, upgrade.key), upgrade.asked, upgrade.headers)
            accept(self._sockets, self._transport, request, self._visit)
            return
        within_s = self._deadline.due - self._sockets.timers.now()
        door = Door(self._sockets, self._web, self._visit, within_s)
        self._transport.set_protocol(door)
        door.connection_made(self._transport)
        door.data_received(data)

    def shutdown(self) -> None:
        """The server is being closed."""
        self._transport.close()

    def _leave(self) -> None:
        self._sockets.timers.cancel(self._deadline)
        self._web.state.connections.discard(self)

    def _too_slow(self) -> None:
        refuse(self._transport, b"408 Request Timeout")


class Door(HttpToolsProtocol):
    """uvicorn's HTTP protocol with bounds it lacks: how long and how large a request may be, and for which host."""

    def __init__(self, sockets: Sockets, web: Web, visit: Visit, within_s: float) -> None:
        super().__init__(web.config, web.state, {})
        self._web = web
        self._sockets = sockets
        self._visit = visit
        self._within_s = within_s  # for the first request, which has begun
        self._deadline: Timer | None = None
        self._head = 0  # bytes since the request began, until its headers are complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect(self._within_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._sockets.timers.cancel(self._deadline)
        self._sockets.doorstep.leave(self._visit)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._head += len(data)
        super().data_received(data)
        if self._head > MAX_HEAD:
            self._refuse(b"431 Request Header Fields Too Large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._deadline is None:
            self._expect(REQUEST_S)

    def on_headers_complete(self) -> None:
        if len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > MAX_HEAD:
            # Counted here too: a head that comes in one piece is complete before its bytes are counted.
            self._refuse(b"431 Request Header Fields Too Large")
            raise ValueError("the request's head is too large")
        if (refusal := self._sockets.doorstep.misnamed(self.url, joined(self.headers))) is not None:
            turn_away(self.transport, refusal)
            raise ValueError("the request is for another host")
        super().on_headers_complete()
        self._head = -(1 << 62)  # bodies are bounded by the routes that read them

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._sockets.timers.cancel(self._deadline)
        self._deadline = None
        self._head = 0

    def handle_websocket_upgrade(self) -> None:
        self.connections.discard(self)
        self._sockets.timers.cancel(self._deadline)
        # picows accepts no token beside `upgrade`; Firefox sends `keep-alive, Upgrade`, which uvicorn has checked.
        lines = [b"%b %b HTTP/1.1" % (self.scope["method"].encode(), self.url), b"connection: upgrade"]
        lines += [b"%b: %b" % item for item in self.headers if item[0] in _HANDED_OVER]
        headers = joined(self.headers)
        query = query_of(self.url) if self._sockets.token_in_query else b""
        onlooker = self._web.onlooker if not self._web.clients or self.url.partition(b"?")[0] == LIVE else None
        if onlooker is None and not self._web.clients:  # a port for something else
            self._refuse(b"404 Not Found")
            return
        request = Request(b"\r\n".join([*lines, b"", b""]), asked(headers, query), headers, onlooker)
        accept(self._sockets, self.transport, request, self._visit)

    def send_400_response(self, msg: str) -> None:
        """uvicorn's word for bytes it cannot parse; nothing more is said where the request was refused already."""
        self._refuse(b"400 Bad Request")

    def _expect(self, within_s: float) -> None:
        self._deadline = self._sockets.timers.set(within_s, Door._too_slow, self)

    def _too_slow(self) -> None:
        self._deadline = None
        self._refuse(b"408 Request Timeout")

    def _refuse(self, status: bytes) -> None:
        refuse(self.transport, status)


class Server:
    """Listens on one address until closed."""

    def __init__(
        self,
        sockets: Sockets,
        app: Any,
        certificate: Certificate | None = None,
        *,
        hsts_s: int = 0,
        onlooker: Callable[[], Framing] | None = None,
        clients: bool = True,
    ) -> None:
        """`onlooker` makes the sockets of the dashboard; without `clients` there are no others."""
        self._sockets = sockets
        self._certificate = certificate
        self._config = uvicorn.Config(
            app,
            http="httptools",
            ws=UpgradedProtocol,  # only says that upgrades are wanted: Door makes it
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # it would believe whoever is on this machine
        )
        self._config.load()
        self._state = ServerState()
        if certificate is not None and hsts_s:
            self._state.default_headers = [(b"strict-transport-security", b"max-age=%d" % hsts_s)]
        self._web = Web(self._config, self._state, onlooker, clients)
        self._acceptor: Acceptor | None = None
        self.port = 0
        self.shared = False  # set before `start` where other processes listen on the same port

    async def start(self, host: str, port: int) -> None:
        """ConfigError when the address cannot be had."""
        listener = bind(host, port, shared=self.shared)
        self.port = listener.getsockname()[1]
        certificate = self._certificate
        self._acceptor = Acceptor(
            listener,
            self._sockets.doorstep,
            lambda visit: Entrance(self._sockets, self._web, visit),
            lambda: None if certificate is None else certificate.context,
        )

    def reload(self) -> None:
        """Read the certificate again, if there is one."""
        if self._certificate is not None:
            self._certificate.reload()

    def stop_accepting(self) -> None:
        if self._acceptor is not None:
            self._acceptor.close()

    async def close(self) -> None:
        """Let requests under way end, then close what is left."""
        self.stop_accepting()
        for protocol in [*self._state.connections]:
            protocol.shutdown()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=UNDER_WAY_S)


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A socket that has the address and does not listen yet. All that share a port must say so, as one user.

    ConfigError when the address cannot be had.
    """
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, proto)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host!r}: {error.strerror}") from None
    except UnicodeError:
        raise ConfigError(f"cannot listen on {host!r}: it is not a host name") from None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Inherited by each connection. The kernel would let megabytes wait for a client that does not read.
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
