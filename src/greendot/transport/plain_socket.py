"""Transport of accepted sockets without TLS. One epoll instance serves all of them.

A transport of uvloop takes as much processor time to make and to close as the whole of a hello. Here an accepted socket
is registered with a `SocketPoller`, which is a single reader of the event loop. All else is a call of the kernel: read,
write, close. docs/adr/0071 has the figures.

A socket is its descriptor, because an object of Python for each socket takes more time and memory.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
from collections.abc import Callable
from typing import Any

from greendot.telemetry import log_events
from greendot.telemetry.log import log

AT_ONCE = 256  # sockets served in one turn of the event loop; others wait for the next
MOST_READY = 4_096  # ready sockets among which these are chosen
# Reads of one socket in a turn, as in uvloop. With fewer reads, a flood would wait in the kernel, turns would be short,
# and the node would not notice its overload.
READS = 32
HIGH = 64 * 1024  # bytes that may wait for the kernel before the protocol is asked to pause, as in asyncio

_IN, _OUT, _BROKEN = select.EPOLLIN, select.EPOLLOUT, select.EPOLLERR | select.EPOLLHUP

Bytes = bytes | bytearray | memoryview


class SocketProtocol(asyncio.BufferedProtocol):
    """Protocol of a `PlainSocket`. Transports of the event loop call `get_buffer` and `buffer_updated` instead."""

    __slots__ = ()

    read_size = 16 * 1024  # bytes of one read

    def feed(self, data: bytes) -> None:
        """Receive the bytes of one read."""
        raise NotImplementedError


_ENDED = SocketProtocol()  # replaces the protocol of a closed socket, so that the two form no cycle


def _is_broken(ready: tuple[int, int]) -> bool:
    return ready[1] & _BROKEN != 0


class SocketPoller:
    """Readiness of many sockets, and their ends. It closes itself when it is retired and its last socket has ended."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._epoll = select.epoll()
        self._sockets: dict[int, PlainSocket] = {}  # open sockets, by descriptor
        self._ended: list[PlainSocket] = []  # sockets whose protocols get `connection_lost` in the next turn
        self._retired = False
        self.register, self.modify, self.unregister = self._epoll.register, self._epoll.modify, self._epoll.unregister
        self._loop.add_reader(self._epoll.fileno(), self._on_ready)

    def __len__(self) -> int:
        return len(self._sockets)

    def add(self, socket: PlainSocket, descriptor: int) -> None:
        self._sockets[descriptor] = socket

    def end(self, socket: PlainSocket) -> None:
        """Call `finish` of a socket in the next turn of the event loop."""
        if not self._ended:
            self._loop.call_soon(self._finish)
        self._ended.append(socket)

    def retire(self) -> None:
        """Accept no more sockets. The open ones are served until their ends."""
        self._retired = True
        self._close_if_unused()

    def _on_ready(self) -> None:
        found = self._epoll.poll(0, AT_ONCE)
        if len(found) == AT_ONCE:
            # When a cable is pulled, thousands of sockets end at once. Sockets with input do not wait for all of them.
            found = sorted(self._epoll.poll(0, MOST_READY), key=_is_broken)
            del found[AT_ONCE // 2 : -AT_ONCE // 2]
        for descriptor, events in found:
            ready = self._sockets.get(descriptor)
            if ready is not None:
                ready.on_ready(events)

    def _finish(self) -> None:
        ended, self._ended = self._ended, []
        for one in ended:
            # The descriptor is free for another socket after `finish`.
            del self._sockets[one.descriptor]
            one.finish()
        self._close_if_unused()

    def _close_if_unused(self) -> None:
        if self._retired and not self._sockets and not self._epoll.closed:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()


class PlainSocket(asyncio.Transport):
    """Open socket, from `open` to the `connection_lost` of its protocol.

    It follows the contract of asyncio's transports. `write` passes bytes to the kernel at once. Bytes that the kernel
    does not take wait here. Above the high-water mark the protocol is asked to pause. Bytes that are written after
    `close` or `write_eof` are dropped.
    """

    __slots__ = (
        "_closing",
        "_ended",
        "_error",
        "_events",
        "_high",
        "_input_ended",
        "_output_ended",
        "_pausing",
        "_poller",
        "_protocol",
        "_reads",
        "_unsent",
        "descriptor",
    )

    def __init__(self, poller: SocketPoller, descriptor: int, protocol: SocketProtocol) -> None:
        """Take over a descriptor that does not block."""
        self._poller = poller
        self._protocol = protocol
        self.descriptor = descriptor  # -1 when closed
        self._events = 0  # events that epoll reports
        self._high = HIGH
        self._unsent: bytearray | None = None  # output that the kernel has not taken yet
        self._error: OSError | None = None
        self._reads = True  # False between `pause_reading` and `resume_reading`
        self._pausing = False  # the protocol was asked to pause its output
        self._input_ended = self._output_ended = False  # by the peer; by `write_eof`
        self._closing = False  # nothing more is read, and nothing new is written
        self._ended = False  # the socket is about to be closed

    def open(self) -> None:
        """Begin to serve the socket. Raise OSError if epoll does not take it; then the caller closes it."""
        self._poller.register(self.descriptor, _IN)
        self._events = _IN
        self._poller.add(self, self.descriptor)
        self._guard(self._protocol.connection_made, self)

    # --- called by the poller ---

    def on_ready(self, events: int) -> None:
        if self._ended:
            return
        if self._unsent and events & ~_IN:
            self._send_more()
        if events & ~_OUT:
            self._read()

    def finish(self) -> None:
        """Report the end to the protocol, and close the socket."""
        try:
            self._guard(self._protocol.connection_lost, self._error)
        finally:
            self._protocol = _ENDED
            descriptor, self.descriptor = self.descriptor, -1
            os.close(descriptor)

    # --- input ---

    def _read(self) -> None:
        for _ in range(READS):
            if not self._reads or self._closing or self._input_ended:
                return
            protocol = self._protocol
            size = protocol.read_size
            try:
                data = os.read(self.descriptor, size)
            except BlockingIOError:
                return
            except OSError as error:
                self._fail(error)
                return
            try:
                if data:
                    protocol.feed(data)
                else:
                    self._end_input(protocol)
            except Exception as error:
                self._broken(error)
            if len(data) < size:  # there is no more to read
                return

    def _end_input(self, protocol: SocketProtocol) -> None:
        self._input_ended = True
        if protocol.eof_received():
            self._update()
        else:
            self.close()

    def is_reading(self) -> bool:
        return self._reads and not self._closing

    def pause_reading(self) -> None:
        self._reads = False
        self._update()

    def resume_reading(self) -> None:
        self._reads = True
        self._update()

    # --- output ---

    def write(self, data: Bytes) -> None:
        if self._closing or self._output_ended or not data:
            return
        if self._unsent:
            self._unsent += data
        else:
            try:
                sent = os.write(self.descriptor, data)
            except BlockingIOError:
                sent = 0
            except OSError as error:
                self._fail(error)
                return
            if sent == len(data):
                return
            self._unsent = bytearray(memoryview(data)[sent:])
            self._update()
        self._pause_if_high()

    def write_eof(self) -> None:
        """End this side of the connection when all output is written."""
        if not self._output_ended and not self._closing:
            self._output_ended = True
            if not self._unsent:
                self._shut_down()

    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return len(self._unsent) if self._unsent else 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the high-water mark. The protocol may resume at a quarter of it."""
        self._high = HIGH if high is None else high
        self._pause_if_high()

    def _send_more(self) -> None:
        assert self._unsent is not None
        try:
            del self._unsent[: os.write(self.descriptor, self._unsent)]
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(error)
            return
        if not self._unsent:
            self._unsent = None
            if self._closing:
                self._end(None)
                return
            if self._output_ended:
                self._shut_down()
        if self._pausing and self.get_write_buffer_size() <= self._high // 4:
            self._pausing = False
            self._guard(self._protocol.resume_writing)
        self._update()

    def _pause_if_high(self) -> None:
        if not self._pausing and self.get_write_buffer_size() > self._high:
            self._pausing = True
            self._guard(self._protocol.pause_writing)

    def _shut_down(self) -> None:
        try:
            self._ask(lambda one: one.shutdown(socket.SHUT_WR))
        except OSError as error:  # the peer is gone already
            self._fail(error)

    # --- the end ---

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Write what waits, and close the socket."""
        if not self._closing:
            self._closing = True
            if self._unsent:
                self._update()
            else:
                self._end(None)

    def abort(self) -> None:
        """Close the socket, and drop what waits."""
        self._end(None)

    def _fail(self, error: OSError) -> None:
        self._end(error)

    def _broken(self, error: Exception) -> None:
        """Close the socket after a fault of its protocol."""
        log(log_events.WORK_FAILED, error, work="socket callback")
        self._end(None)

    def _end(self, error: OSError | None) -> None:
        self._closing = True
        if not self._ended:
            self._ended = True
            # A traceback refers to the frame that caught the error, and so to this socket: a cycle that would keep the
            # connection in memory.
            self._error = None if error is None else error.with_traceback(None)
            self._unsent = None
            self._poller.end(self)

    # --- other methods of a transport ---

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol  # type: ignore[assignment]  # protocols of this server are all of this class

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        try:
            match name:
                case "peername" if self.descriptor >= 0:
                    return self._ask(socket.SocketType.getpeername)
                case "sockname" if self.descriptor >= 0:
                    return self._ask(socket.SocketType.getsockname)
        except OSError:  # the peer is gone
            pass
        return default

    def _ask(self, call: Callable[[socket.SocketType], Any]) -> Any:
        """Call a method of Python's socket, which is made for this call only."""
        one = socket.SocketType(fileno=self.descriptor)
        try:
            return call(one)
        finally:
            one.detach()

    def _guard(self, call: Callable[..., None], *arguments: object) -> None:
        """Call a method of the protocol. A fault closes the socket, and others are served."""
        try:
            call(*arguments)
        except Exception as error:
            self._broken(error)

    def _update(self) -> None:
        """Register the events that epoll has to report.

        A socket without events is removed: epoll would report the end of its peer again and again.
        """
        if self._ended:
            return
        reads = self._reads and not self._closing and not self._input_ended
        events = (_IN if reads else 0) | (_OUT if self._unsent else 0)
        if events == self._events:
            return
        if not events:
            self._poller.unregister(self.descriptor)
        elif self._events:
            self._poller.modify(self.descriptor, events)
        else:
            self._poller.register(self.descriptor, events)
        self._events = events
