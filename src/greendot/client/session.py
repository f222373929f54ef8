"""Session of a client, which survives lost connections.

A link is one WebSocket connection. When a link is lost, the session opens a new one and restores the state: it watches
the same users, joins the same rooms and receives the missed messages.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from inspect import isawaitable
from ssl import SSLContext
from typing import TypeVar

from msgspec.structs import astuple
from picows import WSError

from greendot import __version__
from greendot.client.backoff import Backoff
from greendot.client.catchup import CatchUp
from greendot.client.codec import ClientState, Reminder, StateChanged
from greendot.client.dial import dial, retry_after_ms
from greendot.client.errors import Closed, CommandRefused, ConnectionRefused, Disconnected, Unreachable
from greendot.client.link import Link
from greendot.client.records import Cursors, room_stream
from greendot.client.restore import restore, resume_of
from greendot.client.send_queue import Sending, SendQueue, Sends
from greendot.client.state import View
from greendot.client.token_refresh import TokenRefresher
from greendot.protocol.codes import Close
from greendot.protocol.commands import ClientInfo, Command, Hello
from greendot.protocol.events import (
    Drain,
    Event,
    HeartbeatAck,
    NotificationCreated,
    Overloaded,
    RoomMessage,
    TypingStopped,
    Welcome,
)
from greendot.protocol.replies import Reply
from greendot.protocol.versions import VERSIONS

R = TypeVar("R", bound=Reply)
Token = str | Callable[[], str | Awaitable[str]]

ATTEMPT_S = 10.0  # time limit of one attempt: get a token, open the socket, receive the welcome
# Type of event → versions of the event that this client can read. Only for events with several versions: the client
# sends this table in its hello, and the server then chooses a version. All other events have only version 1.
READS = {kind: [*versions] for kind, versions in VERSIONS.items() if len(versions) > 1}
# After this time without a connection, the client marks known presence as stale. The server's setting
# `engine.stale_after_s` has the same default: after this time without Redis, the server marks presence as stale.
AGED_S = 30.0
STEADY_S = 5.0  # after a connection of this length, the number of failures starts again at 0
LATE_S = 90.0  # time in which the server may still execute a hello of a lost connection

log = logging.getLogger("greendot.client")


@dataclass(frozen=True)
class Target:
    """Settings of a connection: address, token, device, delays and limits."""

    url: str
    token: Token = field(repr=False)
    device: str
    ssl: SSLContext | None
    backoff: Backoff
    queue: SendQueue = field(default_factory=SendQueue)


class Session:
    """Client side of a session. It uses one link after another.

    `publish` is called with every new event, in order. The states are:

        connecting ──► connected ◄──► reconnecting
            └──────────────┴───────────────┴──────► closed

    A session is closed in these cases:

    - The program calls `close`.
    - The server closes the link with a code from 4500 to 4999.
    - The server refuses the hello with an error that forbids a retry.
    - The token has expired (4005), and the program gave a fixed token instead of a function.
    - An error that is not a network error (OSError, WSError, Disconnected) occurs before the first welcome, for example
      in the token function.
    """

    def __init__(self, target: Target, publish: Callable[[Event], None], cursors: Cursors | None = None) -> None:
        self.state: ClientState = "connecting"
        self.view = View(cursors)
        self.welcome: Welcome | None = None  # last welcome from the server; None before the first connection
        self.error: Exception | None = None  # reason why the session is closed; None while it is open
        self._target = target
        self._publish = publish
        self._sends = Sends(target.queue)
        self._link: Link | None = None  # None while no command can be sent
        self._catch_up: CatchUp | None = None  # fetches missed records; None without a link
        # Renews tokens that come from a function. None without a link.
        self._refreshing: TokenRefresher | None = None
        self._keeper: asyncio.Task[None] | None = None  # task that connects again after each loss
        self._first: asyncio.Future[None] | None = None  # resolved by the first connection
        self._last_failure: BaseException | None = None
        self._retry_in_ms: int | None = None  # delay that the server asked for before the next attempt
        self._typing_timer: asyncio.TimerHandle | None = None
        self._ageing: asyncio.TimerHandle | None = None  # marks presence as stale; runs while there is no link
        self._ahead_ms = 0.0  # server's time minus the monotonic time of this machine
        self._since = time.monotonic()  # monotonic time of the last state change
        self._lost_hello_at = float("-inf")  # time when a connection was lost before the answer to its hello
        self._closing = False  # whether `close` was called
        self._bye = False  # argument `bye` of `close`

    # Calls of the client

    async def open(self, timeout: float) -> None:
        """Connect for the first time. If this fails, close the session.

        Raise Unreachable if there is no connection after `timeout` seconds. Raise ConnectionRefused if the server
        closes the link with a code that forbids a reconnect. Raise CommandRefused if the server refuses the hello with
        an error that forbids a retry. Errors of the token function are raised unchanged, except OSError (which includes
        errors of urllib): they count as a failed attempt.
        """
        self.check_open()
        if self._keeper is not None:
            raise RuntimeError("this client is already connected")
        self._first = asyncio.get_running_loop().create_future()
        self._keeper = asyncio.create_task(self._keep(), name="greendot client")
        try:
            async with asyncio.timeout(timeout):
                await self._first
        except TimeoutError:
            await self.close()
            problem = f": {self._last_failure}" if self._last_failure else ""
            raise Unreachable(f"no connection to {self._target.url} in {timeout:g} s{problem}") from self._last_failure
        except BaseException:
            await self.close()
            raise

    async def close(self, *, bye: bool = True) -> None:
        """Close the connection and end all tasks of this client.

        With `bye`, the server ends the session at once. Otherwise the server keeps the session for some seconds.
        `Client.bye` passes True, and `Client.close` passes False.
        """
        try:
            if self._keeper is not None and not self._keeper.done():
                # A second cancel would interrupt the closing handshake. `cancelling()` does not show the first one: an
                # attempt that reaches its time limit is cancelled too, and the task goes on with the next attempt.
                if not self._closing:
                    self._closing, self._bye = True, bye
                    self._keeper.cancel()
                await asyncio.wait([self._keeper])
        finally:
            self._stop(Closed())

    async def call(self, command: Command, kind: type[R], fold: Callable[[R], None] | None = None) -> R:
        """Send a command; return its reply.

        `fold` is called with the reply before any later frame is read, so that it can update the state of this client
        in the right order. Raise Disconnected if there is no link, or if the link is lost before the reply.
        """
        self.check_open()
        if self._link is None:
            raise Disconnected(reason=self.state)
        return await self._link.request(command, kind, fold)

    def send_unanswered(self, command: Command) -> bool:
        """Send a command that would be useless later, such as typing. Without a link, drop it and return False."""
        self.check_open()
        if self._link is None:
            return False
        self._link.send(command)
        return True

    async def send(self, command: Command, kind: type[R], fold: Callable[[R], None] | None = None) -> R:
        """Send a command again on each new link until the server replies; return the reply.

        The command must be idempotent: if it arrives twice, the effect is the same as once. `fold` works as in `call`.
        """
        self.check_open()
        answer: R = await self._sends.send(Sending(command, kind, fold), self._link)
        return answer

    async def refresh(self) -> int:
        """Get a new token and send it to the server; return the time at which the token expires (ms UTC)."""
        self.check_open()
        if isinstance(self._target.token, str):
            raise ValueError("a fixed token cannot be renewed: give Client a function that returns a new token")
        if self._refreshing is None:
            raise Disconnected(reason=self.state)
        return await self._refreshing.refresh()

    @property
    def waiting(self) -> int:
        """Return the number of commands given to `send` that the server has not answered yet."""
        return len(self._sends)

    def now_ms(self) -> float:
        """Return the server's time in ms UTC, to compare with timestamps from the server.

        Before the first connection, return the local time.
        """
        return time.time() * 1000 if self.welcome is None else time.monotonic() * 1000 + self._ahead_ms

    def check_open(self) -> None:
        if self.error is not None:
            raise self.error.with_traceback(None)  # otherwise the traceback would grow with every call

    def receive(self, event: Event) -> None:
        """Apply an event from the server; publish it if it is new."""
        if isinstance(event, RoomMessage) and event.ref is None and self.view.typists.stopped(event.room, event.user):
            # A user who sent a message has stopped typing. The server's own event about this may be lost.
            self._publish(TypingStopped(event.room, event.user))
        match event:
            case HeartbeatAck():
                return
            case Drain() | Overloaded():
                self._retry_in_ms = event.retry_in_ms
            case Welcome():
                self.welcome = event
                self._ahead_ms = event.server_time - time.monotonic() * 1000
            case NotificationCreated() if self.view.records.remind(event):
                event = Reminder(*astuple(event))
        if self.view.apply(event, time.monotonic()):
            self._publish(event)
        else:
            self.catch_up()
        if isinstance(event, Welcome):
            for room, state in event.rooms.items():
                if state.truncated and (skipped := self.view.records.reach(room_stream(room), state.head)) is not None:
                    self._publish(skipped)
        self.watch_typing()

    def catch_up(self) -> None:
        """Start to fetch missing records (messages and notifications), if there are any."""
        if self._catch_up is not None:
            self._catch_up.check()

    def watch_typing(self) -> None:
        """Set a timer for the next typing indicator that expires. The server may send no event when it expires."""
        if self._typing_timer is not None or self.error is not None:
            return
        end = self.view.typists.next_end()
        if end is not None:
            delay = max(end - time.monotonic(), 0)
            self._typing_timer = asyncio.get_running_loop().call_later(delay, self._expire_typing)

    def _expire_typing(self) -> None:
        self._typing_timer = None
        for stopped in self.view.typists.expire(time.monotonic()):
            self._publish(stopped)
        self.watch_typing()

    def _age(self) -> None:
        for entry in self.view.people.age():
            self._publish(entry)

    # Links

    async def _keep(self) -> None:
        try:
            await self._keep_connected()
        except Exception as error:
            self._stop(error)

    async def _keep_connected(self) -> None:
        """Connect, and connect again after each loss, until an error forbids a reconnect. Raise this error."""
        failures = 0
        while True:
            try:
                async with self._connected() as link:
                    await link.lost()
            except CommandRefused:
                raise
            except Exception as error:
                self._check_curable(error)
                if self.state == "connected" and time.monotonic() - self._since > STEADY_S:
                    failures = 0
                await self._wait(failures, error)
                failures += 1

    def _check_curable(self, error: Exception) -> None:
        """Raise `error` if another attempt would fail in the same way."""
        match error:
            # The server has executed the hello of a lost connection late: it moved the session to that connection.
            case ConnectionRefused(code=Close.REPLACED) if time.monotonic() - self._lost_hello_at < LATE_S:
                self._lost_hello_at = float("-inf")
            case ConnectionRefused():
                raise error
            case Disconnected(code=Close.TOKEN_EXPIRED) if isinstance(self._target.token, str):
                # The server asks for a new token, but this client has only the expired one.
                raise ConnectionRefused(error.code, error.reason) from None
            case Disconnected() | OSError() | WSError():
                return
            case _ if self.welcome is None:
                # Before the first connection, an error in the token function is probably a mistake in the program, so
                # report it at once. After the first connection, such an error is probably an outage, so try again.
                raise error

    async def _wait(self, failures: int, error: Exception) -> None:
        self._last_failure = error
        retry_in_ms, self._retry_in_ms = self._retry_in_ms or retry_after_ms(error), None
        delay = self._target.backoff.delay(failures, retry_in_ms)
        if self.welcome is not None:
            code, reason = (error.code, error.reason) if isinstance(error, Disconnected) else (None, str(error))
            self._become(StateChanged("reconnecting", code, reason, delay))
        log.info("%s; next attempt in %.1f s", error, delay)
        await asyncio.sleep(delay)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Link]:
        """Connect, restore the state of the last link, and yield the new link. Close the link on exit."""
        try:
            async with asyncio.timeout(ATTEMPT_S):
                link, welcome, token = await self._greeted()
        except TimeoutError:
            raise TimeoutError(f"no welcome within {ATTEMPT_S:g} s") from None
        catching_up = CatchUp(link, self.view.records, self._publish)
        refreshing = TokenRefresher(link, self._token, self._publish)
        try:
            await restore(link, welcome, self.view, self.receive)
            self.watch_typing()
            self._link, self._catch_up, self._refreshing = link, catching_up, refreshing
            if self._ageing is not None:
                self._ageing.cancel()
            if not isinstance(self._target.token, str):
                refreshing.start(token, welcome.server_time)
            self._become(StateChanged("connected"))
            self.catch_up()
            self._sends.resend(link)
            if self._first is not None and not self._first.done():
                self._first.set_result(None)
            yield link
        finally:
            self._link = self._catch_up = self._refreshing = None
            await self._sends.pause()
            if self._ageing is None or self._ageing.cancelled():
                self._ageing = asyncio.get_running_loop().call_later(AGED_S, self._age)
            await refreshing.close()
            await catching_up.close()
            await link.close(bye=self._bye)

    async def _greeted(self) -> tuple[Link, Welcome, str]:
        token = await self._token()
        self.view.records.restart()
        link = await dial(self._target.url, self._target.ssl, self.receive)
        try:
            welcome = await link.hello(
                Hello(
                    token=token,
                    device=self._target.device,
                    supports=READS,
                    client=ClientInfo(name="greendot-python", version=__version__),
                    resume=resume_of(self.view, self.welcome),
                )
            )
        except CommandRefused as error:
            await link.close()
            if not error.retry:
                raise
            self._retry_in_ms = error.retry_in_ms
            raise Disconnected(reason=str(error)) from error
        except BaseException as error:
            if not isinstance(error, ConnectionRefused):
                self._lost_hello_at = time.monotonic()
            link.abort()
            await link.close()
            raise
        return link, welcome, token

    async def _token(self) -> str:
        if isinstance(self._target.token, str):
            return self._target.token
        token = self._target.token()
        return await token if isawaitable(token) else token

    def _become(self, change: StateChanged) -> None:
        if change.state != self.state:
            self.state = change.state
            self._since = time.monotonic()
            self._publish(change)

    def _stop(self, error: Exception) -> None:
        """Close the session for ever. Waiting calls and later calls raise `error`."""
        if self.error is not None:
            return
        self.error = error
        for timer in (self._typing_timer, self._ageing):
            if timer is not None:
                timer.cancel()
        self._sends.fail(error)
        if self._first is not None and not self._first.done():
            self._first.set_exception(error)
        match error:
            case Closed():
                self._become(StateChanged("closed"))
            case ConnectionRefused():
                self._become(StateChanged("closed", error.code, error.reason))
            case _:
                self._become(StateChanged("closed", reason=str(error)))
