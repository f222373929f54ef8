"""Methods of `Server` for rooms: settings, members, messages and signals.

`sdk.moderation` has the methods that edit and delete messages, and delete rooms.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from msgspec import UNSET

from greendot.protocol.replies import Typer
from greendot.sdk.http import Call, Http, checked, given, new_key, query
from greendot.sdk.responses import (
    Bus,
    Member,
    Members,
    Message,
    Messages,
    Present,
    ReaderCount,
    Receipts,
    Role,
    Room,
    Rooms,
    Sent,
    Typers,
)

PAGE = 1_000  # rooms or members in a page
MOST_MESSAGES = 300  # in a page


class Rooming:
    """Part of `Server` for rooms."""

    _http: Http

    def put_room(
        self,
        room: str,
        *,
        open: bool | None = None,
        bus: Bus | None = None,
        receipts: bool | None = None,
        archived: bool | None = None,
        slow_mode_s: int | None = None,
    ) -> Room:
        """Create a room, or change the settings of a room. A setting that is None stays unchanged.

        - `open`: a new room is for members only, unless `open` is True.
        - `bus`: what nodes send each other, through Redis, about a new message. "full" (the default): the whole
          message. "hint": only the number of the message; nodes then read the content from the store. Use "hint" if the
          content must not pass through Redis.
        - `receipts`: if True, users see how far other users have read.
        - `archived`: users can only read an archived room.
        - `slow_mode_s`: shortest time between two messages of the same user, in seconds. 0: no slow mode.

        `archive_room` and `set_slow_mode` also take who did it and why, for the audit. Raise Conflict while an earlier
        room with the same name is being deleted.
        """
        changed = given(open=open, bus=bus, receipts=receipts, archived=archived, slow_mode_s=slow_mode_s)
        return self._http.call(Call("PUT", room_path(room), changed), Room)

    def room(self, room: str) -> Room:
        """Return the room. Raise NotFound if the room does not exist."""
        return self._http.call(Call("GET", room_path(room)), Room)

    def rooms(self, after: str | None = None, limit: int = 100) -> list[Room]:
        """Return up to `limit` rooms in the order of their names, beginning after the name `after`."""
        return self._http.call(Call("GET", "/v1/rooms", query=query(after=after, limit=limit)), Rooms).rooms

    def every_room(self) -> Iterator[Room]:
        """Yield all rooms. The iteration fetches them page by page."""
        page = self.rooms(limit=PAGE)
        yield from page
        while len(page) == PAGE:
            page = self.rooms(page[-1].room, PAGE)
            yield from page

    def members(self, room: str, after: str | None = None, limit: int = 100) -> Members:
        """Return up to `limit` members and their roles, in the order of user ids, beginning after the id `after`."""
        return self._http.call(Call("GET", room_path(room, "members"), query=query(after=after, limit=limit)), Members)

    def every_member(self, room: str) -> Iterator[Member]:
        """Yield all members. The iteration fetches them page by page."""
        after: str | None = None
        while True:
            page = self.members(room, after, PAGE)
            for user in page.members:
                yield Member(room, user, page.roles[user])
            after = page.next
            if after is None:
                return

    def add_member(self, room: str, user: str, role: Role = "member") -> Member:
        """Add a member, or change the role of a member.

        The roles are "reader" (only receives messages), "member" (also sends messages) and "admin" (also edits and
        deletes messages of other users).
        """
        return self._http.call(Call("PUT", room_path(room, "members", user), {"role": role}), Member)

    def remove_member(self, room: str, user: str) -> None:
        """Remove a member. When the call has returned, the user receives no more events of the room.

        Raise `Unavailable` if some server nodes may not know of the removal yet. In this case, call the method again.
        """
        self._http.call(Call("DELETE", room_path(room, "members", user)), type(None))

    def present(self, room: str, after: str | None = None, limit: int = 100) -> Present:
        """Return the users who are in the room now, and their total number.

        The result has up to `limit` users in the order of their ids, beginning after the id `after`.
        """
        return self._http.call(Call("GET", room_path(room, "present"), query=query(after=after, limit=limit)), Present)

    def receipts(self, room: str, after: str | None = None, limit: int = 100) -> Receipts:
        """Return up to `limit` read receipts in the order of user ids, beginning after the id `after`.

        Raise NotFound if the room has no read receipts (see `put_room`).
        """
        return self._http.call(
            Call("GET", room_path(room, "receipts"), query=query(after=after, limit=limit)), Receipts
        )

    def readers(self, room: str, seq: int) -> int:
        """Return the number of users who have read the message with number `seq`.

        Three kinds of readers are not counted: users who read the message while invisible, users who hide their
        last-seen time, and users who hide from at least one other user.
        """
        return self._http.call(Call("GET", room_path(room, "receipts"), query=query(seq=seq)), ReaderCount).count

    def typing(self, room: str) -> list[Typer]:
        """Return the users who type in the room now."""
        return self._http.call(Call("GET", room_path(room, "typing")), Typers).typing

    def send(self, room: str, body: Any, *, user: str, name: str | None = None, key: str | None = None) -> Sent:
        """Send a message in the name of `user`; return the id and the number of the message.

        `key` identifies the message: if two calls have the same key, the server stores only one message. Without `key`,
        this call generates a key, so that its own retries store the message once. If your process may crash during the
        call and later send the message again, save a key before the call and pass the same key in both calls.
        """
        said = given(user=user, name=name, key=key or new_key()) | {"body": body}
        return self._http.call(Call("POST", room_path(room, "messages"), said), Sent)

    def react(self, room: str, seq: int, reaction: str, *, user: str) -> Sent:
        """Add a reaction of `user` to the message with number `seq`.

        A reaction has 1 to 32 characters, such as an emoji. The room stores the reaction as a record of its own, with a
        number like a message. Return the id and the number of this record. Raise NotFound if the message does not
        exist. Raise ValueError if the reaction is empty or has only dots.
        """
        return self._http.call(_reaction("PUT", room, seq, reaction, user), Sent)

    def unreact(self, room: str, seq: int, reaction: str, *, user: str) -> Sent:
        """Remove a reaction of `user` to the message with number `seq`.

        The room stores the removal as a record of its own. Return the id and the number of this record. If the user
        does not have the reaction, return the id and the number of the message.
        """
        return self._http.call(_reaction("DELETE", room, seq, reaction, user), Sent)

    def messages(
        self, room: str, *, after: int | None = None, before: int | None = None, limit: int = 50
    ) -> list[Message]:
        """Return up to `limit` messages in ascending order. `limit` is at most 300.

        With `after`, return the messages that follow this number. With `before`, return the messages directly before
        this number. With neither, return the newest messages. The server refuses a call with both.
        """
        asked = query(after=after, before=before, limit=limit)
        return self._http.call(Call("GET", room_path(room, "messages"), query=asked), Messages).messages

    def every_message(self, room: str, after: int = 0) -> Iterator[Message]:
        """Yield all messages after number `after`, oldest first. The iteration fetches them page by page."""
        while page := self.messages(room, after=after, limit=MOST_MESSAGES):
            yield from page
            after = page[-1].seq

    def signal_room(
        self, room: str, kind: str, body: Any = UNSET, *, sender: str | None = None, key: str | None = None
    ) -> None:
        """Send a signal to the users in the room. A signal is not stored, and a lost signal is not sent again.

        `sender` is the id that clients get in the field `from`; None: "system". While a client reads slowly, signals
        for this client wait in the server. A signal with `key` then replaces a waiting signal with the same sender,
        kind and key.
        """
        self._signal(body, room=checked("room", room), kind=kind, key=key, **{"from": sender})

    def signal_user(
        self, user: str, kind: str, body: Any = UNSET, *, sender: str | None = None, key: str | None = None
    ) -> None:
        """Send a signal to all devices of a user. `sender` and `key` have the same meaning as in `signal_room`."""
        self._signal(body, user=checked("user", user), kind=kind, key=key, **{"from": sender})

    def _signal(self, body: Any, **fields: Any) -> None:
        said = given(**fields)
        if body is not UNSET:
            said["body"] = body
        # No retries: a signal has no number, so a retry after a lost response might deliver the signal twice.
        self._http.call(Call("POST", "/v1/signals", said, repeatable=False), type(None))


def _reaction(method: str, room: str, seq: int, reaction: str, user: str) -> Call:
    if not reaction.strip("."):
        raise ValueError(
            "a reaction must not be empty or have only dots: in the path of the request, dots have another meaning"
        )
    path = f"{room_path(room, 'messages')}/{seq:d}/reactions/{quote(reaction, safe='')}"
    return Call(method, path, query=query(user=checked("user", user)))


def room_path(room: str, *more: str) -> str:
    return "/".join(("/v1/rooms", checked("room", room), *(checked("user", part) for part in more)))
