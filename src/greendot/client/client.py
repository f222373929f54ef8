"""Client of one user: presence, rooms and messages on a Greendot server."""

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
from greendot.client.polling import Polling
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
    ReceiptsReply,
    Reply,
    RoomEntry,
    RoomsReply,
    SendReply,
    StatusReply,
)

E = TypeVar("E", bound=Event)

ACTIVITY_REPEAT_S = 5.0  # minimum seconds between two activity frames


class Options(TypedDict, total=False):
    """Keyword options of `Client`, all of them optional."""

    cursors: Cursors | CursorStorage | None  # last numbers of an earlier run, or a storage of them
    ssl: SSLContext | None
    backoff: Backoff | None  # delays before reconnects
    queue: SendQueue | None  # limits of commands that wait for a connection


class Client:
    """Connection that reconnects by itself. Use it as `async with Client(url, token=…) as me:`.

    `token` is a string, or a sync or async function that returns a token. The function is called for each connection,
    and shortly before the current token expires. The client sends the new token over the open connection.

    While the connection is down, idempotent commands (`send`, `edit`, `delete`, `react`, `read`, inbox marks) wait.
    `typing`, `activity` and `signal` are dropped. Every other command raises Disconnected. After a reconnect, the
    client watches the same users and joins the same rooms. If the server refuses the client for good (close codes
    4500–4999), every call raises ConnectionRefused.

    The client delivers each message of a joined room and each notification once and in order, also after reconnects.

    A cursor is the number of the last message of a room, or of the last notification, that the program has received.
    Pass the `cursors` of an earlier run to join the same rooms and get the missed records first. Pass a storage, such
    as `FileCursors(path)`, to let the client load and save the cursors.

    A command that the server refuses raises CommandRefused.
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
        self._polling = Polling(self._session)
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
        # A program that fails has not handled its last records. The next run gets these records again.
        await self._close(bye=True, handled=error is None)

    async def bye(self) -> None:
        """End the session now and stop all tasks. The user is offline at once, unless another device is online."""
        await self._close(bye=True)

    async def close(self) -> None:
        """Close the connection and stop all tasks. The session lasts a few seconds more (`presence.clean_grace_s`).

        If the device connects again within this time, other users see no change.
        """
        await self._close(bye=False)

    async def _close(self, *, bye: bool, handled: bool = True) -> None:
        try:
            await self._polling.close()
            await self._session.close(bye=bye)
        finally:
            await self._audience.finish(handled=handled)

    # State

    @property
    def state(self) -> ClientState:
        """Return `connecting`, `connected`, `reconnecting` or `closed`. Each change is also a `state` event."""
        return self._session.state

    @property
    def welcome(self) -> Welcome | None:
        """Return the last welcome from the server: session id, user, limits. None before the first connection."""
        return self._session.welcome

    @property
    def people(self) -> Mapping[str, Presence]:
        """Return the newest known presence of every watched user.

        An older version of a presence never replaces a newer one. Only version 0 (state unknown) replaces any version.
        """
        return self._session.view.people.known

    def typers(self, room: str) -> dict[str, str]:
        """Return the users who type in `room` now: user → name to show. Without new events, a user is removed soon."""
        return self._session.view.typists.current(room, time.monotonic())

    def typing_text(self, room: str, words: TypingWords = ENGLISH_TYPING) -> str:
        """Return the line to show under `room`, such as "Alice and Bob are typing…"; empty if no user types."""
        now, typists = time.monotonic(), self._session.view.typists
        return typing_text(typists.current(room, now).values(), count=typists.count(room, now), words=words)

    @property
    def waiting(self) -> int:
        """Return the number of unanswered messages, edits and marks. The client resends them until it gets answers."""
        return self._session.waiting

    def now_ms(self) -> float:
        """Return the server's time in ms UTC, to compare with its timestamps: `seen_text(person, me.now_ms())`."""
        return self._session.now_ms()

    @property
    def cursors(self) -> Cursors:
        """Return the number of the last message of each room, and of the last notification, that the program received.

        The program has received a record if it took the record from `events()`, or if a callback was called with the
        record. Records that still wait in an iterator do not move a cursor.

        Read the cursors after your code has handled an event, save them, and pass them to the next `Client`. Read them
        inside the loop over `events()`. If the iterator is dropped, records that still wait in it are treated as
        received.
        """
        return self._audience.cursors()

    # Events

    @overload
    def on(self, kind: type[E], callback: Callable[[E], object]) -> Callable[[], None]: ...

    @overload
    def on(self, kind: str, callback: Callback) -> Callable[[], None]: ...

    def on(self, kind: type[Event] | str, callback: Callback) -> Callable[[], None]:
        """Call `callback` with every event of `kind`, a name or a class; return a function that stops the calls.

        The client calls plain functions at once. It runs async functions in tasks, one event at a time, in order. It
        logs errors of callbacks.
        """
        name = kind if isinstance(kind, str) else str(getattr(kind, "type", kind))
        return self._audience.add(name, callback)

    def events(self) -> EventStream:
        """Return an async iterator over all events from now on.

        The first iterator also has the events since the first connection. The iterators end when the client closes.

        If the program is slow, up to 1,000 signals wait, and the oldest are dropped first. Messages and notifications
        are not dropped silently: if more than 10,000 wait, the iterator raises Overrun.
        """
        stream = self._audience.stream()
        if self._session.error is not None:
            stream.end(self._end_error())
        return stream

    def _publish(self, event: Event) -> None:
        if isinstance(event, StateChanged) and event.state == "connected":
            self._throttle.clear()
            self._active_at = float("-inf")
        if isinstance(event, Presence):
            self._polling.check()
        self._audience.publish(event, self._end_error())

    def _end_error(self) -> Exception | None:
        return None if isinstance(self._session.error, Closed) else self._session.error

    # Presence

    async def watch(self, *users: str) -> list[Presence]:
        """Watch `users` and return their presence; later changes are `presence.changed` events.

        The client counts the watches of each user: a user who is watched twice must be unwatched twice. Watches
        made in one pass of the event loop are sent together. The server sends no changes of users whose `mode` is
        `poll`: the client reads them about once a minute. Read them with `presence` if you need them sooner.
        """
        found = await self._watching.watch(users)
        self._polling.check()
        return found

    async def unwatch(self, *users: str) -> None:
        """Undo one `watch` of each user. The call also succeeds without a connection."""
        await self._watching.unwatch(users)

    @asynccontextmanager
    async def watching(self, *users: str) -> AsyncIterator[list[Presence]]:
        """Watch `users` for the duration of a block."""
        found = await self.watch(*users)
        try:
            yield found
        finally:
            try:
                await self.unwatch(*users)
            except ClientError:
                pass  # a closed client watches no users

    async def presence(self, *users: str) -> list[Presence]:
        """Return the presence of `users` without watching them. Also update `people` for watched users."""
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
        """Set the user's own status, until `until` (ms UTC) if given; return the user's presence."""
        command = commands.StatusSet(status=status, until=until, text=text)
        return (await self._session.call(command, StatusReply)).presence

    async def set_privacy(
        self, last_seen: Literal["shown", "hidden"] | None = None, hide_from: Sequence[str] | None = None
    ) -> PrivacyReply:
        """Change the user's privacy settings and return them. An argument of None leaves its setting unchanged.

        `hidden` hides the last-seen time from all other users. `hide_from` lists the users who must not see this
        user.
        """
        users = None if hide_from is None else [*hide_from]
        return await self._session.call(commands.PrivacySet(last_seen=last_seen, hide_from=users), PrivacyReply)

    async def activity(self) -> None:
        """Report that the person is active. Call `activity` for every input: at most one frame is sent per 5 s."""
        now = time.monotonic()
        if now - self._active_at >= ACTIVITY_REPEAT_S and self._session.send_unanswered(commands.Activity()):
            self._active_at = now

    async def refresh_token(self) -> int:
        """Get a new token and send it to the server now; return the time when the token expires (ms UTC).

        Call this method after the user got more rights. Before a token expires, the client gets a new one by itself.
        """
        return await self._session.refresh()

    # Rooms

    async def rooms(self) -> list[RoomEntry]:
        return (await self._session.call(commands.RoomList(), RoomsReply)).rooms

    async def join(self, room: str, after: int | None = None, *, history: int | None = None) -> JoinReply:
        """Join `room`. The reply has the messages after number `after`; later messages are `room.message` events.

        If there are too many messages for a reply (`truncated`), the client fetches them, and they arrive as events.
        With `history` (at most 100, without `after`), the reply has the newest messages, and the events continue after
        them.
        """

        def joined(reply: JoinReply) -> None:
            skipped = self._session.view.joined(reply, after, time.monotonic())
            if skipped is not None:
                self._publish(skipped)
            self._session.watch_typing()
            self._session.catch_up()
            self._audience.moved()

        command = commands.RoomJoin(room=room, after=after, history=history)
        return await self._session.call(command, JoinReply, joined)

    async def leave(self, room: str) -> None:
        self._session.view.leave(room)
        self._audience.moved()
        await self._session.call(commands.RoomLeave(room=room), Reply)

    async def present(self, room: str, after: str | None = None, limit: int = 100) -> PresentReply:
        """Return up to `limit` occupants of `room`, sorted by user id, and the number of all occupants.

        The page begins after the user id `after`.
        """
        return await self._session.call(commands.RoomPresent(room=room, after=after, limit=limit), PresentReply)

    async def history(
        self, room: str, *, before: int | None = None, after: int | None = None, limit: int = 50
    ) -> list[RoomMessage]:
        """Return up to `limit` messages before or after a number (exclusive), in ascending order."""
        command = commands.RoomHistory(room=room, before=before, after=after, limit=limit)
        return (await self._session.call(command, HistoryReply)).messages

    async def pages(
        self, room: str, *, before: int | None = None, after: int | None = None
    ) -> AsyncIterator[list[RoomMessage]]:
        """Yield the history page by page, each page in ascending order.

        Pages go forward from `after`, or backward from `before` or the newest message.
        """
        while page := await self.history(room, before=before, after=after, limit=PAGE):
            yield page
            if after is None:
                before = page[0].seq
            else:
                after = page[-1].seq

    async def send(self, room: str, body: Any, *, key: str | None = None) -> SendReply:
        """Send a message; return its id and number once it is stored.

        If the connection is lost, the client resends the message until the server answers. `key` identifies the
        message: the server stores messages with the same key once, even from several processes. After CommandRefused
        with `retry` (a rate limit, an unreachable store), send again with the same key.
        """
        self._throttle.stop(room)  # a message ends typing
        command = commands.RoomSend(room=room, body=raw(body), key=key or _new_key())
        return await self._session.send(command, SendReply)

    async def edit(self, room: str, ref: int, body: Any, *, key: str | None = None) -> SendReply:
        """Replace the body of the message with number `ref`. The edit is a message of its own, with `op` and `ref`."""
        command = commands.RoomEdit(room=room, ref=ref, body=raw(body), key=key or _new_key())
        return await self._session.send(command, SendReply)

    async def delete(self, room: str, ref: int, *, key: str | None = None) -> SendReply:
        """Delete the message with number `ref`."""
        return await self._session.send(commands.RoomDelete(room=room, ref=ref, key=key or _new_key()), SendReply)

    async def react(self, room: str, ref: int, reaction: str, *, on: bool = True, key: str | None = None) -> SendReply:
        """Set the user's reaction to the message with number `ref`, or remove it with `on=False`.

        If the reaction is as wanted already, nothing is written. `Reactions` counts the reactions of a room.
        """
        command = commands.RoomReact(room=room, ref=ref, reaction=reaction, on=on, key=key or _new_key())
        return await self._session.send(command, SendReply)

    async def read(self, room: str, seq: int) -> int:
        """Mark messages as read up to number `seq`; return the number of unread ones. A lower `seq` changes nothing."""
        return (await self._session.send(commands.RoomRead(room=room, seq=seq), ReadReply)).unread

    async def receipts(self, room: str, after: str | None = None, limit: int = 100) -> ReceiptsReply:
        """Return up to `limit` read receipts of `room`, sorted by user id, and the number of all receipts.

        The page begins after the user id `after`. Only rooms with receipts have them. In a large room, use `readers`.
        """
        return await self._session.call(commands.RoomReceipts(room=room, after=after, limit=limit), ReceiptsReply)

    async def readers(self, room: str, seq: int) -> int:
        """Return the number of users who have read message `seq` of a room with receipts."""
        return (await self._session.call(commands.RoomReceipts(room=room, seq=seq), ReceiptsReply)).count

    async def typing(self, room: str) -> None:
        """Report that the person types in `room`. Call `typing` at every keystroke; few of the calls send a frame."""
        times = self._session.view.typing_times
        if not self._throttle.start(room, time.monotonic(), times):
            return
        if not self._session.send_unanswered(commands.TypingStart(room=room)):
            self._throttle.forget(room)

    async def stop_typing(self, room: str) -> None:
        if self._throttle.stop(room):
            self._session.send_unanswered(commands.TypingStop(room=room))

    async def signal(
        self,
        kind: str,
        *,
        room: str | None = None,
        user: str | None = None,
        body: Any = UNSET,
        key: str | None = None,
        reply: bool = False,
    ) -> None:
        """Send a signal to a room or to a user's devices.

        The signal arrives at most once. If a receiver is slow, it gets only the latest signal of each `key`. The server
        does not reply. If the server refuses the signal, the client gets an `error` event. With `reply`, the client
        waits for the server, and a refusal raises CommandRefused.
        """
        if (room is None) == (user is None):
            raise ValueError("a signal goes to a room or to a user: give one of the two")
        content = UNSET if body is UNSET else raw(body)
        command = commands.SignalSend(kind=kind, room=room, user=user, body=content, key=key)
        if reply:
            await self._session.call(command, Reply)
        else:
            self._session.send_unanswered(command)


def _new_key() -> str:
    return secrets.token_hex(12)
