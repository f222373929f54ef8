"""HTTP/1 on one socket, with a bound for everything a client may send or leave unread.

httptools parses the requests. Requests are answered one after the other. A request that arrives before the previous one
is answered waits, and reading pauses. A WebSocket handshake waits for the responses before it, as any request does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

import httptools
from msgspec import structs

from greendot.node.timer_model import Timer
from greendot.telemetry import log_events
from greendot.telemetry.log import log
from greendot.transport.event_stream import StreamHost, StreamRequest, StreamRequested, open_stream, stream_request
from greendot.transport.http_exchange import Exchange, scope_of
from greendot.transport.ingress import PendingSocket
from greendot.transport.plain_socket import SocketProtocol
from greendot.transport.request_head import (
    BAD_REQUEST,
    MALFORMED,
    Field,
    Head,
    Refusal,
    RequestRefused,
    read_head,
    tokens,
)
from greendot.transport.tls import release
from greendot.transport.upgrade import PortState, WebSocketRequest, accept, refusal_bytes, route_of
from greendot.transport.websocket_handshake import LIVE, PATH, check_handshake, handshake_fields, wants_websocket

MAX_HEAD = 16 * 1024  # bytes of a request that are not its body: line, headers, trailers, chunk extensions
MAX_FIELDS = 128  # header fields and trailers of a request
MAX_PIPELINED = 8  # requests of a socket that are not answered yet
MAX_WAITING_BODY = 64 * 1024  # bytes of a body that the application has not taken; then reading pauses
MAX_EARLY = 4 * 1024  # bytes of frames in the packet of a handshake: all are handled in one turn of the event loop
MAX_UNREAD = 64 * 1024  # bytes of responses not taken by the kernel; then no new response starts (TLS default: 512 KiB)
MAX_DISCARDED = 1024 * 1024  # bytes of a body that are read after its request was answered
REQUEST_S = 10.0  # time for a whole request; restarted while the server has paused reading ...
BODY_LEAST = 256 * 1024  # ... or if at least these bytes of the body have arrived in this time
KEEP_ALIVE_S = 5.0  # longest time between two requests
UNREAD_S = 10.0  # time for a client to read some of the responses that wait ...
READ_LEAST = 16 * 1024  # ... and the bytes that it must read in this time
LINGER_S = 2.0  # time for a client to read the last response; its further input is discarded
LINGER_MOST = 256 * 1024  # bytes of input that are discarded after the last response

TOO_EARLY = Refusal(
    b"400 Bad Request",
    b"too much data before the 101 response; wait for the response before sending frames\n",
    counter=MALFORMED,
)
TOO_SLOW = Refusal(b"408 Request Timeout", counter="realtime_refused_slow_total")
TOO_LARGE = Refusal(b"431 Request Header Fields Too Large", counter="realtime_refused_headers_total")
TOO_MANY = Refusal(b"", counter="realtime_refused_pipelined_total")  # no response: those of earlier requests come first
GIVEN_UP = Refusal(b"")
_NO_PARSER = httptools.HttpRequestParser(object())  # placeholder: a parser and its protocol refer to each other


class HttpProtocol(SocketProtocol):
    """HTTP/1 protocol of one socket. Once `_end` is set, parsing stops. `_end` is called after the last response."""

    transport: asyncio.Transport

    def __init__(self, sockets: StreamHost, web: PortState, visit: PendingSocket, within_s: float) -> None:
        """Start with `within_s` seconds left for the first request, which has begun."""
        self._sockets = sockets
        self._web = web
        self._visit = visit
        self._within_s = within_s
        self._parser = self._new_parser()
        self._exchanges: deque[Exchange] = deque()  # the first is being answered, the others wait
        self._receiving: Exchange | None = None  # the exchange whose body is not complete
        self._handshake: WebSocketRequest | None = None
        self._end: Callable[[], None] | None = None
        self._deadline: Timer | None = None  # deadline of the request being received, or of the next request
        self._unread: Timer | None = None  # set while the client does not read its responses
        self._waiting = 0  # bytes of unread responses when the timer was set
        self._writable = asyncio.Event()
        self._writable.set()
        self._paused = False  # reading is paused
        self._held = b""  # bytes that were read and not parsed yet
        self._input_ended = False  # the client has closed its side
        self._begun = True  # a request has begun and is not complete
        self._in_head = True
        self._extra = 0  # bytes of the request outside its body
        self._chunk = 0  # bytes of the chunk being received
        self._arrived = 0  # bytes of the body since the deadline was set
        self._discarded = 0
        self._unparsed: Head | None = None  # head of a request whose body the parser skips because of its Upgrade

    # --- the transport ---

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        transport.set_write_buffer_limits(high=MAX_UNREAD)
        self._web.connections.add(self)
        self._expect(self._within_s, HttpProtocol._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        self._sockets.ingress.leave(self._visit)
        for exchange in self._exchanges:
            exchange.disconnect()
        self._writable.set()
        self._exchanges.clear()
        self._held = b""
        release(self.transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._web.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.feed(bytes(self._web.buffer[:nbytes]))

    def eof_received(self) -> bool:
        """Answer complete requests after the client has closed its side. TLS ends in both directions at once."""
        self._parse_held()
        self._input_ended = True
        if self._end is None:
            self._fail(GIVEN_UP)
        return bool(self._exchanges) and self.transport.get_extra_info("sslcontext") is None

    def pause_writing(self) -> None:
        self._writable.clear()
        self._watch_reader(UNREAD_S)

    def resume_writing(self) -> None:
        self._writable.set()
        if self._end is _nothing:
            self._watch_reader(UNREAD_S)
            return
        self._sockets.timers.cancel(self._unread)
        self._unread = None
        self._advance()

    def shutdown(self) -> None:
        """Finish the current request, and no other, because the server is closing."""
        if self._exchanges:
            self._exchanges[0].keep_alive = False
        else:
            self.transport.close()

    # --- ResponseSink of an exchange ---

    async def writable(self) -> None:
        await self._writable.wait()

    def write(self, data: bytes) -> None:
        self.transport.write(data)

    def abort(self) -> None:
        self.transport.abort()

    def throttle(self) -> None:
        """Pause or resume reading, so that nothing is read that cannot be handled yet."""
        full = self._receiving is not None and len(self._receiving.body) > MAX_WAITING_BODY
        pause = full or self._held != b"" or self._end not in (None, _nothing) or len(self._exchanges) > 1
        if pause != self._paused and not self.transport.is_closing():
            self._paused = pause
            (self.transport.pause_reading if pause else self.transport.resume_reading)()

    def answered(self, exchange: Exchange) -> None:
        """Start the next request, or close."""
        self._exchanges.popleft()
        exchange.body.clear()
        if not exchange.keep_alive:
            self._exchanges.clear()
            self._receiving = None
            self._finish(self._close)
        else:
            self._advance()

    def _advance(self) -> None:
        if self._exchanges:
            first = self._exchanges[0]
            if not first.running and self._writable.is_set():
                first.running = True
                self._web.gate.enter(partial(first.start, self._web.app, self._web.tasks))
        elif self._end is not None:
            end, self._end = self._end, _nothing
            end()
        elif not self._begun and self._deadline is None:
            self._expect(KEEP_ALIVE_S, HttpProtocol._close)
        self.throttle()

    # --- parsing ---

    def feed(self, data: bytes) -> None:
        """Parse data when the port's parse budget allows; nothing more is read before."""
        self._held = data
        if not self._web.parsing.run(self._parse_held):
            self.throttle()

    def _parse_held(self) -> None:
        data, self._held = self._held, b""
        if data and not self.transport.is_closing():
            self._feed(data)
            self.throttle()

    def _feed(self, data: bytes) -> None:
        if self._end is not None:
            self._discarded += len(data)
            if self._discarded > LINGER_MOST:
                self.transport.abort()
            return
        self._extra += len(data)
        try:
            while data:
                data = self._parse(data)
        except (RequestRefused, httptools.HttpParserError) as error:
            cause = error if isinstance(error, RequestRefused) else error.__context__  # the exception of a callback
            if isinstance(cause, StreamRequested):
                self._finish(partial(self._accept, cause.request))
                return
            if cause is not None and not isinstance(cause, RequestRefused):
                log(log_events.WORK_FAILED, cause, work="HTTP parser callback")
            self._fail(cause.refusal if isinstance(cause, RequestRefused) else BAD_REQUEST)
            return
        if self._end is None and self._extra > MAX_HEAD:
            self._fail(TOO_LARGE)

    def _parse(self, data: bytes) -> bytes:
        """Feed the parser; return the data that is still to be parsed."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
            if (handshake := self._handshake) is not None:
                if len(rest) > MAX_EARLY:
                    raise RequestRefused(TOO_EARLY) from None
                self._finish(partial(self._accept, structs.replace(handshake, rest=rest)))
                return b""
            if (head := self._unparsed) is not None:
                self._parser = self._primed(head)
                self._unparsed = None
            return rest
        return b""

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # Data behind a request with `Connection: close` is ignored. Otherwise it would replace the response by an
        # error.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def _primed(self, head: Head) -> httptools.HttpRequestParser:
        """Return a parser that expects the body of a request. The previous parser takes every Upgrade as accepted."""
        names = (b"content-length", b"transfer-encoding")
        lines = [b"%b: %b\r\n" % (name, head.by_name[name]) for name in names if name in head.by_name]
        parser = self._new_parser()
        parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(lines))
        return parser

    def on_message_begin(self) -> None:
        if self._unparsed is not None:
            return
        if len(self._exchanges) >= MAX_PIPELINED:
            raise RequestRefused(TOO_MANY)
        self._url = b""
        self._fields: list[Field] = []
        self._count = 0  # of fields
        self._in_head = True
        if not self._begun:
            self._begun = True
            self._expect(REQUEST_S, HttpProtocol._too_slow)

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count += 1
        if self._count > MAX_FIELDS:
            raise RequestRefused(TOO_LARGE)
        if self._in_head:  # trailers are counted and dropped
            self._fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self._unparsed is not None:
            return
        self._in_head = False
        if len(self._url) + sum(len(name) + len(value) + 4 for name, value in self._fields) > MAX_HEAD:
            raise RequestRefused(TOO_LARGE)
        parser = self._parser
        head = read_head(parser.get_method(), parser.get_http_version(), self._url, self._fields)
        if (refusal := self._sockets.ingress.misnamed(head.path, head.by_name)) is not None:
            raise RequestRefused(refusal)
        if parser.should_upgrade():
            if wants_websocket(head):
                self._handshake = self._read_handshake(head)
                return
            self._unparsed = head if head.has_body else None
        elif self._web.clients and (asked := stream_request(head)) is not None:
            raise StreamRequested(asked)  # nothing behind the request is parsed
        keep_alive = head.version == "1.1" and b"close" not in tokens(head.by_name.get(b"connection", b""))
        expects = head.version == "1.1" and head.by_name.get(b"expect", b"").lower() == b"100-continue"
        self._receiving = Exchange(
            scope_of(head, self.transport), self, self._web.default_headers, keep_alive=keep_alive, expects=expects
        )
        self._exchanges.append(self._receiving)
        self._advance()

    def on_body(self, body: bytes) -> None:
        self._extra -= len(body)
        self._chunk += len(body)
        exchange = self._receiving
        if exchange is None or exchange.finished:
            self._discarded += len(body)
            if self._discarded > MAX_DISCARDED:
                raise RequestRefused(GIVEN_UP)
            return
        self._arrived += len(body)
        exchange.feed(body)
        self.throttle()

    def on_chunk_complete(self) -> None:
        self._extra -= len(b"%x" % self._chunk) + 4  # length and two line ends of the chunk, not its extensions
        self._chunk = 0

    def on_message_complete(self) -> None:
        if self._unparsed is not None or self._handshake is not None:
            return
        if self._receiving is not None:
            self._receiving.complete()
            self._receiving = None
        self._begun = False
        self._extra = self._chunk = self._discarded = 0
        self._sockets.timers.cancel(self._deadline)
        self._deadline = None
        self._advance()

    def _read_handshake(self, head: Head) -> WebSocketRequest:
        web = self._web
        live = web.dashboard_socket is not None and (head.path == LIVE or not web.clients)
        if not live and not web.clients:
            raise RequestRefused(Refusal(b"404 Not Found"))
        route = route_of(web.routes, head.path)
        if (refusal := check_handshake(head, LIVE if live else PATH if route is None else head.path)) is not None:
            raise RequestRefused(refusal)
        query = head.query if self._sockets.token_in_query else b""
        key = head.by_name[b"sec-websocket-key"]
        if route is not None:
            asked = handshake_fields(head.by_name)
            return WebSocketRequest(key, asked, head.by_name, route=route, path=head.path, query=head.query)
        return WebSocketRequest(
            key, handshake_fields(head.by_name, query), head.by_name, web.dashboard_socket if live else None
        )

    # --- the end ---

    def _fail(self, refusal: Refusal) -> None:
        """Refuse the request and close, after the responses to earlier requests. An incomplete request is dropped."""
        exchange, self._receiving = self._receiving, None
        says_why = bool(refusal.status)
        if exchange is not None and not exchange.finished:
            exchange.disconnect()
            self._exchanges.remove(exchange)
            if exchange.started:
                self.transport.abort()  # an abort is the only sign to the client that the response is cut short
        if exchange is not None and exchange.started:
            says_why = False  # the client would take the refusal for the response to another request
        if refusal.counter:
            self._sockets.ingress.count(refusal.counter)
        self._finish(partial(self._refuse, refusal) if says_why else self._close)

    def _finish(self, end: Callable[[], None]) -> None:
        """Stop parsing; call `end` when every request is answered."""
        self._end = end
        self._parser = _NO_PARSER
        self._discarded = 0
        self._sockets.timers.cancel(self._deadline)
        self._deadline = None
        self._advance()

    def _accept(self, request: WebSocketRequest | StreamRequest) -> None:
        if self._input_ended:
            self._close()
            return
        if self.transport.get_write_buffer_size():
            # A connection bypasses the transport's buffer, so earlier responses must have left it.
            self._end = partial(self._accept, request)
            self.transport.set_write_buffer_limits(high=0)
            return
        if self._paused:
            self._paused = False
            self.transport.resume_reading()
        if isinstance(request, StreamRequest):
            headers = self._web.default_headers
            refusal = open_stream(self._sockets, self.transport, request, self._visit, headers)
        else:
            refusal = accept(self._sockets, self.transport, request, self._visit)
        if refusal is not None:
            self._refuse(refusal)
        else:
            self._leave()

    def _refuse(self, refusal: Refusal) -> None:
        if not self.transport.is_closing():
            self.transport.write(refusal_bytes(refusal))
        self._close()

    def _close(self) -> None:
        """Close this side and discard further input: a socket closed with unread input is reset, and output is lost."""
        self._end = _nothing
        transport = self.transport
        if transport.is_closing():
            return
        within_s = UNREAD_S if transport.get_write_buffer_size() else LINGER_S
        if self._input_ended or not transport.can_write_eof():
            transport.close()
        else:
            transport.write_eof()
        self._watch_reader(within_s)

    def _leave(self) -> None:
        self._parser = _NO_PARSER
        timers = self._sockets.timers
        timers.cancel(self._deadline)
        timers.cancel(self._unread)
        self._web.connections.discard(self)

    # --- time ---

    def _expect(self, within_s: float, late: Callable[[HttpProtocol], None]) -> None:
        self._arrived = 0
        self._sockets.timers.cancel(self._deadline)
        self._deadline = self._sockets.timers.set(within_s, late, self)

    def _too_slow(self) -> None:
        self._deadline = None
        if self._paused or self._arrived >= BODY_LEAST:  # if paused, the server itself does not read
            self._expect(REQUEST_S, HttpProtocol._too_slow)
        else:
            self._fail(TOO_SLOW)

    def _watch_reader(self, within_s: float) -> None:
        self._sockets.timers.cancel(self._unread)
        self._waiting = self.transport.get_write_buffer_size()
        self._unread = self._sockets.timers.set(within_s, HttpProtocol._not_read, self)

    def _not_read(self) -> None:
        self._unread = None
        waiting = self.transport.get_write_buffer_size()
        if 0 < waiting <= self._waiting - READ_LEAST:
            self._watch_reader(UNREAD_S)
            return
        if waiting:
            self._sockets.ingress.count("realtime_refused_unread_total")
        self.transport.abort()


def _nothing() -> None:
    """Stand for an end that was already called."""
