"""What can be done from the dashboard: each is told in a sentence first, done when that is confirmed, and logged.

The sentence is made here, not in the page, of what is true now; the confirmation names it by a number. So nothing is
done by a single frame, and what was agreed to is what happens.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

import msgspec

from greendot.admin.desk import Desk, Viewer
from greendot.admin.frames import Act
from greendot.core.revocations import Revocation
from greendot.errors import Refused
from greendot.ids import Id
from greendot.protocol.codes import Close, Err
from greendot.store.base import Notice

HOLDS_S = 60.0  # what is not confirmed by then was not meant
KIND = "test"  # of a test notification
TEXT = "A test notification from the dashboard."
_log = logging.getLogger("greendot.audit")


class Offer(NamedTuple):
    """What would be done."""

    act: Act
    tenant: str
    sessions: tuple[str, ...]  # that are there now
    ends_at: float  # monotonic seconds


class Acting:
    """Offers that were made to one onlooker. The latest counts: nobody decides two things at once."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._numbers = 0
        self._offer: Offer | None = None

    async def offer(self, viewer: Viewer, act: Act) -> dict[str, Any]:
        """What would happen, in a sentence."""
        tenant = viewer.at(act.tenant)
        if (act.user is None) == (act.session is None):
            raise Refused(Err.BAD_FIELD, "field `user` of act: name either a user or a session")
        if act.do == "notify" and act.user is None:
            raise Refused(Err.BAD_FIELD, "field `user` of act: a notification goes to a user")
        sessions = (act.session,) if act.session else await self._sessions(tenant, act.user or "")
        self._numbers += 1
        self._offer = Offer(act, tenant, sessions, self._desk.clock.monotonic() + HOLDS_S)
        title, says = _sentence(act, tenant, len(sessions))
        return {"number": self._numbers, "title": title, "says": says, "do": act.do}

    async def confirm(self, viewer: Viewer, number: int) -> dict[str, Any]:
        """Do it, and say what was done."""
        offer, self._offer = self._offer, None
        if offer is None or number != self._numbers or self._desk.clock.monotonic() > offer.ends_at:
            raise Refused(Err.BAD_FIELD, "this was not asked for, or too long ago: ask again")
        tenant = viewer.at(offer.tenant)
        done = await self._do(offer, tenant)
        target = offer.act.user or offer.act.session or ""
        kind = "user" if offer.act.user else "session"
        _log.warning(
            "audit: key %s did %s to %s %s of tenant %s: %s",
            viewer.name,
            offer.act.do,
            kind,
            Id(target),
            Id(tenant),
            done,
        )
        return {"done": done}

    async def _do(self, offer: Offer, tenant: str) -> str:
        act = offer.act
        if act.do == "disconnect":
            return await self._disconnect(offer, tenant)
        if act.do == "revoke":
            return await self._revoke(act, tenant)
        return await self._notify(act, tenant)

    async def _disconnect(self, offer: Offer, tenant: str) -> str:
        act = offer.act
        sessions = offer.sessions if act.user is None else await self._sessions(tenant, act.user)
        reason = "disconnected by the operator"
        closed = 0
        for session in sessions:
            closed += await self._desk.node.disconnect(session, Close.DISCONNECTED, reason, tenant)
        return f"{_many(closed, 'session')} disconnected (4503)"

    async def _revoke(self, act: Act, tenant: str) -> str:
        now, revoking = self._desk.clock.now_ms(), self._desk.revoking
        if act.user is not None:
            revocation = Revocation(tenant, "user", act.user, revoking.expires_at(now), now)
        else:
            revocation = Revocation(tenant, "session", act.session or "", revoking.expires_at(now))
        closed = await revoking.revoke(revocation)
        return f"revoked; {_many(closed, 'socket')} closed (4501)"

    async def _notify(self, act: Act, tenant: str) -> str:
        body = msgspec.json.encode({"text": act.text or TEXT})
        notice = Notice(tenant, act.user or "", KIND, body, "", self._desk.clock.now_ms())
        (made,) = await self._desk.notifying.notify([notice])
        return "notified" if made is None else f"notified: number {made.notification.seq} in the inbox"

    async def _sessions(self, tenant: str, user: str) -> tuple[str, ...]:
        return tuple(seat.session for seat in await self._desk.engine.sessions(tenant, user))


def _sentence(act: Act, tenant: str, sessions: int) -> tuple[str, str]:
    """A title that names the action and its target, and what will happen."""
    who = f"{act.user or act.session} ({tenant})"
    if act.do == "notify":
        return f"Notify {who}?", (
            f"A notification of the kind “{KIND}” is written to the inbox of {act.user} and shown on "
            "their devices. It counts as unread until they read it."
        )
    if act.do == "disconnect" and act.user:
        return f"Disconnect {who}?", (
            f"{_many(sessions, 'session')} of {act.user} will be closed with 4503 on every node and ends at once. "
            "Their clients do not come back by themselves; the tokens stay valid."
        )
    if act.do == "disconnect":
        return f"Disconnect session {who}?", (
            "This session will be closed with 4503 and ends at once. Its client does not come back by itself; "
            "its token stays valid."
        )
    if act.user:
        return f"Revoke everything of {who}?", (
            f"All tokens of {act.user} issued until now count no longer. {_many(sessions, 'session')} will be closed "
            "with 4501 on every node. They need a new token from your app to return. This cannot be taken back."
        )
    return f"Revoke session {who}?", (
        "This session will be closed with 4501 and cannot be resumed; its token is revoked with it if it has an id. "
        "This cannot be taken back."
    )


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
