"""Acceptor of connections: takes a few from the kernel in each turn of the event loop.

asyncio's own server accepts all pending connections before it does anything else, and then reads from all of them. When
ten thousand clients reconnect at once, connected clients wait for seconds. Connections that are not accepted yet wait
in the kernel's backlog.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
from collections.abc import Callable
from functools import partial
from ssl import SSLContext
from typing import Any, Protocol

from greendot.telemetry import log_events
from greendot.telemetry.log import log
from greendot.transport.plain_socket import PlainSocket, SocketPoller, SocketProtocol

AT_ONCE = 32  # connections accepted in one turn
BACKLOG = 4_096  # connections that may wait in the kernel; it may allow fewer (net.core.somaxconn)
PAUSE_S = 0.5  # pause after accept failed because no file descriptor was left
READ = 16 * 1024  # bytes of the first read
HANDSHAKE_S = 10.0  # time for the TLS handshake
GOODBYE_S = 2.0  # time for the peer's close_notify in TLS
HAS_EPOLL = hasattr(select, "epoll")  # only Linux has it; elsewhere the event loop serves all sockets


class SocketObserver(Protocol):
    """Receiver of each connection's arrival, before the connection has a protocol."""

    def arrive(self, peer: str, descriptor: int) -> Any: ...  # None: the connection is closed without an answer
    def leave(self, visit: Any) -> None: ...


class AcceptedSocket(socket.socket):
    """Accepted socket. Its family and type are numbers: to convert them to enums takes as long as to accept."""

    __slots__ = ()

    family = socket.SocketType.family  # type: ignore[assignment]
    type = socket.SocketType.type  # type: ignore[assignment]


class Acceptor:
    """Listening socket, from construction until `close`.

    `make` gets the result of `arrive` and the bytes that were read already, and returns the protocol. Over TLS no bytes
    were read.
    """

    def __init__(
        self,
        listener: socket.socket,
        surge: SocketObserver,
        make: Callable[[Any, bytes], SocketProtocol],
        tls: Callable[[], SSLContext | None] = lambda: None,
    ) -> None:
        self._listener = listener
        self._kind = int(listener.family), int(listener.type), listener.proto
        self._surge = surge
        self._make = make
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._poller = SocketPoller() if HAS_EPOLL else None
        self._pause: asyncio.TimerHandle | None = None
        self._coming: set[asyncio.Task[object]] = set()  # connections that have no protocol yet
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # inherited by each connection
        listener.listen(BACKLOG)
        self._loop.add_reader(listener, self._accept)

    def close(self) -> None:
        if self._listener.fileno() >= 0:
            if self._pause is not None:
                self._pause.cancel()
            self._loop.remove_reader(self._listener)
            self._listener.close()
            if self._poller is not None:
                self._poller.retire()
            for task in self._coming:  # a TLS handshake may take longer than the shutdown
                task.cancel()

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                descriptor, address = self._listener._accept()  # type: ignore[attr-defined]
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # No descriptors or no memory are left: another accept now would fail in the same way.
                log(log_events.SOCKETS_EXHAUSTED, reason=error.strerror)
                self._loop.remove_reader(self._listener)
                self._pause = self._loop.call_later(PAUSE_S, self._loop.add_reader, self._listener, self._accept)
                return
            visit = self._surge.arrive(address[0], descriptor)
            if visit is None:
                os.close(descriptor)
                continue
            tls = self._tls()
            if tls is None and self._poller is not None:
                self._serve(self._poller, descriptor, visit)
            else:
                accepted = AcceptedSocket(*self._kind, descriptor)
                task = self._loop.create_task(self._hand_over(accepted, visit, tls))
                self._coming.add(task)
                task.add_done_callback(self._coming.discard)

    def _serve(self, poller: SocketPoller, descriptor: int, visit: Any) -> None:
        """Serve a plain socket, beginning with its first bytes, which are usually there."""
        os.set_blocking(descriptor, False)
        visit.fd = descriptor
        try:
            first = os.read(descriptor, READ)
        except OSError:  # nothing has arrived, or the peer is gone, which the protocol will notice
            first = b""
        try:
            PlainSocket(poller, descriptor, self._make(visit, first)).open()
        except OSError as error:  # the limit of the kernel for epoll
            log(log_events.SOCKETS_EXHAUSTED, reason=error.strerror)
            self._surge.leave(visit)
            os.close(descriptor)

    async def _hand_over(self, accepted: socket.socket, visit: Any, tls: SSLContext | None) -> None:
        """Serve a socket with TLS, or on a system without epoll, by a transport of the event loop."""
        accepted.setblocking(False)
        limits = {"ssl_handshake_timeout": HANDSHAKE_S, "ssl_shutdown_timeout": GOODBYE_S}
        if tls is None:
            visit.fd, limits = accepted.fileno(), {}
        try:
            make = partial(self._make, visit, b"")
            await self._loop.connect_accepted_socket(make, accepted, ssl=tls, **limits)
        except OSError:
            # The peer is gone, does not speak TLS, or was too slow with the handshake.
            self._surge.leave(visit)
            accepted.close()
        except BaseException:
            self._surge.leave(visit)
            raise
