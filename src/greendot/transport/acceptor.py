"""Taking connections from the kernel, a few in each turn of the loop.

The loop's own server takes all there are before it does anything else, and then reads what they all have sent: when ten
thousand clients return at once, those who are there wait for seconds. What is not taken yet waits with the kernel.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from ssl import SSLContext
from typing import Any, Protocol

from greendot.telemetry import log_events
from greendot.telemetry.log import log

AT_ONCE = 32  # in a turn
BACKLOG = 4_096  # that wait with the kernel; it may allow fewer (net.core.somaxconn)
PAUSE_S = 0.5  # after the kernel had no descriptor left for another
HANDSHAKE_S = 10.0  # for that of TLS
GOODBYE_S = 2.0  # for the peer's last word in TLS


class SocketObserver(Protocol):
    """Who is told of each connection before it has a protocol."""

    def arrive(self, peer: str) -> Any: ...  # None: it is closed without a word
    def leave(self, visit: Any) -> None: ...


class Acceptor:
    """Listens from the start until it is closed. `make` makes each connection's protocol from what `arrive` said."""

    def __init__(
        self,
        listener: socket.socket,
        surge: SocketObserver,
        make: Callable[[Any], asyncio.BaseProtocol],
        tls: Callable[[], SSLContext | None] = lambda: None,
    ) -> None:
        self._listener = listener
        self._surge = surge
        self._make = make
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._coming: set[asyncio.Task[object]] = set()  # connections on their way to their protocol
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # inherited by each connection
        listener.listen(BACKLOG)
        self._loop.add_reader(listener, self._accept)

    def close(self) -> None:
        if self._listener.fileno() >= 0:
            if self._pause is not None:
                self._pause.cancel()
            self._loop.remove_reader(self._listener)
            self._listener.close()
            for task in self._coming:  # a handshake may take longer than we are here
                task.cancel()

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                accepted, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # There are no descriptors left, or no memory: asked again at once it would be the same.
                log(log_events.SOCKETS_EXHAUSTED, reason=error.strerror)
                self._loop.remove_reader(self._listener)
                self._pause = self._loop.call_later(PAUSE_S, self._loop.add_reader, self._listener, self._accept)
                return
            visit = self._surge.arrive(address[0])
            if visit is None:
                accepted.close()
                continue
            accepted.setblocking(False)
            task = self._loop.create_task(self._hand_over(accepted, visit))
            self._coming.add(task)
            task.add_done_callback(self._coming.discard)

    async def _hand_over(self, accepted: socket.socket, visit: Any) -> None:
        try:
            tls = self._tls()
            times = {} if tls is None else {"ssl_handshake_timeout": HANDSHAKE_S, "ssl_shutdown_timeout": GOODBYE_S}
            await self._loop.connect_accepted_socket(lambda: self._make(visit), accepted, ssl=tls, **times)
        except OSError:
            # It has gone already, does not speak TLS, or was too slow with it.
            self._surge.leave(visit)
            accepted.close()
        except BaseException:
            self._surge.leave(visit)
            raise
