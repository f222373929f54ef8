"""What a program holds: one user's presence, rooms and messages on a Greendot server."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from ssl import SSLContext
from types import TracebackType
from typing import Any, Literal, Self, TypedDict, TypeVar, Unpack, overload

from msgspec import UNSET

from greendot.client.backoff import Backoff
from greendot.client.callbacks import Callback
from greendot.client.catchup import PAGE
from greendot.client.codec import ClientState, StateChanged, raw
from greendot.client.consumers import Consumers
from greendot.client.errors import ClientError, Closed
from greendot.client.inbox import Inbox
from greendot.client.records import Cursors
from greendot.client.restore import batches
from greendot.client.send_queue import SendQueue
from greendot.client.session import Session, Target, Token
from greendot.client.state import Throttle
from greendot.client.storage import CursorStorage
from greendot.client.stream import EventStream
from greendot.client.text import ENGLISH_TYPING, TypingWords, typing_text
from greendot.client.watches import WatchCounts
from greendot.ids import ID_RULE, valid_id
from greendot.protocol import commands
from greendot.protocol.events import Event, Presence, RoomMessage, Welcome
from greendot.protocol.replies import (
    HistoryReply,
    JoinReply,
    PresenceReply,
    PresentReply,
    PrivacyReply,
    ReadReply,
    Reply,
    RoomEntry,
    RoomsReply,
    SendReply,
    StatusReply,
)

E = TypeVar("E", bound=Event)

ACTIVITY_REPEAT_S = 5.0  # a person who is there is announced again at most so often


class Options(TypedDict, total=False):
    """What a client may be given besides where to connect and as whom."""

    cursors: Cursors | CursorStorage | None  # where a program before has come to; a storage keeps them by itself
    ssl: SSLContext | None
    backoff: Backoff | None  # how it comes back
    queue: SendQueue | None  # how much may wait for a connection


class Client:
    """A connection that keeps itself up. Use it as `async with Client(url, token=…) as me:`.

    `token` is a string, or a function (sync or async) asked for a fresh one at each connection, and shortly before the
    last one ends: the server then gets it without an interruption. While the connection is down, what may be done twice
    (`send`, `edit`, `delete`, `read`, marks of the inbox) waits, `typing`, `activity` and `signal` are dropped, and
    every other command raises Disconnected; what was watched and joined is watched and joined again by itself. When
    the server refuses the client for good (close codes 4500–4999), everything raises ConnectionRefused.

    Messages of the rooms joined and notifications are told once each and in order, whatever happens to connections.
    With the `cursors` of an earlier program, its rooms are joined again and what it missed is told first. Given a
    storage (`FileCursors(path)`) in their place, the client loads them from there and saves them by itself.

    A command the server does not grant raises CommandRefused.
    """

    def __init__(self, url: str, token: Token, device: str = "default", **options: Unpack[Options]) -> None:
        if not url.startswith(("ws://", "wss://")):
            raise ValueError(f"the address of a server is like ws://127.0.0.1:8000/v1/connect, not {url!r}")
        if not valid_id(device):
            raise ValueError(f"the device {device!r} is not a valid id: {ID_RULE}")
        if unknown := options.keys() - Options.__annotations__.keys():
            raise TypeError(f"Client has no option {', '.join(sorted(unknown))}")
        self._backoff = options.get("backoff") or Backoff()
        target = Target(url, token, device, options.get("ssl"), self._backoff, options.get("queue") or SendQueue())
        cursors = options.get("cursors")
        storage = None if cursors is None or isinstance(cursors, dict) else cursors
        self._session = Session(target, self._publish, cursors if isinstance(cursors, dict) else None)
        self.inbox = Inbox(self._session)
        self._watching = WatchCounts(self._session)
        self._throttle = Throttle()
        self._active_at = float("-inf")
        self._audience = Consumers(self._session.view.records, storage)

    async def __aenter__(self) -> Self:
        self._audience.begin()
        await self._session.open(self._backoff.give_up_s)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A program that fails has not handled what it had in hand: it is told that again.
        await self._close(bye=True, handled=error is None)

    async def bye(self) -> None:
        """Leave for good: the session ends now, the user may be offline now, and nothing is left running."""
        await self._close(bye=True)

    async def close(self) -> None:
        """Like `bye`, but the server waits a few seconds for this device to return before others are told."""
        await self._close(bye=False)

    async def _close(self, *, bye: bool, handled: bool = True) -> None:
        try:
            await self._session.close(bye=bye)
        finally:
            await self._audience.finish(handled=handled)

    # How it stands

    @property
    def state(self) -> ClientState:
        """`connecting`, `connected`, `reconnecting` or `closed`; each change is also an event, `state`."""
        return self._session.state

    @property
    def welcome(self) -> Welcome | None:
        """What the server last said about this session: its id, the user, the limits."""
        return self._session.welcome

    @property
    def people(self) -> Mapping[str, Presence]:
        """The newest known presence of everybody watched. It never goes back to an older version."""
        return self._session.view.people.known

    def typers(self, room: str) -> dict[str, str]:
        """Who is typing in `room` now: user → name to show. Nobody stays here for long without being heard of."""
        return self._session.view.typists.current(room, time.monotonic())

    def typing_text(self, room: str, words: TypingWords = ENGLISH_TYPING) -> str:
        """The line to show under `room`: "Alice and Bob are typing…", or nothing."""
        now, typists = time.monotonic(), self._session.view.typists
        return typing_text(typists.current(room, now).values(), count=typists.count(room, now), words=words)

    @property
    def waiting(self) -> int:
        """How many messages, edits and marks the server has not answered yet; they are sent until it does."""
        return self._session.waiting

    def now_ms(self) -> float:
        """The server's time in ms UTC, to compare with what it says: `seen_text(person, me.now_ms())`."""
        return self._session.now_ms()

    @property
    def cursors(self) -> Cursors:
        """Up to which number the program has each room and its inbox: what it took from `events()`, and what its
        callbacks were called with. To be kept after an event was handled, and given to the next `Client`.

        Not counted is what still waits in an iterator that is there: ask inside its loop.
        """
        return self._audience.cursors()

    # Events

    @overload
    def on(self, kind: type[E], callback: Callable[[E], object]) -> Callable[[], None]: ...

    @overload
    def on(self, kind: str, callback: Callback) -> Callable[[], None]: ...

    def on(self, kind: type[Event] | str, callback: Callback) -> Callable[[], None]:
        """Call `callback` with every event of `kind`, a name or a class; call what is returned to stop that.

        Functions are called at once; async ones as tasks, one at a time, in order. Their errors are logged.
        """
        name = kind if isinstance(kind, str) else str(getattr(kind, "type", kind))
        return self._audience.add(name, callback)

    def events(self) -> EventStream:
        """Every event from now on, the first time from the first connection on, for `async for`.

        Up to 1,000 signals are kept for a slow consumer, then the oldest are dropped; messages are never dropped,
        and a consumer 10,000 of them behind gets Overrun instead. It ends with the client.
        """
        stream = self._audience.stream()
        if self._session.error is not None:
            stream.end(self._end_error())
        return stream

    def _publish(self, event: Event) -> None:
        if isinstance(event, StateChanged) and event.state == "connected":
            self._throttle.clear()
            self._active_at = float("-inf")
        self._audience.publish(event, self._end_error())

    def _end_error(self) -> Exception | None:
        return None if isinstance(self._session.error, Closed) else self._session.error

    # Presence

    async def watch(self, *users: str) -> list[Presence]:
        """How `users` stand now; from here on their changes are events, `presence.changed`.

        Counted: who is watched twice is to be unwatched twice. All that is asked for in one turn of the loop goes out
        together. The changes of those whose `mode` is `poll` are no events: ask for them with `presence` when they are
        looked at.
        """
        return await self._watching.watch(users)

    async def unwatch(self, *users: str) -> None:
        """Take one `watch` of each back. Without a connection it is done at once."""
        await self._watching.unwatch(users)

    @asynccontextmanager
    async def watching(self, *users: str) -> AsyncIterator[list[Presence]]:
        """Watch `users` for as long as a block lasts."""
        found = await self.watch(*users)
        try:
            yield found
        finally:
            try:
                await self.unwatch(*users)
            except ClientError:
                pass  # closed meanwhile: nobody is watched

    async def presence(self, *users: str) -> list[Presence]:
        """How `users` stand now, without watching them. Of those who are watched, `people` knows it too."""
        found: list[Presence] = []
        for batch in batches(users):
            reply = await self._session.call(commands.PresenceGet(users=batch), PresenceReply, self._asked)
            found += reply.presence
        return found

    def _asked(self, reply: PresenceReply) -> None:
        self._session.view.asked(reply.presence)

    async def set_status(
        self, status: Literal["auto", "busy", "invisible"], until: int | None = None, text: str | None = None
    ) -> Presence:
        """Set the user's own status, until `until` (ms UTC) if given; how the user stands now."""
        command = commands.StatusSet(status=status, until=until, text=text)
        return (await self._session.call(command, StatusReply)).presence

    async def set_privacy(
        self, last_seen: Literal["shown", "hidden"] | None = None, hide_from: Sequence[str] | None = None
    ) -> PrivacyReply:
        """Hide when the user was last seen, or the user from some; None keeps what is. What is hidden now."""
        users = None if hide_from is None else [*hide_from]
        return await self._session.call(commands.PrivacySet(last_seen=last_seen, hide_from=users), PrivacyReply)

    async def activity(self) -> None:
        """The person is there, and not idle. Call it at every move: one frame per 5 s is sent."""
        now = time.monotonic()
        if now - self._active_at >= ACTIVITY_REPEAT_S and self._session.send_unanswered(commands.Activity()):
            self._active_at = now

    async def refresh_token(self) -> int:
        """Ask for a token and give it to the server now, as after a user was given more rights; when it ends (ms UTC).

        Before a token ends this is done by itself.
        """
        return await self._session.refresh()

    # Rooms

    async def rooms(self) -> list[RoomEntry]:
        return (await self._session.call(commands.RoomList(), RoomsReply)).rooms

    async def join(self, room: str, after: int | None = None) -> JoinReply:
        """Enter `room`. Messages after number `after` are in the reply; later ones are events, `room.message`.

        If there are too many for a reply (`truncated`), they are events, too.
        """

        def joined(reply: JoinReply) -> None:
            skipped = self._session.view.joined(reply, after, time.monotonic())
            if skipped is not None:
                self._publish(skipped)
            self._session.watch_typing()
            self._session.catch_up()
            self._audience.moved()

        return await self._session.call(commands.RoomJoin(room=room, after=after), JoinReply, joined)

    async def leave(self, room: str) -> None:
        self._session.view.leave(room)
        self._audience.moved()
        await self._session.call(commands.RoomLeave(room=room), Reply)

    async def present(self, room: str, after: str | None = None, limit: int = 100) -> PresentReply:
        """A page of who is in `room` now, by name, after the user `after`; and how many there are in all."""
        return await self._session.call(commands.RoomPresent(room=room, after=after, limit=limit), PresentReply)

    async def history(
        self, room: str, *, before: int | None = None, after: int | None = None, limit: int = 50
    ) -> list[RoomMessage]:
        """Up to `limit` messages before or after a number, that one excluded, in ascending order."""
        command = commands.RoomHistory(room=room, before=before, after=after, limit=limit)
        return (await self._session.call(command, HistoryReply)).messages

    async def pages(
        self, room: str, *, before: int | None = None, after: int | None = None
    ) -> AsyncIterator[list[RoomMessage]]:
        """The history, page by page, each in ascending order: on from `after`, or back from `before` or the newest."""
        while page := await self.history(room, before=before, after=after, limit=PAGE):
            yield page
            if after is None:
                before = page[0].seq
            else:
                after = page[-1].seq

    async def send(self, room: str, body: Any, *, key: str | None = None) -> SendReply:
        """Write a message; its id and number once it is safe. Waits through lost connections, and arrives once.

        `key` names the message: sending again with the same key, even from another process, is the same message.
        So after CommandRefused with `retry` (a rate limit, a store that is away), send again with the same key.
        """
        self._throttle.stop(room)  # a message ends the typing
        command = commands.RoomSend(room=room, body=raw(body), key=key or _new_key())
        return await self._session.send(command, SendReply)

    async def edit(self, room: str, ref: int, body: Any, *, key: str | None = None) -> SendReply:
        """Give the message with number `ref` another body. It is a message of its own, with `op` and `ref`."""
        command = commands.RoomEdit(room=room, ref=ref, body=raw(body), key=key or _new_key())
        return await self._session.send(command, SendReply)

    async def delete(self, room: str, ref: int, *, key: str | None = None) -> SendReply:
        """Take back the message with number `ref`."""
        return await self._session.send(commands.RoomDelete(room=room, ref=ref, key=key or _new_key()), SendReply)

    async def read(self, room: str, seq: int) -> int:
        """The person has read up to number `seq`; how many are left to read. It never goes back."""
        return (await self._session.send(commands.RoomRead(room=room, seq=seq), ReadReply)).unread

    async def typing(self, room: str) -> None:
        """The person is typing in `room`. Call it at every keystroke: a frame goes out as often as the server asks."""
        times = self._session.view.typing_times
        if not self._throttle.start(room, time.monotonic(), times):
            return
        if not self._session.send_unanswered(commands.TypingStart(room=room)):
            self._throttle.forget(room)

    async def stop_typing(self, room: str) -> None:
        if self._throttle.stop(room):
            self._session.send_unanswered(commands.TypingStop(room=room))

    async def signal(
        self, kind: str, *, room: str | None = None, user: str | None = None, body: Any = UNSET, key: str | None = None
    ) -> None:
        """Say something fleeting to a room or to a user's devices. With `key` only the latest counts.

        At most once: nothing is answered, and what is refused comes as an event, `error`.
        """
        if (room is None) == (user is None):
            raise ValueError("a signal goes to a room or to a user: give one of the two")
        content = UNSET if body is UNSET else raw(body)
        self._session.send_unanswered(commands.SignalSend(kind=kind, room=room, user=user, body=content, key=key))


def _new_key() -> str:
    return secrets.token_hex(12)
