"""The hot link: one connection to one Redis server, over hiredis.

Commands issued in the same tick go out in one write and are answered in order. Pushes (RESP3) are handed over as they
come. redis-py's client does the same at a tenth of the rate; it is used for everything cold.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import hiredis

from greendot.errors import EngineUnavailable

Argument = str | bytes | int
DEADLINE_S = 2.0  # a command not answered by then means the link is dead


class RedisError(EngineUnavailable):
    """Redis answered with an error; the first word is its code."""

    @property
    def code(self) -> str:
        return str(self).partition(" ")[0]


class Link(asyncio.Protocol):
    """Made by `connect`. `lost` is called once, when the connection is gone."""

    def __init__(self, pushed: Callable[[list[Any]], None], lost: Callable[[Link], None]) -> None:
        self._pushed = pushed
        self._lost = lost
        self._reader = hiredis.Reader(protocolError=RedisError, replyError=RedisError)
        self._expected: deque[asyncio.Future[Any] | None] = deque()  # one per command; None: nobody wants the answer
        self._unsent: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._answered = 0
        self._loop = asyncio.get_running_loop()

    # --- commands ---

    def call(self, *command: Argument) -> asyncio.Future[Any]:
        """Send a command with this tick's others; the future has its answer or RedisError."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._send(command, future)
        return future

    def post(self, *command: Argument) -> None:
        """Send a command whose answer nobody waits for."""
        self._send(command, None)

    def post_push(self, *command: Argument) -> None:
        """Send a command that is answered by pushes only (SUBSCRIBE and its kin)."""
        if self.open:
            if not self._unsent:
                self._loop.call_soon(self._flush)
            self._unsent.append(hiredis.pack_command(tuple(command)))  # type: ignore[arg-type]

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def _send(self, command: Sequence[Argument], future: asyncio.Future[Any] | None) -> None:
        if not self.open:
            if future is not None:
                future.set_exception(EngineUnavailable("no connection to Redis"))
            return
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(hiredis.pack_command(tuple(command)))  # type: ignore[arg-type]
        self._expected.append(future)
        if self._watch is None:
            self._watch = self._loop.call_later(DEADLINE_S, self._look, self._answered)

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent and self._transport is not None:
            self._transport.write(b"".join(unsent))

    # --- answers ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (answer := self._reader.gets()) is not False:
            if isinstance(answer, hiredis.PushNotification):
                self._pushed(answer)
                continue
            self._answered += 1
            future = self._expected.popleft()
            if future is None or future.done():
                continue
            if isinstance(answer, RedisError):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._transport = None
        expected, self._expected = self._expected, deque()
        self._unsent.clear()
        for future in expected:
            if future is not None and not future.done():
                future.set_exception(EngineUnavailable("the connection to Redis was lost"))
        self._lost(self)

    def close(self) -> None:
        if self._transport is not None:
            self._flush()
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _look(self, answered: int) -> None:
        """Nothing answered for a whole deadline although something waited all the time: the link is dead."""
        self._watch = None
        if not self._expected:
            return
        if self._answered == answered:
            self.abort()
            return
        self._watch = self._loop.call_later(DEADLINE_S, self._look, self._answered)
