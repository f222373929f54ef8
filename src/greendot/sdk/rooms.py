"""Rooms: their settings, members, messages and signals."""

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

PAGE = 1_000
MOST_MESSAGES = 300  # per page


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
    ) -> Room:
        """Create a room, or change it; None keeps a setting. A new room is for members only, unless `open` is True.

        With `receipts`, users see how far others have read. An archived room can only be read. Raise Conflict while a
        deleted room of this name is removed.
        """
        changed = given(open=open, bus=bus, receipts=receipts, archived=archived)
        return self._http.call(Call("PUT", room_path(room), changed), Room)

    def room(self, room: str) -> Room:
        """Return the room. Raise NotFound if there is none."""
        return self._http.call(Call("GET", room_path(room)), Room)

    def rooms(self, after: str | None = None, limit: int = 100) -> list[Room]:
        """Return a page of rooms in the order of names."""
        return self._http.call(Call("GET", "/v1/rooms", query=query(after=after, limit=limit)), Rooms).rooms

    def every_room(self) -> Iterator[Room]:
        """Yield all rooms, read page by page."""
        page = self.rooms(limit=PAGE)
        yield from page
        while len(page) == PAGE:
            page = self.rooms(page[-1].room, PAGE)
            yield from page

    def members(self, room: str, after: str | None = None, limit: int = 100) -> Members:
        """Return a page of members in the order of ids, with their roles."""
        return self._http.call(Call("GET", room_path(room, "members"), query=query(after=after, limit=limit)), Members)

    def every_member(self, room: str) -> Iterator[Member]:
        """Yield all members, read page by page."""
        after: str | None = None
        while True:
            page = self.members(room, after, PAGE)
            for user in page.members:
                yield Member(room, user, page.roles[user])
            after = page.next
            if after is None:
                return

    def add_member(self, room: str, user: str, role: Role = "member") -> Member:
        """Add a member, or change the role of a member."""
        return self._http.call(Call("PUT", room_path(room, "members", user), {"role": role}), Member)

    def remove_member(self, room: str, user: str) -> None:
        """Remove a member. After this call has returned, the user receives nothing more of the room.

        Raise `Unavailable` if some nodes may not know of the removal yet. Then call this method again.
        """
        self._http.call(Call("DELETE", room_path(room, "members", user)), type(None))

    def present(self, room: str, after: str | None = None, limit: int = 100) -> Present:
        """Return a page of the room's occupants in the order of ids, and their total number."""
        return self._http.call(Call("GET", room_path(room, "present"), query=query(after=after, limit=limit)), Present)

    def receipts(self, room: str, after: str | None = None, limit: int = 100) -> Receipts:
        """Return a page of read receipts in the order of user ids. Raise NotFound if the room has none."""
        return self._http.call(
            Call("GET", room_path(room, "receipts"), query=query(after=after, limit=limit)), Receipts
        )

    def readers(self, room: str, seq: int) -> int:
        """Return the number of users who have read message `seq`, without users who hide."""
        return self._http.call(Call("GET", room_path(room, "receipts"), query=query(seq=seq)), ReaderCount).count

    def typing(self, room: str) -> list[Typer]:
        """Return the users who type in the room now."""
        return self._http.call(Call("GET", room_path(room, "typing")), Typers).typing

    def send(self, room: str, body: Any, *, user: str, name: str | None = None, key: str | None = None) -> Sent:
        """Write a message as `user`; return its id and number.

        `key` identifies the message: the server stores only one message with the same key, whichever process sends it.
        A call without a key generates one, which covers the retries of that call. To be safe across a crash of your own
        process, pass a key that you keep.
        """
        said = given(user=user, name=name, key=key or new_key()) | {"body": body}
        return self._http.call(Call("POST", room_path(room, "messages"), said), Sent)

    def react(self, room: str, seq: int, reaction: str, *, user: str) -> Sent:
        """Set a reaction of `user` to the message with number `seq`; return id and number of the record that set it.

        Raise NotFound if there is no such message. A reaction has 1 to 32 characters, such as an emoji.
        """
        return self._http.call(_reaction("PUT", room, seq, reaction, user), Sent)

    def unreact(self, room: str, seq: int, reaction: str, *, user: str) -> Sent:
        """Remove a reaction of `user` to the message with number `seq`.

        Return id and number of the record that removed it, or of the message if the user does not have the reaction.
        """
        return self._http.call(_reaction("DELETE", room, seq, reaction, user), Sent)

    def messages(
        self, room: str, *, after: int | None = None, before: int | None = None, limit: int = 50
    ) -> list[Message]:
        """Return up to `limit` messages (at most 300), in ascending order.

        These are the messages after number `after`, those before number `before`, or the newest if neither is given.
        """
        asked = query(after=after, before=before, limit=limit)
        return self._http.call(Call("GET", room_path(room, "messages"), query=asked), Messages).messages

    def every_message(self, room: str, after: int = 0) -> Iterator[Message]:
        """Yield all messages after number `after`, oldest first, read page by page."""
        while page := self.messages(room, after=after, limit=MOST_MESSAGES):
            yield from page
            after = page[-1].seq

    def signal_room(
        self, room: str, kind: str, body: Any = UNSET, *, sender: str | None = None, key: str | None = None
    ) -> None:
        """Send a signal to the occupants of the room, at most once.

        With `key`, a newer signal with the same key replaces an older one that still waits for a slow client.
        """
        self._signal(body, room=checked("room", room), kind=kind, key=key, **{"from": sender})

    def signal_user(
        self, user: str, kind: str, body: Any = UNSET, *, sender: str | None = None, key: str | None = None
    ) -> None:
        """Send a signal to all devices of a user, at most once. `key` has the same effect as in `signal_room`."""
        self._signal(body, user=checked("user", user), kind=kind, key=key, **{"from": sender})

    def _signal(self, body: Any, **fields: Any) -> None:
        said = given(**fields)
        if body is not UNSET:
            said["body"] = body
        # A signal has no number and is not stored: a retry after a lost response might deliver it twice.
        self._http.call(Call("POST", "/v1/signals", said, repeatable=False), type(None))


def _reaction(method: str, room: str, seq: int, reaction: str, user: str) -> Call:
    if not reaction.strip("."):
        raise ValueError(
            "a reaction has 1 to 32 characters, and not only dots, which would change the path of a request"
        )
    path = f"{room_path(room, 'messages')}/{seq:d}/reactions/{quote(reaction, safe='')}"
    return Call(method, path, query=query(user=checked("user", user)))


def room_path(room: str, *more: str) -> str:
    return "/".join(("/v1/rooms", checked("room", room), *(checked("user", part) for part in more)))
