"""Network between a client and a server, which a test may break."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from types import TracebackType
from typing import Self

from .process import PATIENCE_S, free_port

REMEMBERED = 1 << 20  # first bytes of each client that are kept to identify it
MOST_PENDING = 1 << 18  # buffered bytes per direction: a faster sender must wait, as on a real network
CONNECT_S = 1.0


class _Link:
    """Client's connection and its connection to the server. Used in the proxy's thread only."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.other = {client: server, server: client}
        self.pending = {client: bytearray(), server: bytearray()}  # to be sent to each side
        self.ended: set[socket.socket] = set()  # sides that have closed their sending direction
        self.sent = bytearray()
        self.frozen = False

    def events(self, end: socket.socket) -> int:
        if self.frozen:
            return 0
        reads = end not in self.ended and len(self.pending[self.other[end]]) < MOST_PENDING
        return (EVENT_READ if reads else 0) | (EVENT_WRITE if self.pending[end] else 0)

    def read(self, end: socket.socket) -> None:
        data = end.recv(65536)
        if not data:
            self.ended.add(end)
        self.pending[self.other[end]] += data
        if end is self.client:
            self.sent += data[: REMEMBERED - len(self.sent)]

    def write(self) -> None:
        """Write as much pending data as possible."""
        for end, data in self.pending.items():
            if data:
                with suppress(BlockingIOError):
                    del data[: end.send(data)]
            if not data and self.other[end] in self.ended:
                end.shutdown(socket.SHUT_WR)

    def over(self) -> bool:
        return len(self.ended) == 2 and not any(self.pending.values())


class Proxy:
    """Proxy from its own port to a server's port, in its own thread, for blocking and asynchronous tests.

    Each method has taken effect when it returns. Data held by a frozen connection is delivered when it thaws.
    """

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self.target = target
        self._links: dict[_Link, None] = {}
        self._frozen: Callable[[_Link], bool] = _nobody  # links that are silent, including future ones
        self._listener: socket.socket | None = None
        self._selector = DefaultSelector()
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()  # None ends the thread
        self._waker, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name=f"proxy-{self.port}", daemon=True)

    # --- control ---

    def cut(self) -> None:
        """Reset all connections and refuse new ones."""
        self._do(self._cut)

    def freeze(self, *containing: bytes) -> None:
        """Silence connections: they stay open and new ones are accepted, but no data and no close passes in either
        direction.

        With `containing`, only for clients that have sent any of these bytes or will send them; that data is also held.
        """
        wanted = containing or (b"",)
        self._do(lambda: self._freeze(lambda link: any(part in link.sent for part in wanted)))

    def freeze_new(self) -> None:
        """Accept new connections silently; existing ones continue."""

        def freeze() -> None:
            old = frozenset(self._links)
            self._freeze(lambda link: link not in old)

        self._do(freeze)

    def thaw(self) -> None:
        """Deliver the held data and continue."""
        self._do(lambda: self._freeze(_nobody))

    def heal(self) -> None:
        """Forward all connections again, after any other call."""
        self._do(self._listen)
        self.thaw()

    @property
    def connections(self) -> int:
        """Return the number of connected clients, including frozen ones."""
        return len(self._links)

    @property
    def frozen(self) -> int:
        """Return the number of frozen clients."""
        return sum(link.frozen for link in tuple(self._links))

    # --- lifecycle ---

    def __enter__(self) -> Self:
        self._selector.register(self._woken, EVENT_READ)
        self._thread.start()
        self._do(self._listen)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._do(self._cut)
        self._calls.put(None)
        self._waker.send(b"!")
        self._thread.join(PATIENCE_S)
        self._selector.close()
        self._waker.close()
        self._woken.close()

    def _do(self, verb: Callable[[], None]) -> None:
        done: Future[None] = Future()

        def run() -> None:
            try:
                done.set_result(verb())
            except BaseException as error:
                done.set_exception(error)

        self._calls.put(run)
        self._waker.send(b"!")
        done.result(PATIENCE_S)

    # --- in the proxy's thread ---

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._woken:
                    self._woken.recv(1)
                    if (call := self._calls.get()) is None:
                        return
                    call()
                    break  # the call may have closed other selected sockets
                if key.data is None:
                    self._accept()
                elif key.data in self._links:
                    self._move(key.data, key.fileobj)

    def _listen(self) -> None:
        if self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", self.port))
            self._listener.setblocking(False)
            self._selector.register(self._listener, EVENT_READ)

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            client, _ = self._listener.accept()
        except OSError:
            return  # the client is already gone
        try:
            server = socket.create_connection(("127.0.0.1", self.target), CONNECT_S)
        except OSError:
            _reset(client)
            return
        for end in (client, server):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = _Link(client, server)
        self._links[link] = None
        self._watch(link)

    def _move(self, link: _Link, end: socket.socket) -> None:
        try:
            if link.events(end) & EVENT_READ:
                with suppress(BlockingIOError):
                    link.read(end)
            link.frozen = self._frozen(link)
            if not link.frozen:
                link.write()
        except OSError:  # one side was reset, so the other side is reset, too
            self._drop(link)
        else:
            if link.over():
                self._drop(link, socket.socket.close)  # a reset might overtake the last bytes
            else:
                self._watch(link)

    def _watch(self, link: _Link) -> None:
        """Select the sockets of a link for their current events."""
        link.frozen = self._frozen(link)
        registered = self._selector.get_map()
        for end in link.other:
            events = link.events(end)
            if end in registered:
                self._selector.unregister(end)
            if events:
                self._selector.register(end, events, link)

    def _drop(self, link: _Link, close: Callable[[socket.socket], None] | None = None) -> None:
        del self._links[link]
        registered = self._selector.get_map()
        for end in link.other:
            if end in registered:
                self._selector.unregister(end)
            (close or _reset)(end)

    def _cut(self) -> None:
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None
        for link in tuple(self._links):
            self._drop(link)

    def _freeze(self, rule: Callable[[_Link], bool]) -> None:
        self._frozen = rule
        for link in self._links:
            self._watch(link)


def _reset(end: socket.socket) -> None:
    """Close with RST, as a router does that has lost the connection."""
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.close()


def _nobody(link: _Link) -> bool:
    return False
