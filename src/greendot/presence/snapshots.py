"""Presence as readers get it: the engine's, or what this node knows while lost records are being restored."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from greendot.engine.port import Engine, Topic
from greendot.node.time_slices import STEP
from greendot.presence.model import Snapshot
from greendot.presence.status import Statuses
from greendot.presence.watched_user import Watched


class Snapshots:
    """Reads users. `watched` gives what the node keeps of a user with local watchers."""

    def __init__(self, engine: Engine, statuses: Statuses, watched: Callable[[Topic], Watched | None]) -> None:
        self._engine = engine
        self._statuses = statuses
        self._watched = watched

    async def read(self, tenant: str, users: Sequence[str]) -> list[Snapshot]:
        """Return a snapshot per user, in order. A stale one shows what was known here before, or local sessions."""
        found = await self._engine.read(tenant, users)
        if not any(snapshot.stale for snapshot in found):
            return found
        return [
            self._known_here(tenant, user, snapshot) if snapshot.stale else snapshot
            for user, snapshot in zip(users, found, strict=True)
        ]

    def order(self, tenant: str, users: Sequence[str]) -> Sequence[int]:
        """Return positions of users in the order in which to read them in slices; see `PresenceEngine.order`."""
        return self._engine.order(tenant, users) if len(users) > STEP else range(len(users))

    def is_restoring(self, tenant: str, user: str) -> bool:
        """Whether a snapshot of this user would be stale."""
        return self._engine.is_restoring(tenant, user)

    def _known_here(self, tenant: str, user: str, snapshot: Snapshot) -> Snapshot:
        watched = self._watched(Topic("watch", tenant, user))
        if watched is not None and watched.opening is None and not watched.stale:
            return Snapshot(watched.face, watched.own, watched.name, watched.devices, stale=True)
        return self._statuses.with_sessions((tenant, user), snapshot)
