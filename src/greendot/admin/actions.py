"""Actions of the dashboard: each is described, done after a confirmation, and logged.

The server, not the page, describes an action from the current state. The confirmation names the action by a number. So
no single frame runs an action, and the confirmed action is the one that runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from greendot.admin.access import DashboardServices, Viewer
from greendot.admin.frames import Act
from greendot.admin.moderation import ModerationActions, moderation_of
from greendot.auth.model import Revocation
from greendot.engine.results import NodeInfo
from greendot.errors import Refused
from greendot.ids import Id
from greendot.protocol.cluster import DisconnectAll, NodeQuery, read_ended, read_node
from greendot.protocol.codes import Err, invites_return
from greendot.store.inbox import Notice
from greendot.telemetry import log_events
from greendot.telemetry.log import log

WITHIN_S = 2.0  # time for a node to answer
HOLDS_S = 60.0  # lifetime of an offer that is not confirmed
KIND = "test"  # kind of a test notification
TEXT = "A test notification from the dashboard."


class Offer(NamedTuple):
    """Action that waits for its confirmation."""

    act: Act
    tenant: str
    sessions: tuple[str, ...]  # the user's sessions at the time of the offer
    all_of: str | None  # tenant whose sessions on the node are closed; None: all tenants
    ends_at: float  # monotonic seconds


class Actions:
    """Offers to one viewer. Only the latest can be confirmed."""

    def __init__(self, services: DashboardServices) -> None:
        self._services = services
        self._moderation = ModerationActions(services)
        self._numbers = 0
        self._offer: Offer | None = None

    async def offer(self, viewer: Viewer, act: Act, nodes: Sequence[NodeInfo]) -> dict[str, Any]:
        """Return the description of an action, with the number to confirm."""
        tenant = viewer.at(act.tenant)
        if (moderation := moderation_of(act)) is not None:
            sessions = await self._sessions(tenant, act.user) if act.user is not None else ()
            title, says = await self._moderation.sentence(act, moderation, tenant, len(sessions))
            return self._offered(Offer(act, tenant, sessions, tenant, self._end()), title, says, len(sessions))
        if [act.user, act.session, act.node].count(None) != 2:
            raise Refused(Err.BAD_FIELD, "field `user` of act: give exactly one of `user`, `session` and `node`")
        if act.do == "notify" and act.user is None:
            raise Refused(Err.BAD_FIELD, "field `user` of act: a notification needs a `user`")
        if act.node is not None and act.do != "disconnect":
            raise Refused(Err.BAD_FIELD, "field `node` of act: the only action on a node is disconnect")
        sessions = (act.session or "",)
        count = 1
        all_of = None if viewer.every and act.tenant is None else tenant
        if act.node is not None:
            count = await self._held(viewer, act.node, all_of, nodes)
        elif act.user is not None:
            sessions = await self._sessions(tenant, act.user)
            count = len(sessions)
        title, says = _sentence(act, f" of tenant {all_of}" if all_of else "", tenant, count)
        return self._offered(Offer(act, tenant, sessions, all_of, self._end()), title, says, count)

    def _end(self) -> float:
        return self._services.clock.monotonic() + HOLDS_S

    def _offered(self, offer: Offer, title: str, says: str, count: int) -> dict[str, Any]:
        self._numbers += 1
        self._offer = offer
        return {"number": self._numbers, "title": title, "says": says, "do": offer.act.do, "count": count}

    async def _held(self, viewer: Viewer, node: str, tenant: str | None, nodes: Sequence[NodeInfo]) -> int:
        """Return the number of connections on the node, of the tenant or of all. Raise Refused if it is not known."""
        if not viewer.nodes:
            raise Refused(Err.FORBIDDEN, "this key is for a tenant; use the server's own key to act on nodes")
        if not any(it.node == node and it.state == "live" for it in nodes):
            raise Refused(Err.BAD_FIELD, f"there is no live node {node!r}; list the nodes with `greendot nodes`")
        answer = await self._services.cluster.ask_one(node, NodeQuery(tenant), WITHIN_S)
        if answer is None:
            raise Refused(Err.UNAVAILABLE, f"node {node} does not answer; retry later")
        there = read_node(answer)
        return there.connections - there.strangers if tenant is None else there.theirs

    async def confirm(self, viewer: Viewer, number: int) -> dict[str, Any]:
        """Do the confirmed action, log it, and return what was done."""
        offer, self._offer = self._offer, None
        if offer is None or number != self._numbers or self._services.clock.monotonic() > offer.ends_at:
            raise Refused(
                Err.BAD_FIELD, "the action was not requested or its confirmation has expired; request the action again"
            )
        tenant = viewer.at(offer.tenant)
        done, count = await self._do(offer, tenant, viewer.name)
        act = offer.act
        target = act.user or act.session or act.node or act.room or ""
        kind = "user" if act.user else "session" if act.session else "node" if act.node else "room"
        log(
            log_events.AUDIT_ACTED,
            key=viewer.name,
            act=offer.act.do,
            kind=kind,
            target=Id(target),
            tenant="*" if act.node and offer.all_of is None else tenant,  # on a node: all tenants
            outcome=done,
        )
        return {"done": done, "count": count}

    async def _do(self, offer: Offer, tenant: str, key: str) -> tuple[str, int]:
        """Do the action; return a description and the number of sessions concerned."""
        act = offer.act
        if (moderation := moderation_of(act)) is not None:
            return await self._moderation.perform(act, moderation, tenant, key), len(offer.sessions)
        if act.do == "disconnect":
            return await self._disconnect(offer, tenant)
        if act.do == "revoke":
            return await self._revoke(act, tenant)
        return await self._notify(act, tenant), 1

    async def _disconnect(self, offer: Offer, tenant: str) -> tuple[str, int]:
        act = offer.act
        if act.node is not None:
            end = DisconnectAll(act.code, act.reason, offer.all_of)
            if (answer := await self._services.cluster.ask_one(act.node, end, WITHIN_S)) is None:
                raise Refused(
                    Err.UNAVAILABLE,
                    f"node {act.node} did not confirm; some sessions may be closed. Check the node and retry",
                )
            closed = read_ended(answer).sessions
        else:
            sessions = offer.sessions if act.user is None else await self._sessions(tenant, act.user)
            closed = await self._services.node.disconnect_all(sessions, act.code, act.reason, tenant)
        return f"{_many(closed, 'session')} disconnected ({act.code})", closed

    async def _revoke(self, act: Act, tenant: str) -> tuple[str, int]:
        now, revocation_service = self._services.clock.now_ms(), self._services.revocation_service
        if act.user is not None:
            revocation = Revocation(tenant, "user", act.user, revocation_service.expires_at(now), now)
        else:
            revocation = Revocation(tenant, "session", act.session or "", revocation_service.expires_at(now))
        closed = await revocation_service.revoke(revocation)
        return f"revoked; {_many(closed, 'socket')} closed (4501)", closed

    async def _notify(self, act: Act, tenant: str) -> str:
        body = msgspec.json.encode({"text": act.text or TEXT})
        notice = Notice(tenant, act.user or "", KIND, body, "", self._services.clock.now_ms())
        (made,) = await self._services.inbox_service.notify([notice])
        return "notification sent" if made is None else f"notification {made.notification.seq} added to the inbox"

    async def _sessions(self, tenant: str, user: str) -> tuple[str, ...]:
        return tuple(entry.session for entry in await self._services.engine.sessions(tenant, user))


def _sentence(act: Act, all_of: str, tenant: str, sessions: int) -> tuple[str, str]:
    """Return a title that names the action and its target, and a description of the effect."""
    if act.do == "disconnect":
        return _disconnecting(act, all_of, tenant, sessions)
    who = f"{act.user or act.session} ({tenant})"
    if act.do == "notify":
        return f"Send a test notification to {who}?", (
            f"The inbox of {act.user} gets a notification of the kind “{KIND}”, shown on all devices of the user. "
            "It is unread until the user reads it."
        )
    if act.user:
        return f"Revoke all tokens of {who}?", (
            f"All tokens of {act.user} issued until now become invalid. {_many(sessions, 'session')} will be closed "
            "with 4501 on every node. To return, the user needs a new token from your app. You cannot undo this."
        )
    return f"Revoke session {who}?", (
        "This session will be closed with 4501 and cannot be resumed. Its token is revoked too, if it has an id. "
        "You cannot undo this."
    )


_STAY_AWAY = "Their clients do not reconnect automatically."


def _disconnecting(act: Act, all_of: str, tenant: str, sessions: int) -> tuple[str, str]:
    back = invites_return(act.code)
    if act.node:
        after = "Their clients reconnect, to other nodes if possible." if back else _STAY_AWAY
        return f"Disconnect all sessions on node {act.node}{all_of}?", (
            f"{_many(sessions, 'session')} on node {act.node}{all_of} will be closed with {act.code}. {after} "
            "Their tokens stay valid."
        )
    if act.user:
        after = "Their clients reconnect automatically." if back else _STAY_AWAY
        return f"Disconnect {act.user} ({tenant})?", (
            f"{_many(sessions, 'session')} of {act.user} will be closed with {act.code} on every node"
            f"{'' if back else ' and end at once' if sessions > 1 else ' and ends at once'}. {after} "
            "The tokens stay valid."
        )
    after = "Its client reconnects automatically." if back else "Its client does not reconnect automatically."
    return f"Disconnect session {act.session} ({tenant})?", (
        f"This session will be closed with {act.code}{'' if back else ' and ends at once'}. {after} "
        "Its token stays valid."
    )


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
