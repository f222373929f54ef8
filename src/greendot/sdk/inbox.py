"""Inboxes: telling users something they are not to miss, and what became of it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Literal

from msgspec import Struct

from greendot.sdk.http import Call, Http, checked, given, new_key, query, seconds
from greendot.sdk.responses import Inbox, Notified, NotifiedList

Filter = Literal["all", "unread", "unseen", "archived"]


class Notification(Struct, frozen=True, kw_only=True):
    """One of many to be sent. Its end is `expires_at` (ms UTC), or `ttl` from now, or there is none."""

    user: str
    kind: str
    body: Any = None
    key: str | None = None
    expires_at: int | None = None
    ttl: float | timedelta | None = None

    def request_body(self) -> dict[str, object]:
        """As the API takes it. Without a key it gets one: asked for again, it must be the same notification."""
        fields = given(user=self.user, kind=self.kind, expires_at=self.expires_at, ttl_s=seconds(self.ttl))
        return fields | {"key": self.key or new_key(), "body": self.body}


class Inboxes:
    """The part of `Server` that is about notifications."""

    _http: Http

    def notify(
        self,
        user: str,
        kind: str,
        body: Any = None,
        *,
        key: str | None = None,
        expires_at: int | None = None,
        ttl: float | timedelta | None = None,
    ) -> Notified:
        """Put a notification into the user's inbox and tell the user's devices.

        `key` names it: with the same key, by whichever process, it is the same notification, and the answer is not
        `new`. One is made for each call, which is enough for the tries of that call.
        """
        one = Notification(user=user, kind=kind, body=body, key=key, expires_at=expires_at, ttl=ttl)
        return self._http.call(Call("POST", "/v1/notifications", one.request_body()), Notified)

    def notify_many(self, notifications: Iterable[Notification]) -> list[Notified]:
        """Up to 10,000 in one request: all of them are written, or none. What became of each, in their order."""
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
        """A page of the user's inbox: the oldest after `after`, else the newest (before `before`), up to 300."""
        asked = query(after=after, before=before, limit=limit, filter=filter)
        return self._http.call(Call("GET", f"/v1/users/{checked('user', user)}/inbox", query=asked), Inbox)
