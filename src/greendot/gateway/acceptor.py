"""Taking connections from the kernel, a few in each turn of the loop.

The loop's own server takes all there are before it does anything else, and then reads what they all have sent: when ten
thousand clients return at once, those who are there wait for seconds. What is not taken yet waits with the kernel.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

AT_ONCE = 32  # in a turn
BACKLOG = 4_096  # that wait with the kernel; it may allow fewer (net.core.somaxconn)
PAUSE_S = 0.5  # after the kernel had no descriptor left for another
_log = logging.getLogger("greendot.gateway")


class Acceptor:
    """Listens from the start until it is closed. `make` makes the protocol of each connection."""

    def __init__(self, listener: socket.socket, make: Callable[[], asyncio.BaseProtocol]) -> None:
        self._listener = listener
        self._make = make
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

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                accepted, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # There are no descriptors left, or no memory: asked again at once it would be the same.
                _log.error("no more connections can be taken: %s", error.strerror)
                self._loop.remove_reader(self._listener)
                self._pause = self._loop.call_later(PAUSE_S, self._loop.add_reader, self._listener, self._accept)
                return
            accepted.setblocking(False)
            task = self._loop.create_task(self._hand_over(accepted))
            self._coming.add(task)
            task.add_done_callback(self._coming.discard)

    async def _hand_over(self, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make, accepted)
        except OSError:
            accepted.close()  # it has gone already
