"""Fast connection to one Redis server, over hiredis.

Commands of the same tick (turn of the event loop) are sent in one write and are answered in order. Pushes (RESP3) are
delivered as they arrive. redis-py's client does the same at a tenth of the rate.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import hiredis

from greendot.engine.redis.url import Address, RedisTarget
from greendot.errors import EngineUnavailable

Argument = str | bytes | int
DEADLINE_S = 2.0  # seconds without any answer after which the link is dead
CONNECT_S = 2.0
MOST_UNSENT = 8 * 1024 * 1024  # bytes not yet taken by the kernel; with more, the server is treated as gone
PIECE = 16 * 1024  # bytes parsed at a time: hiredis moves its unparsed input every few answers
_CONFIRMS = frozenset((b"subscribe", b"unsubscribe", b"ssubscribe", b"sunsubscribe"))
_Push = hiredis.PushNotification
_pack = hiredis.pack_command


class RedisError(EngineUnavailable):
    """Error answer of Redis; the first word is its code."""

    @property
    def code(self) -> str:
        return str(self).partition(" ")[0]


class _Confirmations:
    """Expected answer to a (un)subscription: a push for each channel, or one error."""

    __slots__ = ("awaited", "future")

    def __init__(self, kind: str, channels: Sequence[str], future: asyncio.Future[Any]) -> None:
        self.awaited = {(kind.lower().encode(), channel.encode()) for channel in channels}
        self.future = future


class Link(asyncio.Protocol):
    """Protocol of one connection, made by `connect`.

    `pushed` gets pushes. `lost` is called once when the connection is gone. `refused` gets errors of commands without a
    waiting caller. `timed` gets the seconds that timed commands took.
    """

    def __init__(
        self,
        pushed: Callable[[list[Any]], None],
        lost: Callable[[Link], None],
        refused: Callable[[RedisError], None] = lambda error: None,
        timed: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self._pushed = pushed
        self._lost = lost
        self._refused = refused
        self._on_timed = timed
        self._reader = hiredis.Reader(protocolError=RedisError, replyError=RedisError)
        # One entry per command; None: the answer is not wanted.
        self._expected: deque[asyncio.Future[Any] | _Confirmations | None] = deque()
        self._unsent: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._answered = 0
        self._timed = 0  # number of the answer that is timed; 0: none
        self._timed_at = 0.0
        self.latency_s = 0.0  # seconds from the last timed write to its answer
        self.received = 0  # how often the socket delivered input; shows the watchdog that input still arrives
        self._loop = asyncio.get_running_loop()

    @classmethod
    def unheard(cls) -> Link:
        """Return a link that only answers calls: pushes and the end of the connection are ignored."""
        return cls(lambda push: None, lambda link: None)

    # --- commands ---

    def call(self, *command: Argument) -> asyncio.Future[Any]:
        """Send a command together with the other commands of this tick. The future gets the answer or RedisError."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._send(command, future)
        return future

    def post(self, *command: Argument) -> None:
        """Send a command without waiting for its answer."""
        self._send(command, None)

    def subscribe(self, kind: str, channels: Sequence[str]) -> asyncio.Future[Any]:
        """Send SUBSCRIBE or a related command. The future is done when every channel is confirmed."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._send((kind, *channels), _Confirmations(kind, channels, future) if channels else future)
        return future

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def _send(self, command: Sequence[Argument], expected: asyncio.Future[Any] | _Confirmations | None) -> None:
        if not self.open:
            _fail(expected, "no connection to Redis")
            return
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(_pack(tuple(command)))  # type: ignore[arg-type]
        self._expected.append(expected)
        if self._watch is None:
            self._watch = self._loop.call_later(DEADLINE_S / 2, self._check_deadline, self._answered, 1)

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent and self._transport is not None:
            if not self._timed:  # one write at a time is timed, by its last command
                self._timed, self._timed_at = self._answered + len(self._expected), perf_counter()
            self._transport.write(b"".join(unsent))
            if self._transport.get_write_buffer_size() > MOST_UNSENT:
                self.abort()

    # --- answers ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.received += 1
        pushed, gets = self._pushed, self._reader.gets
        try:
            for at in range(0, len(data), PIECE):
                self._reader.feed(data, at, min(PIECE, len(data) - at))
                while (answer := gets()) is not False:
                    if type(answer) is not _Push:
                        self._answer(answer)
                    elif answer[0] in _CONFIRMS:
                        self._confirmed(answer)
                    else:
                        pushed(answer)
        except RedisError:  # not RESP: the peer is not Redis
            self.abort()
        if self._timed and self._answered >= self._timed:
            self.latency_s, self._timed = perf_counter() - self._timed_at, 0
            self._on_timed(self.latency_s)

    def _answer(self, answer: Any) -> None:
        self._answered += 1
        if not self._expected:
            self.abort()
            return
        expected = self._expected.popleft()
        future = expected.future if isinstance(expected, _Confirmations) else expected
        if future is None:
            if isinstance(answer, RedisError):
                self._refused(answer)
        elif future.done():
            pass
        elif isinstance(answer, RedisError):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    def _confirmed(self, push: list[Any]) -> None:
        first = self._expected[0] if self._expected else None
        if isinstance(first, _Confirmations) and (push[0], push[1]) in first.awaited:
            first.awaited.discard((push[0], push[1]))
            if not first.awaited:
                self._answer(None)
        else:  # Redis ends a subscription when its slot moves to another server
            self._pushed(push)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._transport = None
        expected, self._expected = self._expected, deque()
        self._unsent.clear()
        for one in expected:
            _fail(one, "the connection to Redis was lost")
        self._lost(self)

    def close(self) -> None:
        if self._transport is not None:
            self._flush()
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _check_deadline(self, answered: int, halves: int) -> None:
        """Abort the link if commands have waited for a whole deadline and none was answered.

        Checked twice per deadline, so that silence right after an answer is detected at most half a deadline later.
        """
        self._watch = None
        if not self._expected:
            return
        silent = halves if self._answered == answered else 0
        if silent == 2:
            self.abort()
            return
        self._watch = self._loop.call_later(DEADLINE_S / 2, self._check_deadline, self._answered, silent + 1)


def _fail(expected: asyncio.Future[Any] | _Confirmations | None, reason: str) -> None:
    future = expected.future if isinstance(expected, _Confirmations) else expected
    if future is not None and not future.done():
        future.set_exception(EngineUnavailable(reason))
        future.exception()  # marked as retrieved: possibly no caller awaits the future


async def connect(make: Callable[[], Link], place: RedisTarget, address: Address, tls: ssl.SSLContext | None) -> Link:
    """Return a link after HELLO, login and SELECT. Raise EngineUnavailable with the reason if one of these fails."""
    loop = asyncio.get_running_loop()
    link: Link | None = None
    try:
        async with asyncio.timeout(CONNECT_S):
            if address.port:
                _, link = await loop.create_connection(make, *address, ssl=tls)
            else:
                _, link = await loop.create_unix_connection(make, address.host)
            # A user without a password needs none. Without the user name, Redis would log in as `default`.
            login = ("AUTH", place.user or "default", place.password or "") if place.user or place.password else ()
            await link.call("HELLO", "3", *login, "SETNAME", "greendot")
            if place.db:
                await link.call("SELECT", place.db)
    except (OSError, TimeoutError, ssl.SSLError, EngineUnavailable) as error:
        if link is not None:
            link.abort()
        raise EngineUnavailable(_reason(error, tls)) from None
    except BaseException:
        if link is not None:
            link.abort()
        raise
    return link


def _reason(error: Exception, tls: ssl.SSLContext | None) -> str:
    """Return the reason in words, with a remedy where one is known."""
    if isinstance(error, TimeoutError):
        return f"no answer in time{'; if the server has no TLS, write redis in place of rediss' if tls else ''}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted ({error.verify_message}); ?ca=FILE names the authority that signed it"
    if isinstance(error, ssl.SSLError):
        return f"TLS handshake failed ({error.reason})"
    if isinstance(error, RedisError):
        if error.code == "NOAUTH":
            return "a user and password are required: redis://USER:PASSWORD@HOST"
        return str(error)
    if isinstance(error, EngineUnavailable):
        remedy = "" if tls else "; if the server requires TLS, write rediss in place of redis"
        return f"the connection was lost at once{remedy}"
    return (isinstance(error, OSError) and error.strerror) or str(error)
