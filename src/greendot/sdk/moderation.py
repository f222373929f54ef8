"""Moderation: messages that the app edits or deletes, deleted rooms, mutes and bans, and the audit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from greendot.sdk.http import Call, Http, checked, given, new_key, query
from greendot.sdk.responses import AuditEntries, AuditEntry, Restriction, Restrictions, Room, Sent
from greendot.sdk.rooms import room_path

MOST_ENTRIES = 300  # per page


class Moderating:
    """Part of `Server` for moderation.

    The audit records `by`, the person who makes the change, and `reason`. Without `by` it records the API key's name.
    """

    _http: Http

    def edit_message(
        self,
        room: str,
        seq: int,
        body: Any,
        *,
        by: str | None = None,
        reason: str | None = None,
        key: str | None = None,
    ) -> Sent:
        """Replace the body of message `seq` of any author; return id and number of the edit.

        Clients see `by`, or `system`, as the editor. `key` has the same effect as in `send`. Raise NotFound if there is
        no such message, or if it was deleted.
        """
        said = given(by=by, reason=reason, key=key or new_key()) | {"body": body}
        return self._http.call(Call("PATCH", _message_path(room, seq), said), Sent)

    def delete_message(self, room: str, seq: int, *, by: str | None = None, reason: str | None = None) -> Sent:
        """Delete message `seq` of any author; return id and number of the deletion.

        After this call, no reader gets the content of the message or of its edits. A second call returns the same.
        """
        asked = query(by=by, reason=reason)
        return self._http.call(Call("DELETE", _message_path(room, seq), query=asked), Sent)

    def delete_room(self, room: str, *, by: str | None = None, reason: str | None = None) -> None:
        """Delete a room with its messages and members. Its listeners are removed at once, its data soon after."""
        self._http.call(Call("DELETE", room_path(room), query=query(by=by, reason=reason)), type(None))

    def archive_room(
        self, room: str, archived: bool = True, *, by: str | None = None, reason: str | None = None
    ) -> Room:
        """Archive a room, so that it can only be read. With `archived=False`, make it writable again.

        Create the room if there is none.
        """
        said = given(by=by, reason=reason) | {"archived": archived}
        return self._http.call(Call("PUT", room_path(room), said), Room)

    def set_slow_mode(self, room: str, seconds: int, *, by: str | None = None, reason: str | None = None) -> Room:
        """Set the seconds between two messages of one user; 0 ends slow mode. Create the room if there is none."""
        said = given(by=by, reason=reason) | {"slow_mode_s": seconds}
        return self._http.call(Call("PUT", room_path(room), said), Room)

    def mute(
        self,
        user: str,
        room: str | None = None,
        *,
        until: int | None = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> Restriction:
        """Mute a user in `room`, or in all rooms if `room` is None. A muted user can read, but cannot send.

        The mute ends at `until` (ms UTC); None: no end. After this call, no message that the user sends there is
        stored. Messages that the backend writes as this user are stored.
        """
        said = given(until=until, by=by, reason=reason)
        return self._http.call(Call("PUT", _restriction_path("mutes", room, user), said), Restriction)

    def unmute(self, user: str, room: str | None = None, *, by: str | None = None, reason: str | None = None) -> None:
        """End a mute. A mute in all rooms and mutes in single rooms are independent of each other."""
        self._http.call(
            Call("DELETE", _restriction_path("mutes", room, user), query=query(by=by, reason=reason)), type(None)
        )

    def ban(
        self,
        user: str,
        room: str | None = None,
        *,
        until: int | None = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> Restriction:
        """Ban a user from `room`, or from the tenant if `room` is None. The ban ends at `until` (ms UTC); None: no end.

        After this call, the user gets nothing more of the room. Without a room, the user's connections are closed. If
        this raises Unavailable, a node has not confirmed the ban: call again.
        """
        said = given(until=until, by=by, reason=reason)
        return self._http.call(Call("PUT", _restriction_path("bans", room, user), said), Restriction)

    def unban(self, user: str, room: str | None = None, *, by: str | None = None, reason: str | None = None) -> None:
        """End a ban. A ban from the tenant and bans from single rooms are independent of each other."""
        self._http.call(
            Call("DELETE", _restriction_path("bans", room, user), query=query(by=by, reason=reason)), type(None)
        )

    def mutes(self, room: str | None = None) -> Iterator[Restriction]:
        """Yield the mutes in `room`; without `room`, the mutes of the whole tenant, but not those of single rooms.

        The iteration fetches them page by page.
        """
        return self._restricted(_restriction_path("mutes", room))

    def bans(self, room: str | None = None) -> Iterator[Restriction]:
        """Yield the bans from `room`; without `room`, the bans from the tenant, but not those from single rooms.

        The iteration fetches them page by page.
        """
        return self._restricted(_restriction_path("bans", room))

    def _restricted(self, path: str) -> Iterator[Restriction]:
        after = None
        while True:
            page = self._http.call(Call("GET", path, query=query(after=after, limit=1_000)), Restrictions)
            yield from page.users
            if (after := page.next) is None:
                return

    def audit(
        self,
        *,
        room: str | None = None,
        user: str | None = None,
        action: str | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> list[AuditEntry]:
        """Return up to `limit` entries of the audit (at most 300), oldest first.

        These are the first entries after number `after`, or without it the newest.
        """
        asked = query(room=room, user=user, action=action, after=after, limit=limit)
        return self._http.call(Call("GET", "/v1/audit", query=asked), AuditEntries).entries

    def every_audit_entry(self, after: int = 0) -> Iterator[AuditEntry]:
        """Yield all entries of the audit after number `after`, oldest first, read page by page."""
        while page := self.audit(after=after, limit=MOST_ENTRIES):
            yield from page
            after = page[-1].number


def _restriction_path(kind: Literal["mutes", "bans"], room: str | None, user: str | None = None) -> str:
    path = f"/v1/{kind}" if room is None else room_path(room, kind)
    return path if user is None else f"{path}/{checked('user', user)}"


def _message_path(room: str, seq: int) -> str:
    return f"{room_path(room, 'messages')}/{seq:d}"
