"""HTTP request and its response, as an ASGI application sees them."""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import unquote

from greendot.telemetry import log_events
from greendot.telemetry.log import log
from greendot.telemetry.traceparent import enter
from greendot.transport.request_head import Field, Head, tokens

Message = MutableMapping[str, Any]
App = Callable[[Any, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]

_STATUS_LINES = {status.value: b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode()) for status in HTTPStatus}
_BAD_NAME = re.compile(rb"[^!#$%&'*+.^_`|~0-9A-Za-z-]")
_BAD_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")  # a line break would start another field
PER_TURN = 16  # requests that start in one turn of the event loop


_dated = (0, b"")  # a second of the wall clock, and its Date field


def date_field() -> bytes:
    """Return the Date field that every response has (RFC 9110, 6.6.1), as a line. It is formatted once a second."""
    global _dated
    now = int(time.time())
    if _dated[0] != now:
        _dated = now, b"date: %b\r\n" % formatdate(now, usegmt=True).encode()
    return _dated[1]


def scope_of(head: Head, transport: asyncio.Transport) -> dict[str, Any]:
    """Return the ASGI scope of a request."""
    path = head.path.decode("ascii")
    info = transport.get_extra_info
    server, client = info("sockname"), info("peername")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": head.version,
        "server": server and tuple(server[:2]),
        "client": client and tuple(client[:2]),
        "scheme": "http" if info("sslcontext") is None else "https",
        "root_path": "",
        "method": head.method.decode("ascii"),
        "path": unquote(path) if "%" in path else path,
        "raw_path": head.path,
        "query_string": head.query,
        "headers": head.fields,
        "state": {},
    }


class RequestThrottle:
    """Queue that starts PER_TURN requests in each turn of the loop, in the order of arrival.

    Connected clients wait for these requests only, not for a request from every open socket.
    """

    def __init__(self) -> None:
        self._left = PER_TURN
        self._waiting: deque[Callable[[], None]] = deque()
        self._scheduled = False

    def enter(self, start: Callable[[], None]) -> None:
        """Call `start`, now or in a later turn."""
        if self._left:
            self._left -= 1
            start()
        else:
            self._waiting.append(start)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        enter(None)  # the trace in which this turn was scheduled ends here
        idle, self._left = self._left == PER_TURN, PER_TURN
        while self._waiting and self._left:
            self._left -= 1
            self._waiting.popleft()()
        if idle:
            self._scheduled = False
        else:
            asyncio.get_running_loop().call_soon(self._turn)


class ResponseSink(Protocol):
    """Connection of an exchange, as the exchange uses it."""

    async def writable(self) -> None: ...
    def write(self, data: bytes) -> None: ...
    def throttle(self) -> None: ...  # called after the application took some of the body: more may be read
    def answered(self, exchange: Exchange) -> None: ...  # called when the response is complete
    def abort(self) -> None: ...


