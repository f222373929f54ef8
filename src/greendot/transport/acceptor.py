"""Acceptor of connections: takes a few from the kernel in each turn of the event loop.

asyncio's own server accepts all pending connections before it does anything else, and then reads from all of them. When
ten thousand clients reconnect at once, connected clients wait for seconds. Connections that are not accepted yet wait
in the kernel's backlog.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from functools import partial
from ssl import SSLContext
from typing import Any, Protocol

from greendot.telemetry import log_events
from greendot.telemetry.log import log

AT_ONCE = 32  # connections accepted in one turn
BACKLOG = 4_096  # connections that may wait in the kernel; it may allow fewer (net.core.somaxconn)
PAUSE_S = 0.5  # pause after accept failed because no file descriptor was left
READ = 16 * 1024  # bytes of the first read
HANDSHAKE_S = 10.0  # time for the TLS handshake
GOODBYE_S = 2.0  # time for the peer's close_notify in TLS


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
        make: Callable[[Any, bytes], asyncio.BaseProtocol],
        tls: Callable[[], SSLContext | None] = lambda: None,
    ) -> None:
        self._listener = listener
        self._kind = int(listener.family), int(listener.type), listener.proto
        self._surge = surge
        self._make = make
        self._tls = tls
        self._loop = asyncio.get_running_loop()
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
            accepted = AcceptedSocket(*self._kind, descriptor)
            visit = self._surge.arrive(address[0], descriptor)
            if visit is None:
                accepted.close()
                continue
            accepted.setblocking(False)
            tls = self._tls()
            if tls is None:
                visit.fd = accepted.fileno()
                self._proceed(self._hand_over(accepted, visit))
            else:
                task = self._loop.create_task(self._hand_over_tls(accepted, visit, tls))
                self._coming.add(task)
                task.add_done_callback(self._coming.discard)

    def _proceed(self, work: Coroutine[Any, Any, None], _: object = None) -> None:
        """Run the handover of a plain socket up to its next wait.

        It waits once, for the call of `connection_made` in the next turn. A task would take longer than all the rest.
        """
        try:
            waited: asyncio.Future[Any] = work.send(None)
        except StopIteration:
            return
        waited.add_done_callback(partial(self._proceed, work))

    async def _hand_over(self, accepted: socket.socket, visit: Any) -> None:
        try:
            # The first bytes are usually there. To read them now saves a wait for the socket.
            try:
                first = accepted.recv(READ)
            except OSError:  # nothing has arrived, or the peer is gone, which the protocol will notice
                first = b""
            transport, _ = await self._loop.connect_accepted_socket(partial(self._make, visit, first), accepted)
            if self._listener.fileno() < 0:  # closed meanwhile
                transport.close()
        except OSError:
            self._surge.leave(visit)  # the peer is gone
            accepted.close()
        except BaseException:
            self._surge.leave(visit)
            raise

    async def _hand_over_tls(self, accepted: socket.socket, visit: Any, tls: SSLContext) -> None:
        try:
            await self._loop.connect_accepted_socket(
                partial(self._make, visit, b""),
                accepted,
                ssl=tls,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=GOODBYE_S,
            )
        except OSError:
            # The peer is gone, does not speak TLS, or was too slow with the handshake.
            self._surge.leave(visit)
            accepted.close()
        except BaseException:
            self._surge.leave(visit)
            raise
