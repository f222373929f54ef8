"""Mutes and bans of users by the app, in a room or in the whole tenant.

The store refuses the messages of a muted or banned user. Nodes receive a restriction in a room like a changed member,
and a restriction in the tenant like a revocation. A ban is answered after the nodes of the user have confirmed it.
"""

from __future__ import annotations

from greendot.auth.revocation import RevocationService
from greendot.engine.messages import MemberRemoved, MembersChanged, Topic
from greendot.engine.port import Engine
from greendot.node.cluster_rpc import ClusterRpc
from greendot.node.needed_nodes import nodes_of_user
from greendot.rooms.members import BANNED
from greendot.store.audit import AuditNote
from greendot.store.port import Store
from greendot.store.restrictions import EVERYWHERE, Restriction, RestrictionKind, RestrictionWritten
from greendot.telemetry.metrics import Metrics


class RestrictionService:
    """Service for mutes and bans. A call that fails with EngineUnavailable is repeated by the caller."""

    def __init__(
        self,
        engine: Engine,
        store: Store,
        revocations: RevocationService,
        rpc: ClusterRpc,
        metrics: Metrics,
    ) -> None:
        self._engine = engine
        self._store = store
        self._revocations = revocations
        self._rpc = rpc
        self._metrics = metrics

    async def restrict(self, restriction: Restriction, note: AuditNote) -> bool:
        """Mute or ban a user; return False if there is no such room.

        After the return, no message of the user is committed that the restriction forbids, and no node delivers frames
        of the room to a banned user.
        """
        tenant, room, user, kind, *_ = restriction
        written = await self._store.restrict(restriction, note)
        if written is None:
            return False
        await self._publish(tenant, room, user, written)
        if room == EVERYWHERE:
            return True
        if kind == "mute":
            self._engine.typing_stop(tenant, room, user)
        else:
            nodes = await nodes_of_user(self._engine, tenant, user)
            await self._rpc.call(nodes, lambda asker, number: MemberRemoved(tenant, room, user, BANNED, asker, number))
        return True

    async def lift(self, tenant: str, room: str, user: str, kind: RestrictionKind, note: AuditNote) -> bool:
        """End a restriction; return False if there is no such room."""
        written = await self._store.lift(tenant, room, user, kind, note)
        if written is None:
            return False
        await self._publish(tenant, room, user, written)
        return True

    async def _publish(self, tenant: str, room: str, user: str, written: RestrictionWritten) -> None:
        """Publish a restriction to the nodes, also if an earlier request has written it."""
        self._metrics.room_moderations_total += written.changed
        if room != EVERYWHERE:
            change = MembersChanged(written.members_rev, user if written.changed else "")
            self._engine.publish(Topic("room", tenant, room), change)
        elif written.entry is not None:
            await self._revocations.publish(written.entry)
