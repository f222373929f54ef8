"""A session's token is replaced by another, which may grant less: what it no longer grants ends at once."""

from __future__ import annotations

import asyncio

from greendot.auth.model import Grants
from greendot.node.session import Session
from greendot.presence.sessions import SessionService
from greendot.presence.watch import WatchService
from greendot.rooms.service import RoomService
from greendot.transport.connection import Connection


class TokenRefreshService:
    """One for each node."""

    def __init__(self, sessions: SessionService, rooms: RoomService, watching: WatchService) -> None:
        self._sessions = sessions
        self._rooms = rooms
        self._watching = watching

    async def replace(self, connection: Connection, session: Session, grants: Grants) -> None:
        """From now on `grants` count. StoreUnavailable: nothing has changed, and the old token holds until its end."""
        lost = await self._lost(connection, session, grants)
        await self._watching.keep_granted(connection, session, grants)
        if connection.closing or session.connection is not connection:
            return
        # No await below: nothing is to be heard, or said, by one token and then by the other.
        session.grants = grants
        self._sessions.rearm(session)
        if not grants.send:
            self._rooms.hush(connection)
        self._rooms.lose(connection, lost, "the new token does not open it")

    async def _lost(self, connection: Connection, session: Session, grants: Grants) -> list[str]:
        """The rooms only the old token opened. Who is a member stays one."""
        opened = [room for room in connection.rooms or () if session.grants.may_join(room)]
        doubtful = [room for room in opened if not grants.may_join(room)]
        stays = await asyncio.gather(*(self._rooms.membership.admits(grants, room) for room in doubtful))
        return [room for room, stay in zip(doubtful, stays, strict=True) if not stay]
