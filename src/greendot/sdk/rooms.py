"""Rooms: making them, their members, what is said and signalled in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import UNSET

from greendot.protocol.replies import Typer
from greendot.sdk.http import Call, Http, checked, given, new_key, query
from greendot.sdk.responses import Bus, Member, Members, Message, Messages, Present, Role, Room, Rooms, Sent, Typers

PAGE = 1_000
MOST_MESSAGES = 300  # of a page


class Rooming:
    """The part of `Server` that is about rooms."""

    _http: Http

    def put_room(self, room: str, *, open: bool | None = None, bus: Bus | None = None) -> Room:
        """Make a room, or change it; what is left out stays as it is. A new one is for members only."""
        return self._http.call(Call("PUT", _path(room), given(open=open, bus=bus)), Room)

    def room(self, room: str) -> Room:
        """Raises NotFound if there is none."""
        return self._http.call(Call("GET", _path(room)), Room)

    def rooms(self, after: str | None = None, limit: int = 100) -> list[Room]:
        """A page of rooms, by name."""
        return self._http.call(Call("GET", "/v1/rooms", query=query(after=after, limit=limit)), Rooms).rooms

    def every_room(self) -> Iterator[Room]:
        """All rooms, page by page."""
        page = self.rooms(limit=PAGE)
        yield from page
        while len(page) == PAGE:
            page = self.rooms(page[-1].room, PAGE)
            yield from page

    def members(self, room: str, after: str | None = None, limit: int = 100) -> Members:
        """A page of members, by id, with their roles."""
        return self._http.call(Call("GET", _path(room, "members"), query=query(after=after, limit=limit)), Members)

    def every_member(self, room: str) -> Iterator[Member]:
        """All members, page by page."""
        after: str | None = None
        while True:
            page = self.members(room, after, PAGE)
            for user in page.members:
                yield Member(room, user, page.roles[user])
            after = page.next
            if after is None:
                return

    def add_member(self, room: str, user: str, role: Role = "member") -> Member:
        """Let a user in, or give another role."""
        return self._http.call(Call("PUT", _path(room, "members", user), {"role": role}), Member)

    def remove_member(self, room: str, user: str) -> None:
        """When it returns the user hears nothing more of the room. Unavailable: not known of every node; ask again."""
        self._http.call(Call("DELETE", _path(room, "members", user)), type(None))

    def present(self, room: str, after: str | None = None, limit: int = 100) -> Present:
        """A page of who is in the room now, by id, and how many are in all."""
        return self._http.call(Call("GET", _path(room, "present"), query=query(after=after, limit=limit)), Present)

    def typing(self, room: str) -> list[Typer]:
        """Who types there now."""
        return self._http.call(Call("GET", _path(room, "typing")), Typers).typing

    def send(self, room: str, body: Any, *, user: str, name: str | None = None, key: str | None = None) -> Sent:
        """Write a message as `user`; under which number it was written.

        `key` names it: sent again with the same key, by whichever process, it is the same message. One is made for each
        call, which is enough for the tries of that call. To be sure across a crash of your own, give one you keep.
        """
        said = given(user=user, name=name, key=key or new_key()) | {"body": body}
        return self._http.call(Call("POST", _path(room, "messages"), said), Sent)

    def messages(
        self, room: str, *, after: int | None = None, before: int | None = None, limit: int = 50
    ) -> list[Message]:
        """Up to `limit` (300) messages after a number, or before it, or the newest, in ascending order."""
        asked = query(after=after, before=before, limit=limit)
        return self._http.call(Call("GET", _path(room, "messages"), query=asked), Messages).messages

    def every_message(self, room: str, after: int = 0) -> Iterator[Message]:
        """All messages behind number `after`, oldest first, read page by page."""
        while page := self.messages(room, after=after, limit=MOST_MESSAGES):
            yield from page
            after = page[-1].seq

    def signal_room(
        self, room: str, kind: str, body: Any = UNSET, *, sender: str | None = None, key: str | None = None
    ) -> None:
        """Say something fleeting to whoever is in the room. At most once; with `key` only the latest counts."""
        self._signal(body, room=checked("room", room), kind=kind, key=key, **{"from": sender})

    def signal_user(
        self, user: str, kind: str, body: Any = UNSET, *, sender: str | None = None, key: str | None = None
    ) -> None:
        """Say something fleeting to all devices of a user. At most once; with `key` only the latest counts."""
        self._signal(body, user=checked("user", user), kind=kind, key=key, **{"from": sender})

    def _signal(self, body: Any, **fields: Any) -> None:
        said = given(**fields)
        if body is not UNSET:
            said["body"] = body
        # It has no number and no memory: asked for again after a lost answer it might be heard twice.
        self._http.call(Call("POST", "/v1/signals", said, repeatable=False), type(None))


def _path(room: str, *more: str) -> str:
    return "/".join(("/v1/rooms", checked("room", room), *(checked("user", part) for part in more)))
