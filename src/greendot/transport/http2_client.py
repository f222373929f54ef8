"""HTTP/2 client for a provider: one connection carries many calls at once.

Calls wait independently for their answers. A call without an answer in time is cancelled alone, unless nothing at all
was received since the call was sent. In that case the connection is dead, and the next calls open another. Addresses
are checked as for every outbound call, and the bounds are those of `http_client`.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Mapping
from typing import cast
from urllib.parse import urlsplit

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)
from h2.exceptions import H2Error

from greendot.transport.http_client import (
    CONNECT_S,
    MOST_ANSWER,
    HttpResponse,
    NotCalled,
    Terms,
    checked_addresses,
    words,
)

KEEP_S = 120.0  # an idle connection is closed if it received nothing for this time
MOST_AT_ONCE = 1_000  # calls, if the provider allows as many

# At level DEBUG, hpack logs the headers it sends, including keys.
logging.getLogger("hpack").setLevel(logging.WARNING)


class _NotProcessed(Exception):
    """Call that the provider states it did not process. The call may be made again."""


class MultiplexedCaller:
    """Client of one host."""

    def __init__(self, url: str, terms: Terms) -> None:
        parts = urlsplit(url)
        self.host = parts.hostname or ""
        self._port = parts.port or 443
        self._authority = parts.netloc
        self._terms = terms
        self._tls = ssl.create_default_context(cafile=terms.ca_file or None)
        self._tls.set_alpn_protocols(["h2"])
        self._connection: _Connection | None = None
        self._connecting: asyncio.Task[_Connection] | None = None

    async def post(self, body: bytes, headers: Mapping[str, str], target: str) -> HttpResponse:
        """POST the body to `target` and return the response. Raise NotCalled if there is no answer in time."""
        sent = [
            (":method", "POST"),
            (":scheme", "https"),
            (":authority", self._authority),
            (":path", target),
            ("content-type", "application/json"),
            ("user-agent", "Greendot"),
            *headers.items(),
        ]
        timeout_s = self._terms.timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                return await self._post_twice(sent, body)
        except NotCalled:
            raise
        except TimeoutError:
            raise NotCalled(f"{self.host} did not answer within {timeout_s:g} s") from None
        except _NotProcessed:
            raise NotCalled(f"{self.host} closed the connection without processing the request") from None
        except OSError as error:
            raise NotCalled(f"{self.host} could not be reached: {words(error)}") from None
        except H2Error:
            # The text of the error may contain parts of the request.
            raise NotCalled(f"{self.host} violated the HTTP/2 protocol") from None

    async def close(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
        if self._connection is not None:
            self._connection.abort()

    async def _post_twice(self, headers: list[tuple[str, str]], body: bytes) -> HttpResponse:
        """Make the call; repeat it on a new connection if the first was closed at the moment of the call."""
        try:
            return await (await self._connected()).call(headers, body)
        except _NotProcessed:
            return await (await self._connected()).call(headers, body)

    async def _connected(self) -> _Connection:
        """Return the current connection, or a new one; concurrent calls wait for the same attempt."""
        if self._connection is not None and self._connection.is_good():
            return self._connection
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
            self._connecting.add_done_callback(self._done_connecting)
        return await asyncio.shield(self._connecting)

    def _done_connecting(self, task: asyncio.Task[_Connection]) -> None:
        self._connecting = None
        if not task.cancelled() and task.exception() is None:
            self._connection = task.result()

    async def _connect(self) -> _Connection:
        trouble: OSError | None = None
        for address in await checked_addresses(self.host, self._terms):
            try:
                async with asyncio.timeout(CONNECT_S):
                    return await self._connect_to(address)
            except OSError as error:  # timeouts too
                trouble = error
        raise trouble or NotCalled(f"{self.host} has no address")

    async def _connect_to(self, address: str) -> _Connection:
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: _Connection(self.host), address, self._port, ssl=self._tls, server_hostname=self.host
        )
        try:
            await connection.greeted
        except BaseException:
            connection.abort()
            raise
        return connection


class _Call:
    """Call that waits for its answer."""

    __slots__ = ("answer", "body", "headers", "status")

    def __init__(self, answer: asyncio.Future[HttpResponse]) -> None:
        self.answer = answer
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = bytearray()


class _Connection(asyncio.Protocol):
    """One HTTP/2 connection. `greeted` is done when the provider has sent its settings."""

    def __init__(self, host: str) -> None:
        self._loop = asyncio.get_running_loop()
        self.greeted: asyncio.Future[None] = self._loop.create_future()
        self._host = host
        self._state = H2Connection(H2Configuration(header_encoding=None))
        self._calls: dict[int, _Call] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()  # calls that wait for a free stream or window
        self._transport: asyncio.Transport | None = None
        self._is_closed = False
        self._is_flushing = False
        self._received = 0  # HTTP/2 events received
        self._received_at = self._loop.time()

    # --- called by MultiplexedCaller ---

    def is_good(self) -> bool:
        """Return whether the connection may carry another call. An idle connection is aborted after KEEP_S."""
        if not (self._is_closed or self._calls) and self._loop.time() - self._received_at > KEEP_S:
            self.abort()
        return not self._is_closed

    async def call(self, headers: list[tuple[str, str]], body: bytes) -> HttpResponse:
        """Make a call and return its response.

        Raise _NotProcessed if the call may be repeated, NotCalled if no answer will come.
        """
        await self._room(len(body))
        received = self._received
        stream = self._state.get_next_available_stream_id()
        self._state.send_headers(stream, headers)
        self._state.send_data(stream, body, end_stream=True)
        call = self._calls[stream] = _Call(self._loop.create_future())
        self._flush_soon()
        try:
            return await call.answer
        finally:
            if self._calls.pop(stream, None) is not None:
                self._give_up(stream, received)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._end(NotCalled(f"the connection to {self._host} was aborted"))

    def _give_up(self, stream: int, received: int) -> None:
        """Cancel the stream of a call without an answer.

        Abort the connection if `received`, the number of events received before the call, has not grown since.
        """
        if self._received == received:
            self.abort()
        elif not self._is_closed:
            self._state.reset_stream(stream, ErrorCodes.CANCEL)
            self._flush_soon()
            self._wake()

    async def _room(self, size: int) -> None:
        """Wait until the provider accepts another call with a body of `size` bytes."""
        while True:
            if self._is_closed:
                raise _NotProcessed
            if size > min(self._state.remote_settings.initial_window_size, self._state.max_outbound_frame_size):
                raise NotCalled(f"{self._host} does not accept a request of {size} bytes")
            at_once = min(MOST_AT_ONCE, self._state.remote_settings.max_concurrent_streams)
            if len(self._calls) < at_once and self._state.outbound_flow_control_window >= size:
                return
            turn = self._loop.create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn in self._waiting:
                    self._waiting.remove(turn)
                else:
                    self._wake()  # let another waiting call use the room
                raise

    # --- called by the event loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        chosen: ssl.SSLObject = transport.get_extra_info("ssl_object")
        if chosen.selected_alpn_protocol() != "h2":
            self._end(NotCalled(f"{self._host} does not support HTTP/2"))
            return
        self._state.initiate_connection()
        self._flush()

    def data_received(self, data: bytes) -> None:
        if self._is_closed:
            return
        try:
            for event in self._state.receive_data(data):
                self._received += 1
                self._received_at = self._loop.time()
                self._receive(event)
        except H2Error:
            self._end(NotCalled(f"{self._host} violated the HTTP/2 protocol"))
        self._flush()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(NotCalled(f"{self._host} dropped the connection"))

    def _receive(self, event: Event) -> None:
        match event:
            case RemoteSettingsChanged():
                if not self.greeted.done():
                    self.greeted.set_result(None)
            case ResponseReceived(stream_id=int(stream), headers=list(headers)):
                if (call := self._calls.get(stream)) is not None:
                    named = {_text(name): _text(value) for name, value in headers}
                    call.status, call.headers = int(named.pop(":status")), named
            case DataReceived(stream_id=int(stream), data=bytes(data), flow_controlled_length=int(length)):
                self._state.acknowledge_received_data(length, stream)
                if (call := self._calls.get(stream)) is not None:
                    call.body += data
                    if len(call.body) > MOST_ANSWER:
                        self._state.reset_stream(stream, ErrorCodes.CANCEL)
                        self._answered(stream)
            case StreamEnded(stream_id=int(stream)):
                self._answered(stream)
            case StreamReset(stream_id=int(stream), error_code=code):
                is_refused = code == ErrorCodes.REFUSED_STREAM
                self._failed(
                    stream, _NotProcessed() if is_refused else NotCalled(f"{self._host} cancelled the request")
                )
            case ConnectionTerminated(last_stream_id=last):
                for stream in [stream for stream in self._calls if stream > (last or 0)]:
                    self._failed(stream, _NotProcessed())
                self._end(NotCalled(f"{self._host} closed the connection"))

    def _answered(self, stream: int) -> None:
        if (call := self._calls.pop(stream, None)) is not None and not call.answer.done():
            call.answer.set_result(HttpResponse(call.status, call.headers, bytes(call.body[:MOST_ANSWER])))

    def _failed(self, stream: int, error: Exception) -> None:
        call = self._calls.pop(stream)
        if not call.answer.done():
            call.answer.set_exception(error)

    def _end(self, error: NotCalled) -> None:
        """Fail all open calls with `error`, refuse new calls, and close."""
        if self._is_closed:
            return
        self._is_closed = True
        if not self.greeted.done():
            self.greeted.set_exception(error)
            self.greeted.exception()  # marks the exception as retrieved, because possibly no caller waits for it
        for stream in [*self._calls]:
            self._failed(stream, error)
        self._wake()
        self._flush()  # sends the reason, if the error is on this side
        if self._transport is not None:
            self._transport.close()

    def _wake(self) -> None:
        """Wake as many waiting calls as there may be room for; all of them, if the connection is closed."""
        free = MOST_AT_ONCE if self._is_closed else self._state.remote_settings.max_concurrent_streams
        while self._waiting and (self._is_closed or free > len(self._calls)):
            if not (turn := self._waiting.popleft()).done():
                turn.set_result(None)
                free -= 1

    def _flush_soon(self) -> None:
        """Write all output of one turn of the event loop together."""
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        data = self._state.data_to_send()
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)


def _text(data: bytes | str) -> str:
    return data.decode("latin-1") if isinstance(data, bytes) else data
