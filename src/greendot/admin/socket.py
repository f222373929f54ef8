"""WebSocket of a dashboard viewer.

Delivery is not guaranteed: a viewer that does not keep up gets the next sample, not all of them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from time import monotonic
from typing import Generic, Protocol, TypeVar

from greendot.admin.access import Viewer
from greendot.limits.frame_limit_model import CommandLimit
from greendot.protocol.codec import close_frame, pong_frame, text_frame
from greendot.protocol.codes import Close
from greendot.transport.websocket import Framing

MOST_WAITING = 512 * 1024  # bytes that the kernel has not taken
LINGER_S = 2.0  # for a peer that keeps sending to read the close frame
RATE, BURST = 20, 100  # frames per second, and at once: a page sends a few per click


class SocketListener(Protocol):
    """Receiver of the events of dashboard sockets."""

    def opened(self, dashboard_socket: DashboardSocket) -> None: ...
    def message_received(self, dashboard_socket: DashboardSocket, text: str) -> None: ...
    def gone(self, dashboard_socket: DashboardSocket) -> None: ...


class DashboardSocket(Framing):
    """Socket of one viewer."""

    __slots__ = ("_audience", "_limit")

    def __init__(self, audience: SocketListener) -> None:
        super().__init__()
        self._audience = audience
        self._limit = CommandLimit(RATE, BURST, monotonic())

    def on_connected(self) -> None:
        self._audience.opened(self)

    def on_disconnected(self) -> None:
        self.closing = self.deaf = True
        self._audience.gone(self)

    def on_text(self, text: str) -> None:
        if self.on_counted():
            self._audience.message_received(self, text)

    def on_counted(self) -> bool:
        if self._limit.admit(monotonic()):
            self.deaf = True
            self.close(Close.OVERLOADED, "too many frames; reconnect later")
            return False
        return True

    def on_ping(self, payload: bytes) -> None:
        if not self.is_behind:
            self.socket.write(pong_frame(payload))

    def on_client_close(self, code: int) -> None:
        self.socket.write(close_frame(code or Close.NORMAL))
        self.socket.close()

    @property
    def is_behind(self) -> bool:
        """Return whether too much output waits for the peer to send more."""
        return self.socket.get_write_buffer_size() > MOST_WAITING

    def send(self, payload: bytes) -> None:
        """Send a JSON object in a frame of its own, unless the peer does not read."""
        if not self.closing and not self.is_behind:
            self.socket.write(text_frame(payload))

    def close(self, code: int, reason: str = "", last: bytes | None = None) -> None:
        if not self.closing:
            sends_on = self.deaf  # after a violation or a flood
            self.closing = self.deaf = True
            if last is not None:
                self.socket.write(last)
            self.socket.write(close_frame(code, reason))
            if sends_on:
                self.linger()
                asyncio.get_running_loop().call_later(LINGER_S, self.abort)
            else:
                self.socket.close()

    def abort(self) -> None:
        """Close the socket at once, because the peer does not read."""
        self.closing = self.deaf = True
        self.socket.abort()


MOST_PENDING = 256  # sockets without an accepted key
MOST_OPERATORS = 32  # viewers who see nodes
MOST_TENANTS = 32  # viewers who see one tenant, for all tenants together
MOST_TENANT = 8  # viewers of one tenant

S = TypeVar("S")  # a socket; hashable


class ViewerAdmission(Generic[S]):
    """Sockets that wait for admission, and sockets of viewers. Each socket is in at most one of the sets."""

    def __init__(self) -> None:
        self._silent: dict[S, None] = {}  # no key sent yet, oldest first
        self._checked: dict[S, None] = {}  # key sent and not accepted, oldest first
        self._viewers: dict[S, str | None] = {}  # None: an operator; otherwise the tenant

    @property
    def pending(self) -> int:
        return len(self._silent) + len(self._checked)

    def open(self, socket: S) -> S | None:
        """Add a socket.

        Return the socket to close for it: the oldest silent one, else the oldest; None if there is room.
        """
        displaced = None
        if self.pending >= MOST_PENDING:
            displaced = next(iter(self._silent or self._checked))
            self.remove(displaced)
        self._silent[socket] = None
        return displaced

    def key_sent(self, socket: S) -> None:
        """Mark a socket whose key is being checked: silent sockets are displaced before it."""
        del self._silent[socket]
        self._checked[socket] = None

    def admit(self, socket: S, viewer: Viewer) -> str | None:
        """Admit a viewer. Return the reason if there is no place, else None."""
        tenant = None if viewer.nodes else viewer.tenant
        taken = Counter(self._viewers.values())
        if tenant is None and taken[None] >= MOST_OPERATORS:
            return f"{MOST_OPERATORS} operators already use this node's dashboard; retry later"
        if tenant is not None and taken[tenant] >= MOST_TENANT:
            return f"{MOST_TENANT} dashboard sockets of tenant {tenant} are open; retry later"
        if tenant is not None and taken.total() - taken[None] >= MOST_TENANTS:
            return f"{MOST_TENANTS} tenant sockets already use this node's dashboard; retry later"
        del self._checked[socket]
        self._viewers[socket] = tenant
        return None

    def remove(self, socket: S) -> None:
        """Remove a socket. A second call has no effect."""
        for sockets in (self._silent, self._checked, self._viewers):
            sockets.pop(socket, None)
