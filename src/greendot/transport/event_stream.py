"""Event stream of one client: Server-Sent Events down, commands in requests up (docs/adr/0075).

The connection is the same as that of a WebSocket. Only its socket differs: `EventStream` converts the frames that the
connection writes, and passes the commands of requests on as frames. Limits, order and the end are those of a WebSocket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from greendot.transport.event_stream_model import (
    FIRST_PADDING,
    client_frames,
    events_of,
    first_event,
    padding,
    padding_asked,
)
from greendot.transport.http_exchange import date_field
from greendot.transport.ingress import PendingSocket
from greendot.transport.plain_socket import SocketProtocol
from greendot.transport.request_head import Field, Head, Refusal
from greendot.transport.tls import release
from greendot.transport.upgrade import SocketHost, admit
from greendot.transport.websocket import Framing
from greendot.transport.websocket_handshake import HandshakeFields, handshake_fields

PATH = b"/v1/events"
MOST_INPUT = 16 * 1024  # bytes that a client may send behind the request of a stream; they are not read
_INPUT = memoryview(bytearray(4096))  # shared: its content is never read
_HEAD = (
    b"HTTP/1.1 200 OK\r\n%b%bcontent-type: text/event-stream\r\ncache-control: no-store, no-transform\r\n"
    b"x-accel-buffering: no\r\nx-content-type-options: nosniff\r\nreferrer-policy: no-referrer\r\n"
    b"connection: close\r\n\r\n"
)


class PostOutcome(StrEnum):
    """Result of a request with commands for a stream."""

    TAKEN = "taken"  # now, or by an earlier request of the same number
    UNKNOWN = "unknown"  # there is no such stream, or it has ended
    OUT_OF_ORDER = "out of order"  # an earlier number is missing
    BUSY = "busy"  # earlier commands wait; nothing was taken


class StreamRequest(NamedTuple):
    """Request that opens an event stream."""

    asked: HandshakeFields
    headers: Mapping[bytes, bytes]  # by name in lower case
    padding: int  # bytes behind each write


class StreamRequested(Exception):
    """Request for an event stream, which ends HTTP on its socket."""

    def __init__(self, request: StreamRequest) -> None:
        super().__init__()
        self.request = request


class StreamRegistry(Protocol):
    """Open streams of the node, by their ids."""

    def add(self, stream: EventStream) -> str: ...  # returns the new id
    def remove(self, stream: EventStream) -> None: ...


class StreamHost(SocketHost, Protocol):
    """Node, as event streams use it."""

    @property
    def streams(self) -> StreamRegistry: ...


class EventStream(asyncio.Transport, SocketProtocol):
    """Socket of a connection, and protocol of the transport below it.

    Requests with commands are numbered from 1. A number that was taken has no effect again, so that a client can repeat
    a request whose answer was lost.
    """

    __slots__ = ("_connection", "_left", "_padding", "_reads", "_registry", "_transport", "id", "last_taken")

    def __init__(self, transport: asyncio.Transport, registry: StreamRegistry, pad: int) -> None:
        """Create a stream with `pad` bytes behind each write. Before hello only the first event has padding."""
        self._transport = transport
        self._registry = registry
        self._padding = pad
        self._connection: Framing | None = None  # set while the connection lasts
        self._reads = True  # False while the connection takes no commands
        self._left = MOST_INPUT
        self.last_taken = 0  # number of the last request whose commands were taken
        self.id = registry.add(self)

    def begin(self, head: bytes) -> None:
        """Write the head of the response and the first event."""
        self._transport.set_protocol(self)
        self._transport.writelines([head + first_event(self.id), padding(min(self._padding, FIRST_PADDING))])

    # --- commands ---

    def take(self, number: int, commands: Sequence[str], close: int | None) -> PostOutcome:
        """Pass the commands of a request to the connection, then a close with this code if one is given."""
        connection = self._connection
        if connection is None or connection.closing:
            return PostOutcome.UNKNOWN
        if number <= self.last_taken:
            return PostOutcome.TAKEN
        if number > self.last_taken + 1:
            return PostOutcome.OUT_OF_ORDER
        if not self._reads:
            return PostOutcome.BUSY
        self.last_taken = number
        connection.feed(client_frames(commands, close))
        return PostOutcome.TAKEN

    # --- transport of the connection ---

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write frames as events. A close frame ends the response."""
        if self._transport.is_closing():
            return
        events = events_of(bytes(data))
        if events.data:
            is_padded = self._padding and self._connection is not None and self._connection.is_known
            # Two objects: streams that wait for their sockets share the padding.
            self._transport.writelines([events.data, padding(self._padding)] if is_padded else [events.data])
        if events.is_end:
            self._transport.close()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def pause_reading(self) -> None:
        self._reads = False

    def resume_reading(self) -> None:
        self._reads = True

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def can_write_eof(self) -> bool:
        return False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._connection = protocol if isinstance(protocol, Framing) else None

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self if self._connection is None else self._connection

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    # --- protocol of the transport below ---

    def connection_lost(self, exc: Exception | None) -> None:
        connection, self._connection = self._connection, None
        self._registry.remove(self)
        if connection is not None:
            connection.connection_lost(exc)
        release(self._transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return _INPUT

    def feed(self, data: bytes) -> None:
        self.buffer_updated(len(data))

    def buffer_updated(self, nbytes: int) -> None:
        """Discard input: nothing may follow the request on this socket."""
        self._left -= nbytes
        if self._left < 0:
            self._transport.abort()

    def eof_received(self) -> bool:
        return self._connection is not None and self._connection.eof_received()

    def pause_writing(self) -> None:
        pass

    def resume_writing(self) -> None:
        if self._connection is not None:
            self._connection.resume_writing()


def stream_request(head: Head) -> StreamRequest | None:
    """Return the request for an event stream, or None if it is another request."""
    if head.path != PATH or head.method != b"GET" or head.has_body:
        return None
    return StreamRequest(handshake_fields(head.by_name), head.by_name, padding_asked(head.query))


def open_stream(
    host: StreamHost,
    transport: asyncio.Transport,
    request: StreamRequest,
    visit: PendingSocket,
    default_headers: Sequence[Field],
) -> Refusal | None:
    """Turn a socket into an event stream, or return the refusal. The checks are those of a WebSocket."""
    address = admit(host, visit, request.headers)
    if not isinstance(address, str):
        return address
    connection = host.connect(request.asked.agent, request.asked.token, address)
    group, visit.group = visit.group, None  # the connection's `depart` ends the count
    stream = EventStream(transport, host.streams, request.padding)
    fields = b"".join(b"%b: %b\r\n" % field for field in default_headers)
    stream.begin(_HEAD % (date_field(), fields + _cors(request.headers)))
    connection.open(stream, -1, host.read_buffer, b"", host.ingress.depart, group)
    return None


def _cors(headers: Mapping[bytes, bytes]) -> bytes:
    """Return the header lines that let a page of another origin read the response."""
    origin = headers.get(b"origin")
    return b"" if origin is None else b"access-control-allow-origin: %b\r\nvary: origin\r\n" % origin