class Exchange:
    """Request body and response of one request. Later requests wait until the response is complete."""

    __slots__ = (
        "_changed",
        "_chunked",
        "_continue",
        "_default_headers",
        "_head",
        "_left",
        "_line",
        "_silent",
        "body",
        "disconnected",
        "finished",
        "keep_alive",
        "more_body",
        "running",
        "scope",
        "started",
    )

    def __init__(
        self,
        scope: dict[str, Any],
        line: ResponseSink,
        default_headers: list[Field],
        *,
        keep_alive: bool,
        expects: bool,
    ) -> None:
        """Create the exchange. With `expects` the client waits for 100 Continue before it sends the body."""
        self.scope = scope
        self.keep_alive = keep_alive
        self.body = bytearray()  # received and not yet taken by the application
        self.more_body = True
        self.running = False  # the application has been called
        self.started = False  # the status is decided
        self.finished = False  # the response is complete
        self.disconnected = False  # nothing more can be received or sent
        self._line = line
        self._default_headers = default_headers
        self._continue = expects
        self._changed = asyncio.Event()
        self._chunked = False
        self._head = b""  # head of the response, until written with the first part of the body
        self._silent = False  # the response has no body, whatever the application sends
        self._left: int | None = None  # bytes of the announced length that are still to be written

    # --- the request ---

    def feed(self, data: bytes) -> None:
        """Add a piece of the body."""
        self.body += data
        self._changed.set()

    def complete(self) -> None:
        """End the body."""
        self.more_body = False
        self._changed.set()

    def disconnect(self) -> None:
        """End the exchange: the application receives a disconnect, and nothing it sends is written."""
        self.disconnected = True
        self._changed.set()

    async def receive(self) -> Message:
        """ASGI: return a piece of the body, or a disconnect."""
        if self._continue and not self.disconnected:
            self._continue = False
            self._line.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if not self.disconnected and not self.finished:
            self._line.throttle()
            await self._changed.wait()
            self._changed.clear()
        if self.disconnected or self.finished:
            return {"type": "http.disconnect"}
        body, self.body = self.body, bytearray()
        return {"type": "http.request", "body": bytes(body), "more_body": self.more_body}

    # --- the response ---

    def start(self, app: App, tasks: set[asyncio.Task[None]]) -> None:
        """Run in a task, unless the client is gone."""
        if not self.disconnected:
            task = asyncio.get_running_loop().create_task(self.run(app))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def run(self, app: App) -> None:
        """Call the application. An exception is logged and answered with 500."""
        try:
            await app(self.scope, self.receive, self.send)
            if not self.finished and not self.disconnected:
                raise RuntimeError("the application returned before its response was complete")
        except Exception as error:
            log(log_events.WORK_FAILED, error, work="HTTP request")
            self.keep_alive = False
            if not self.started:
                await self.send({"type": "http.response.start", "status": 500, "headers": [(b"content-length", b"0")]})
                await self.send({"type": "http.response.body"})
            elif not self.finished:
                self._line.abort()

    async def send(self, message: Message) -> None:
        """ASGI: write a part of the response, after the client has read enough of the earlier output."""
        if not self.disconnected:
            await self._line.writable()
        if self.disconnected:
            return
        expected = "http.response.body" if self.started else "http.response.start"
        if self.finished or message["type"] != expected:
            raise RuntimeError(f"unexpected ASGI message {message['type']!r}")
        if self.started:
            self._write_body(message.get("body", b""), more=message.get("more_body", False))
        else:
            self._make_head(message["status"], [*self._default_headers, *message.get("headers", ())])

    def _make_head(self, status: int, fields: list[Field]) -> None:
        lines = [_STATUS_LINES.get(status, b"HTTP/1.1 %d \r\n" % status), date_field()]
        options: list[bytes] = []  # values of the Connection field
        length: int | None = None
        for name, value in fields:
            if _BAD_NAME.search(name) or _BAD_VALUE.search(value):
                raise RuntimeError(f"invalid header field {name!r}")
            if name == b"connection":
                options += tokens(value)
                continue
            if name == b"content-length":
                length = int(value)
            lines.append(b"%b: %b\r\n" % (name, value))
        if b"close" in options or self._continue:  # without 100 Continue, the client may or may not send the body
            self.keep_alive = False
        if not self.keep_alive and b"close" not in options:
            options.append(b"close")
        if options:
            lines.append(b"connection: %b\r\n" % b", ".join(options))
        if self.scope["method"] == "HEAD" or status in (204, 304):
            self._silent = True
        elif length is not None:
            self._left = length
        elif self.scope["http_version"] == "1.1":
            self._chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n")
        self.started = True
        self._head = b"".join(lines)

    def _write_body(self, body: bytes, *, more: bool) -> None:
        if self._silent:
            body = b""
        elif self._chunked:
            body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + (b"" if more else b"0\r\n\r\n")
        elif self._left is not None:  # otherwise the body ends with the connection
            self._left -= len(body)
            if self._left < 0 or (self._left and not more):
                raise RuntimeError("the response has another length than its Content-Length")
        self._line.write(self._head + body)
        self._head = b""
        if not more:
            self.finished = True
            self._changed.set()
            self._line.answered(self)
