"""Users: presence, sessions, status, contacts, and revocation of tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import UNSET, UnsetType

from greendot.protocol.events import Presence
from greendot.protocol.replies import SessionInfo
from greendot.sdk.errors import NotFound
from greendot.sdk.http import Call, Http, checked, given, query
from greendot.sdk.responses import Contact, OneMode, OnePresence, Online, PresenceList, Revoked, Sessions, UserInfo

MOST_ASKED = 10_000  # users in one request
PresenceMode = Literal["auto", "live", "poll"]
PAGE = 1_000


class People:
    """Part of `Server` for users."""

    _http: Http

    def presence(self, users: Iterable[str]) -> list[Presence]:
        """Return the presence of `users`, in the same order. More than 10,000 users take several requests."""
        wanted = [users] if isinstance(users, str) else [*users]
        found: list[Presence] = []
        for start in range(0, len(wanted), MOST_ASKED):
            call = Call("POST", "/v1/presence/query", {"users": wanted[start : start + MOST_ASKED]})
            found += self._http.call(call, PresenceList).presence
        return found

    def online(self, after: str | None = None, limit: int = 100) -> Online:
        """Return a page of online users, and their total number."""
        return self._http.call(Call("GET", "/v1/presence/online", query=query(after=after, limit=limit)), Online)

    def everybody_online(self) -> Iterator[str]:
        """Yield all online users, read page by page. Users who come or go meanwhile may or may not be included."""
        page = self.online(limit=PAGE)
        yield from page.users
        while page.next is not None:
            page = self.online(page.next, PAGE)
            yield from page.users

    def sessions(self, user: str) -> Sequence[SessionInfo]:
        """Return the user's sessions on all nodes."""
        return self._http.call(Call("GET", f"/v1/users/{checked('user', user)}/sessions"), Sessions).sessions

    def disconnect(self, session: str) -> bool:
        """Close a session's socket (4503: the client does not reconnect); return whether there was one."""
        try:
            self._http.call(Call("DELETE", f"/v1/sessions/{checked('session', session)}"), type(None))
        except NotFound:
            return False
        return True

    def set_status(
        self,
        user: str,
        status: Literal["auto", "busy", "invisible"],
        *,
        until: int | None = None,
        text: str | None = None,
    ) -> Presence:
        """Set a user's status; return the user's presence. The status ends at `until` (ms UTC); None: no end."""
        path = f"/v1/users/{checked('user', user)}/status"
        return self._http.call(Call("PUT", path, given(status=status, until=until, text=text)), OnePresence).presence

    def info(self, user: str) -> UserInfo:
        """Return the name and the info that are stored for a user."""
        return self._http.call(Call("GET", _info(user)), UserInfo)

    def set_info(
        self,
        user: str,
        *,
        name: str | UnsetType | None = UNSET,
        info: Mapping[str, Any] | UnsetType | None = UNSET,
    ) -> UserInfo:
        """Set a user's name, info (at most 1,024 bytes as JSON), or both. Return name and info.

        None removes a field. A field that is left out stays unchanged.

        Watchers and users in the same rooms get the change at once.
        """
        fields = {"name": name, "info": info}
        body = {field: value for field, value in fields.items() if value is not UNSET}
        return self._http.call(Call("PUT", _info(user), body), UserInfo)

    def remove_info(self, user: str) -> None:
        """Remove a user's stored name and info. Tokens issued before do not set them again."""
        self._http.call(Call("DELETE", _info(user)), type(None))

    def presence_mode(self, user: str) -> PresenceMode:
        """Return how changes of a user's presence reach the watchers; `auto` if `set_presence_mode` was not called."""
        return self._http.call(Call("GET", _mode(user)), OneMode).mode

    def set_presence_mode(self, user: str, mode: PresenceMode) -> None:
        """Set how changes of a user's presence reach the watchers. The mode is in effect on every node on return.

        `auto`: the number of watchers on a node decides. `live`: the server always sends changes. `poll`: it sends
        none, and watchers see whether the user was recently active.
        """
        self._http.call(Call("PUT", _mode(user), given(mode=mode)), OneMode)

    def add_contact(self, user: str, other: str, *, last_contact_at: int | None = None) -> Contact:
        """Add `other` to the contacts of `user`, but not `user` to those of `other`.

        The time of their last contact is `last_contact_at` (ms UTC); None: now.
        """
        return self._http.call(Call("PUT", _contact(user, other), given(last_contact_at=last_contact_at)), Contact)

    def remove_contact(self, user: str, other: str) -> None:
        """Remove a contact. When this returns, the change is in effect on every node."""
        self._http.call(Call("DELETE", _contact(user, other)), type(None))

    # Revocation. After each of these calls, the revoked tokens and sessions receive nothing more. If a call raises
    # Unavailable, a node has not confirmed the revocation: call again.

    def revoke_user(self, user: str, *, before: int | None = None) -> Revoked:
        """Revoke every token of the user issued before now, or before `before` (ms UTC)."""
        return self._revoke(user=checked("user", user), before=before)

    def revoke_token(self, jti: str, *, user: str | None = None, expires_at: int | None = None) -> Revoked:
        """Revoke the token with this `jti`.

        If you know them, pass the token's user and its expiry (ms UTC). Then the call waits only for the nodes of this
        user, and the server keeps the revocation only until the expiry.
        """
        if not isinstance(jti, str) or not jti:  # left out, `user` alone would revoke every token of the user
            raise ValueError("jti must be the claim `jti` of a token; `revoke_user` revokes every token of a user")
        return self._revoke(jti=jti, user=user, expires_at=expires_at)

    def revoke_session(self, session: str) -> Revoked:
        """Close the session, and revoke its token if the token has a `jti`. The session cannot be resumed."""
        return self._revoke(session=checked("session", session))

    def revoke_all(self, *, before: int | None = None) -> Revoked:
        """Revoke every token of the key's tenant issued before now, or before `before` (ms UTC)."""
        return self._revoke(all=True, before=before)

    def _revoke(self, **what: object) -> Revoked:
        return self._http.call(Call("POST", "/v1/tokens/revoke", given(**what)), Revoked)


def _info(user: str) -> str:
    return f"/v1/users/{checked('user', user)}/info"


def _mode(user: str) -> str:
    return f"/v1/users/{checked('user', user)}/presence/mode"


def _contact(user: str, other: str) -> str:
    return f"/v1/users/{checked('user', user)}/contacts/{checked('other', other)}"
