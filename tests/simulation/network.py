"""Network between clients and nodes: sockets without a kernel, whose data takes time, can be cut, and can pile up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from greendot.testing.wire import CLOSE, TEXT, make_frame
from model.simulated import take_frame
from simulation.processes import TICK_S, Process, Universe

WINDOW = 4096  # bytes that a client which does not read still takes
Arrived = Callable[[dict[str, Any] | None], None]


class NodeEnd(asyncio.Transport):
    """A node's end of a socket."""

    def __init__(self, process: Process, wire: Wire) -> None:
        super().__init__()
        self._process = process
        self._wire = wire
        self._protocol: Any = None
        self._closing = self._is_lost = False
        self._is_reading = True
        self._unread: list[bytes] = []
        self.unsent = bytearray()  # waits until the client reads

    # --- called by the node ---

    def write(self, data: Any) -> None:
        if self._closing or self._is_lost:
            return
        if self._wire.takes(len(data)) and not self.unsent:
            self._wire.to_client(bytes(data))
        else:
            self.unsent += data

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._wire.to_client(None)
            self._process.call_soon(self._lose)

    def abort(self) -> None:
        self.close()

    def _lose(self) -> None:
        if not self._is_lost:
            self._is_lost = self._closing = True
            self._protocol.connection_lost(None)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return len(self.unsent)

    def is_closing(self) -> bool:
        return self._closing

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert isinstance(self._protocol, asyncio.BaseProtocol)
        return self._protocol

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        unread, self._unread = self._unread, []
        for data in unread:
            self._process.call_soon(self.received, data)

    def can_write_eof(self) -> bool:
        return False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    # --- called by the wire, in the node's process ---

    def received(self, data: bytes) -> None:
        if self._is_lost:
            return
        if not self._is_reading:
            self._unread.append(data)
            return
        buffer = self._protocol.get_buffer(len(data))
        buffer[: len(data)] = data
        self._protocol.buffer_updated(len(data))

    def ended(self) -> None:
        """End the socket as the kernel does after a reset by the client."""
        self._closing = True
        self._lose()

    def drained(self) -> None:
        """Send what waited, because the client reads again."""
        if self._is_lost or not self.unsent:
            return
        data, self.unsent = bytes(self.unsent), bytearray()
        self._wire.to_client(data)
        if not self._closing:
            self._protocol.resume_writing()


class Wire:
    """One TCP connection. `written` gets every frame when the node writes it, `arrived` when the client reads it."""

    def __init__(self, universe: Universe, lag: Callable[[], float], written: Arrived, arrived: Arrived) -> None:
        self._universe = universe
        self._lag = lag
        self._written = written
        self._arrived = arrived
        self._buffer = bytearray()
        self._sent_at = self._came_at = 0.0
        self._untaken = 0
        self._stalled: list[dict[str, Any] | None] | None = None  # frames that a stalled client has not read
        self.is_cut = False
        self.is_upgraded = False
        self.node_end: NodeEnd | None = None
        self._process: Process | None = None
        self._early: list[bytes] = []

    def accept(self, process: Process, opened: Callable[[NodeEnd], None]) -> None:
        """Open the connection in a node's process."""
        self._process = process

        def accepted() -> None:
            if not self.is_cut:
                self.node_end = NodeEnd(process, self)
                opened(self.node_end)

        self._at_node(accepted)

    def _at_node(self, call: Callable[..., object], *args: Any) -> None:
        assert self._process is not None
        self._sent_at = max(self._sent_at + TICK_S, self._universe.now + self._lag())
        self._universe.at(self._sent_at, self._process.do, call, *args)

    # --- client ---

    def say(self, **command: Any) -> None:
        if not self.is_cut:
            self._say(make_frame(TEXT, msgspec.json.encode(command), mask=True))

    def say_raw(self, data: bytes) -> None:
        """Send bytes that may be no frame."""
        if not self.is_cut:
            self._say(data)

    def say_close(self, code: int) -> None:
        if not self.is_cut:
            self._say(make_frame(CLOSE, code.to_bytes(2), mask=True))

    def _say(self, frame: bytes) -> None:
        if self.is_upgraded:
            self._at_node(self._receive, frame)
        else:
            self._early.append(frame)

    def _receive(self, frame: bytes) -> None:
        if self.node_end is not None:
            self.node_end.received(frame)

    def cut(self, noticed_s: float | None) -> None:
        """Cut the connection. The node notices after `noticed_s`; None: never, as with a half-open connection."""
        if not self.is_cut:
            self.is_cut = True
            if noticed_s is not None and self._process is not None:
                self._universe.after(noticed_s, self._process.do, self._end_node)

    def _end_node(self) -> None:
        if self.node_end is not None:
            self.node_end.ended()

    def stall(self, seconds: float) -> None:
        """Stop reading for a while."""
        if self._stalled is None and not self.is_cut:
            self._stalled = []
            self._universe.after(seconds, self._go_on)

    @property
    def is_stalled(self) -> bool:
        return self._stalled is not None

    def _go_on(self) -> None:
        frames, self._stalled, self._untaken = self._stalled or [], None, 0
        for frame in frames:
            self._arrive(frame)
        if self._process is not None and self.node_end is not None:
            self._process.do(self.node_end.drained)

    # --- node ---

    def takes(self, size: int) -> bool:
        """Return whether the client's side takes these bytes now."""
        if self._stalled is None:
            return True
        self._untaken += size
        return self._untaken <= WINDOW

    def to_client(self, data: bytes | None) -> None:
        if data is None:
            self._pass(None)
            return
        self._buffer += data
        if not self.is_upgraded:
            end = self._buffer.find(b"\r\n\r\n")
            assert self._buffer.startswith(b"HTTP/1.1 101"), bytes(self._buffer)
            del self._buffer[: end + 4]
            self.is_upgraded = True
            early, self._early = self._early, []
            for frame in early:
                self._at_node(self._receive, frame)
        while (frame_found := take_frame(self._buffer)) is not None:
            opcode, payload = frame_found
            if opcode == TEXT:
                self._pass(msgspec.json.decode(payload))
            elif opcode == CLOSE:
                self._pass({"type": "closed", "data": {"code": int.from_bytes(payload[:2])}})

    def _pass(self, frame: dict[str, Any] | None) -> None:
        if not self.is_cut:
            if frame is not None:
                self._written(frame)
            self._came_at = max(self._came_at + TICK_S, self._universe.now + self._lag())
            self._universe.at(self._came_at, self._arrive, frame)

    def _arrive(self, frame: dict[str, Any] | None) -> None:
        if self.is_cut:
            return
        if self._stalled is not None:
            self._stalled.append(frame)
        else:
            self._arrived(frame)
