"""Inboxes: writing of notifications, and reading of their state."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Literal, TypedDict, Unpack

from msgspec import Struct

from greendot.sdk.http import Call, Http, checked, given, new_key, query, seconds
from greendot.sdk.responses import Inbox, Notified, NotifiedList

Filter = Literal["all", "unread", "unseen", "archived"]


Importance = Literal["low", "normal", "high", "critical"]


class NotificationOptions(TypedDict, total=False):
    """Options of `notify`. A notification expires at `expires_at` (ms UTC), or after `ttl`, or never.

    The others are for its push. `room` is the room that the notification is about. On a device, the push replaces an
    earlier one with the same `collapse`. With `push=False` there is no push.
    """

    expires_at: int | None
    ttl: float | timedelta | None
    importance: Importance | None
    room: str | None
    collapse: str | None
    push: bool | None


class Notification(Struct, frozen=True, kw_only=True):
    """Notification in a batch, with the fields of `NotificationOptions`."""

    user: str
    kind: str
    body: Any = None
    key: str | None = None
    expires_at: int | None = None
    ttl: float | timedelta | None = None
    importance: Importance | None = None
    room: str | None = None
    collapse: str | None = None
    push: bool | None = None

    def request_body(self) -> dict[str, object]:
        """Return the body for the API. A missing key is generated, because a retry must be the same notification."""
        fields = given(
            user=self.user,
            kind=self.kind,
            expires_at=self.expires_at,
            ttl_s=seconds(self.ttl),
            importance=self.importance,
            room=self.room,
            collapse=self.collapse,
            push=self.push,
        )
        return fields | {"key": self.key or new_key(), "body": self.body}


class Inboxes:
    """Part of `Server` for notifications."""

    _http: Http

    def notify(
        self,
        user: str,
        kind: str,
        body: Any = None,
        *,
        key: str | None = None,
        **options: Unpack[NotificationOptions],
    ) -> Notified:
        """Write a notification to the user's inbox and send it to the user's devices.

        `key` identifies the notification. A second call with the same key, from any process, writes nothing. It returns
        the first notification, with `new` False. Without `key`, this call generates a key, so that its own retries
        write the notification once.
        """
        one = Notification(user=user, kind=kind, body=body, key=key, **options)
        return self._http.call(Call("POST", "/v1/notifications", one.request_body()), Notified)

    def notify_many(self, notifications: Iterable[Notification]) -> list[Notified]:
        """Write up to 10,000 notifications in one request, all or none. Return a result for each, in the same order."""
        said = [one.request_body() for one in notifications]
        if not said:
            return []
        return self._http.call(Call("POST", "/v1/notifications", {"notifications": said}), NotifiedList).notifications

    def inbox(
        self,
        user: str,
        *,
        after: int | None = None,
        before: int | None = None,
        limit: int = 50,
        filter: Filter = "all",
    ) -> Inbox:
        """Return a page of the user's inbox, with up to `limit` entries (at most 300).

        With `after`, these are the oldest entries whose number is above `after`. Otherwise they are the newest entries,
        with `before` only those whose number is below `before`.
        """
        asked = query(after=after, before=before, limit=limit, filter=filter)
        return self._http.call(Call("GET", f"/v1/users/{checked('user', user)}/inbox", query=asked), Inbox)
