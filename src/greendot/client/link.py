"""Link of a client: one WebSocket from open to close. The session makes a new link after a loss."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn, TypeVar

import msgspec
from msgspec.structs import replace
from picows import WSCloseCode, WSFrame, WSListener, WSMsgType, WSTransport

from greendot.client.codec import Answer, Failure, decode, decode_reply, encode
from greendot.client.errors import BadReply, CommandRefused, ConnectionRefused, Disconnected, closing_error
from greendot.client.heartbeat import HeartbeatTimer
from greendot.protocol.codec import MAX_FRAME
from greendot.protocol.commands import Bye, Command, CommandId, Heartbeat, Hello
from greendot.protocol.events import Event, Welcome
from greendot.protocol.replies import Reply

R = TypeVar("R", bound=Reply)

FAREWELL_S = 2.0  # seconds that a closing client waits for the server to close

log = logging.getLogger("greendot.client")


class _Waiting(NamedTuple):
    """Call that waits for its reply."""

    kind: type[Reply]
    future: asyncio.Future[Any]
    fold: Callable[[Any], None] | None


class Link(WSListener):
    """Client side of one WebSocket. Events go to `receive` in the order of arrival.

    All callers that wait on a link get the same error when its socket ends: ConnectionRefused if the close code forbids
    a return, else Disconnected.
    """

    def __init__(self, receive: Callable[[Event], None]) -> None:
        self._receive = receive
        self._loop = asyncio.get_running_loop()
        self._transport: WSTransport | None = None
        self._waiting: dict[CommandId, _Waiting] = {}
        self._welcome: asyncio.Future[Welcome] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()  # resolved when the socket is gone
        self._error: Disconnected | ConnectionRefused | None = None  # reason of the close, once known
        self._pulse: HeartbeatTimer | None = None
        self._parts: list[bytes] = []  # fragments of an incomplete message
        self._last_id = 0
        self._max_frame = MAX_FRAME

    async def hello(self, hello: Hello) -> Welcome:
        """Send the hello and return the welcome. From the welcome on, the link sends heartbeats."""
        self.send(replace(hello, id=self._next_id()))
        return await self._welcome

    def send(self, command: Command) -> None:
        """Write `command` without expecting a reply. Raise ValueError if the frame exceeds the server's limit."""
        payload = encode(command)
        if len(payload) > self._max_frame:
            # The server would close the socket (1009), and the client would send the frame again after every reconnect.
            raise ValueError(f"a frame of {len(payload)} bytes is over the server's limit of {self._max_frame}")
        if self._transport is not None:
            self._transport.send(WSMsgType.TEXT, payload)

    def request(self, command: Command, kind: type[R], fold: Callable[[R], None] | None = None) -> asyncio.Future[R]:
        """Send `command`; return a future of its reply as `kind`.

        The future fails with CommandRefused, BadReply, or the error that ended the link. `fold` is called with the
        reply before any later frame is read. A coroutine that awaits the future may run only after later frames.
        """
        future: asyncio.Future[R] = self._loop.create_future()
        if self._error is not None or self._ended.done():
            future.set_exception(self._why())
            return future
        number = self._next_id()
        self.send(replace(command, id=number))
        self._waiting[number] = _Waiting(kind, future, fold)
        future.add_done_callback(lambda _: self._waiting.pop(number, None))
        return future

    async def lost(self) -> NoReturn:
        """Wait until the socket is gone, then raise the error that ended the link."""
        await asyncio.shield(self._ended)
        raise self._why()

    async def close(self, *, bye: bool = False) -> None:
        """Close the socket and return when it is gone, gracefully or not. With `bye` the session ends for good."""
        if self._transport is None:
            return
        if not self._ended.done() and self._error is None:
            if bye:
                self.send(Bye())
            else:
                self._transport.send_close(WSCloseCode.GOING_AWAY)
        try:
            async with asyncio.timeout(FAREWELL_S):
                await asyncio.shield(self._ended)
        except TimeoutError:
            pass
        finally:
            self._transport.disconnect(graceful=False)
        try:
            await self._transport.wait_disconnected()
        except Exception as error:  # picows raises stream errors here; the socket is gone anyway
            log.debug("the socket ended with %r", error)

    def abort(self) -> None:
        """Drop the socket without a close frame."""
        if self._error is None:
            self._error = Disconnected()
        if self._transport is not None:
            self._transport.disconnect(graceful=False)

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _why(self) -> Disconnected | ConnectionRefused:
        # A new exception for each caller: an exception raised in two places would mix their tracebacks.
        return closing_error(self._error.code, self._error.reason) if self._error else Disconnected()

    # Callbacks of picows

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if self._pulse is not None:
            self._pulse.received()
        match frame.msg_type:
            case WSMsgType.TEXT | WSMsgType.CONTINUATION:
                self._parts.append(frame.get_payload_as_bytes())
                if frame.fin:
                    message, self._parts = b"".join(self._parts), []
                    self._read(message)
            case WSMsgType.PING:
                transport.send_pong(frame.get_payload_as_bytes())
            case WSMsgType.CLOSE:
                payload = frame.get_payload_as_bytes()
                # picows returns unknown codes as an odd enum member, so the code is read from the bytes.
                code = int.from_bytes(payload[:2], "big") if len(payload) >= 2 else 1005
                self._error = closing_error(code, payload[2:].decode(errors="replace"))
                transport.send_close(frame.get_close_code())
                transport.disconnect()

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        if self._pulse is not None:
            self._pulse.stop()
        for waiting in tuple(self._waiting.values()):
            if not waiting.future.done():
                waiting.future.set_exception(self._why())
        if not self._welcome.done():
            self._welcome.set_exception(self._why())
            self._welcome.exception()  # retrieved, because a lost link without a waiting caller is no unhandled error
        if not self._ended.done():
            self._ended.set_result(None)

    def pause_writing(self) -> None:
        """Do nothing: writes of the client are small, and calls wait for their replies."""

    def resume_writing(self) -> None:
        """Do nothing; see `pause_writing`."""

    # Frames

    def _read(self, message: bytes) -> None:
        try:
            frame = decode(message)
        except msgspec.DecodeError as error:
            log.warning("ignored a frame that cannot be read: %s", error)
            return
        match frame:
            case Answer():
                self._answered(frame)
            case Failure():
                self._failed(frame)
            case Welcome():
                self._welcomed(frame)
            case Event():
                self._receive(frame)

    def _answered(self, answer: Answer) -> None:
        waiting = self._waiting.get(answer.id)
        if waiting is None or waiting.future.done():
            return
        try:
            reply = decode_reply(answer.data, waiting.kind)
        except msgspec.DecodeError as error:
            waiting.future.set_exception(BadReply(f"cannot read the server's {waiting.kind.__name__}: {error}"))
            return
        if waiting.fold is not None:
            waiting.fold(reply)
        waiting.future.set_result(reply)

    def _failed(self, failure: Failure) -> None:
        error = CommandRefused(failure.code, failure.message, retry=failure.retry, retry_in_ms=failure.retry_in_ms)
        if not self._welcome.done():  # before the welcome only the hello can be refused
            self._welcome.set_exception(error)
            return
        waiting = self._waiting.get(failure.id) if failure.id is not None else None
        if waiting is None:
            self._receive(failure)
        elif not waiting.future.done():
            waiting.future.set_exception(error)

    def _welcomed(self, welcome: Welcome) -> None:
        if self._welcome.done():
            return
        self._max_frame = welcome.limits.frame_bytes
        self._pulse = HeartbeatTimer(welcome.heartbeat_s, lambda: self.send(Heartbeat()), self.abort)
        self._receive(welcome)
        self._welcome.set_result(welcome)
