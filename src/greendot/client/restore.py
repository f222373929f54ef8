"""Restoration of a session after a reconnect: watch the same users, join the same rooms, receive the missed messages.

A link is one connection to the server. A cursor is the number of the last record of a room, or of the inbox, that was
delivered to the program.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from greendot.client.catchup import RETRY_S, ask
from greendot.client.codec import Failure
from greendot.client.errors import CommandRefused
from greendot.client.link import Link
from greendot.client.records import INBOX, room_stream
from greendot.client.state import View
from greendot.protocol.commands import InboxList, Resume, RoomJoin, Watch
from greendot.protocol.events import Event, InboxBadge, RoomChanged, Welcome
from greendot.protocol.replies import InboxReply, JoinReply, PresenceReply

# Users or rooms per frame. An id has at most 128 characters, so 400 ids fit into a frame of 64 KiB.
BATCH = 400


def batches(users: Iterable[str]) -> Iterator[list[str]]:
    """Split `users` into lists. Each list fits into one frame."""
    remaining = iter(users)
    while batch := list(islice(remaining, BATCH)):
        yield batch


def resume_of(view: View, welcome: Welcome | None) -> Resume | None:
    """Return the field `resume` of `hello`: the id of the session, and the cursors of the rooms and the inbox.

    The cursors may come from an earlier run of the program, which saved them (argument `cursors` of `Client`). Return
    None if there was no earlier link and there are no cursors. The resume has at most `BATCH` rooms. `restore` joins
    the other rooms and gets their missed messages.
    """
    rooms, inbox = view.records.rooms, view.records.inbox
    if welcome is None and not rooms and inbox is None:
        return None
    session = None if welcome is None else welcome.session
    return Resume(session=session, rooms=dict(islice(rooms.items(), BATCH)), inbox=inbox)


async def restore(link: Link, welcome: Welcome, view: View, receive: Callable[[Event], None]) -> None:
    """Watch the same users, join the same rooms and read the inbox counts again.

    Call `receive` with the current presence of each watched user, the missed messages and the inbox counts. The server
    has already put the session back into the rooms that `resume` lists, except rooms that it refused. The client joins
    each room that is missing in `welcome.rooms`. If the server refuses a join and the client must not retry, `receive`
    gets `RoomChanged` with `removed`, and the error code as its `reason`.
    """
    # Iterate over copies: the program may unwatch users and leave rooms during the awaits.
    for users in batches(tuple(view.watched)):
        await _rewatch(link, users, view, receive)
    rooms = [room for room in view.records.rooms if room not in welcome.rooms]
    while rooms := [room for room in rooms if room in view.records.rooms]:
        rooms = await _rejoin(link, rooms, view, receive)
    await _read_inbox(link, view, receive)


async def _rewatch(link: Link, users: list[str], view: View, receive: Callable[[Event], None]) -> None:
    try:
        reply = await ask(link, Watch(users=users), PresenceReply)
    except CommandRefused as error:
        # The rights of the user have changed. The rest of the session still works, so the program only gets an event.
        view.unwatch(users)
        receive(Failure(None, error.code, f"no longer watching: {error.message}", False, None))
        return
    for entry in reply.presence:
        receive(entry)


async def _read_inbox(link: Link, view: View, receive: Callable[[Event], None]) -> None:
    """Read the counts of unread and unseen notifications, and the number of the newest notification (`head`).

    `records.reach` compares `head` with the cursor. Without a cursor, delivery starts after `head`. With a cursor,
    the notifications between both are fetched later, or skipped if there are too many.
    """
    since = view.records.inbox or 0

    def found(reply: InboxReply) -> None:
        receive(InboxBadge(reply.unread, reply.unseen))
        skipped = view.records.reach(INBOX, reply.head, since)
        if skipped is not None:
            receive(skipped)

    try:
        await ask(link, InboxList(limit=1), InboxReply, found)
    except CommandRefused as error:
        receive(Failure(None, error.code, f"the inbox cannot be read: {error.message}", False, None))


async def _rejoin(link: Link, rooms: list[str], view: View, receive: Callable[[Event], None]) -> list[str]:
    """Join all `rooms` at the same time. Return the rooms to retry.

    If there are any, first wait for the longest time that the server asked for.
    """

    def joined(reply: JoinReply) -> None:
        for message in reply.messages:
            receive(message)
        if reply.truncated and (skipped := view.records.reach(room_stream(reply.room), reply.head)) is not None:
            receive(skipped)
        view.typing_in(reply, time.monotonic())

    last = view.records.rooms
    answers = await asyncio.gather(
        *(link.request(RoomJoin(room=room, after=last[room]), JoinReply, joined) for room in rooms),
        return_exceptions=True,
    )
    again, patience = [], 0.0
    for room, answer in zip(rooms, answers, strict=True):
        match answer:
            case CommandRefused(retry=True):
                again.append(room)
                patience = max(patience, _patience(answer))
            case CommandRefused():
                receive(RoomChanged(room, removed=True, reason=answer.code))
            case BaseException():
                raise answer
    await asyncio.sleep(patience)
    return again


def _patience(error: CommandRefused) -> float:
    return RETRY_S if error.retry_in_ms is None else error.retry_in_ms / 1000
