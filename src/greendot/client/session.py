"""Session of a client: one link after another, each restored to the state of the last."""

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

ATTEMPT_S = 10.0  # seconds for one attempt, from the token to the welcome
READS = {kind: [*versions] for kind, versions in VERSIONS.items() if len(versions) > 1}  # other events: version 1
AGED_S = 30.0  # seconds without a connection until presence is stale, as on the server
STEADY_S = 5.0  # seconds until a connection counts as steady: the next failure is then the first

log = logging.getLogger("greendot.client")


@dataclass(frozen=True)
class Target:
    """Target of a connection: address, identity and limits."""

    url: str
    token: Token = field(repr=False)
    device: str
    ssl: SSLContext | None
    backoff: Backoff
    queue: SendQueue = field(default_factory=SendQueue)


class Session:
    """Client side of a session, over as many sockets as needed.

    `publish` is called with every new event, in order. States:

        connecting ──► connected ◄──► reconnecting
            └──────────────┴───────────────┴──────► closed (by the program, or by a close code 4500–4999)
    """

    def __init__(self, target: Target, publish: Callable[[Event], None], cursors: Cursors | None = None) -> None:
        self.state: ClientState = "connecting"
        self.view = View(cursors)
        self.welcome: Welcome | None = None  # latest welcome
        self.error: Exception | None = None  # reason of the close, once closed
        self._target = target
        self._publish = publish
        self._sends = Sends(target.queue)
        self._link: Link | None = None  # None while no command can be sent
        self._catch_up: CatchUp | None = None  # exists as long as the link
        self._refreshing: TokenRefresher | None = None  # likewise; started if tokens come from a function
        self._keeper: asyncio.Task[None] | None = None
        self._first: asyncio.Future[None] | None = None  # resolved by the first connection
        self._last_failure: BaseException | None = None
        self._retry_in_ms: int | None = None  # delay that the server asked for before the next attempt
        self._typing_timer: asyncio.TimerHandle | None = None
        self._ageing: asyncio.TimerHandle | None = None  # runs while there is no link
        self._ahead_ms = 0.0  # lead of the server's clock over the monotonic clock
        self._since = time.monotonic()  # monotonic time of the last state change
        self._bye = False

    # Calls of the client

    async def open(self, timeout: float) -> None:
        """Connect for the first time. Raise Unreachable after `timeout` seconds, ConnectionRefused at once."""
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
        """End the session and all its tasks; with `bye` the server ends the session at once."""
        try:
            if self._keeper is not None and not self._keeper.done():
                if not self._keeper.cancelling():  # a second cancel would cut the closing handshake short
                    self._bye = bye
                    self._keeper.cancel()
                await asyncio.wait([self._keeper])
        finally:
            self._stop(Closed())

    async def call(self, command: Command, kind: type[R], fold: Callable[[R], None] | None = None) -> R:
        """Send a command; return its reply. Raise Disconnected without a link, or if it is lost before the reply."""
        self.check_open()
        if self._link is None:
            raise Disconnected(reason=self.state)
        return await self._link.request(command, kind, fold)

    def send_unanswered(self, command: Command) -> bool:
        """Send a command that has no value later; return whether it was sent. Without a link it is dropped."""
        self.check_open()
        if self._link is None:
            return False
        self._link.send(command)
        return True

    async def send(self, command: Command, kind: type[R], fold: Callable[[R], None] | None = None) -> R:
        """Send an idempotent command over as many links as needed; return its reply."""
        self.check_open()
        answer: R = await self._sends.send(Sending(command, kind, fold), self._link)
        return answer

    async def refresh(self) -> int:
        """Get a new token and send it to the server; return its expiry (ms UTC)."""
        self.check_open()
        if isinstance(self._target.token, str):
            raise ValueError("there is no other token: give Client a function that makes them")
        if self._refreshing is None:
            raise Disconnected(reason=self.state)
        return await self._refreshing.refresh()

    @property
    def waiting(self) -> int:
        """Return the number of unanswered commands that are sent until the server answers."""
        return len(self._sends)

    def now_ms(self) -> float:
        """Return the server's time in ms UTC, to compare with its timestamps; local time before the first welcome."""
        return time.time() * 1000 if self.welcome is None else time.monotonic() * 1000 + self._ahead_ms

    def check_open(self) -> None:
        if self.error is not None:
            raise self.error.with_traceback(None)  # else the traceback would grow with every call on a closed client

    def receive(self, event: Event) -> None:
        """Apply an event from the server; publish it if it is new."""
        if isinstance(event, RoomMessage) and event.ref is None and self.view.typists.stopped(event.room, event.user):
            # A user who sent a message has stopped typing. The stop from the server may be lost.
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
        """Start to fetch records that the server left out."""
        if self._catch_up is not None:
            self._catch_up.check()

    def watch_typing(self) -> None:
        """Schedule the expiry of typing users without new events."""
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
        """Connect again and again until an error forbids it; raise that error."""
        failures = 0
        while True:
            try:
                async with self._connected() as link:
                    await link.lost()
            except (ConnectionRefused, CommandRefused):
                raise
            except Exception as error:
                self._check_curable(error)
                if self.state == "connected" and time.monotonic() - self._since > STEADY_S:
                    failures = 0
                await self._wait(failures, error)
                failures += 1

    def _check_curable(self, error: Exception) -> None:
        """Raise an error that another attempt cannot change."""
        match error:
            case Disconnected(code=Close.TOKEN_EXPIRED) if isinstance(self._target.token, str):
                # The server invites a return with a fresh token, and there is none.
                raise ConnectionRefused(error.code, error.reason) from None
            case Disconnected() | OSError() | WSError():
                return
            case _ if self.welcome is None:
                # A token function that never worked is a mistake, to be reported at once; later it is an outage.
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
        """Yield a link that is restored to the state of the last one; close it on exit."""
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
        except BaseException:
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
        """Close the session for good: calls that wait, and later calls, raise `error`."""
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
