"""Commands about the connection itself: `heartbeat`, `activity`, `token.refresh`, `bye`."""

from __future__ import annotations

import asyncio

from msgspec import structs

from greendot.auth.model import Grants
from greendot.auth.revocation import RevocationService
from greendot.auth.tokens import Tokens
from greendot.clock import Clock
from greendot.errors import KeysUnavailable, Refused, TokenError, UserBanned
from greendot.node.commands import CommandTable, Outcome
from greendot.node.session import Connection, Session
from greendot.presence.sessions import SessionService
from greendot.presence.watch import WatchService
from greendot.protocol import commands as wire
from greendot.protocol.codec import encode_event
from greendot.protocol.codes import Err
from greendot.protocol.events import HeartbeatAck
from greendot.protocol.replies import RefreshReply
from greendot.rooms.service import RoomService


class ConnectionCommands:
    """Handlers of connection commands. `connect.hello` handles `hello`, because no session exists before it."""

    def __init__(
        self,
        tokens: Tokens,
        revocation_service: RevocationService,
        sessions: SessionService,
        rooms: RoomService,
        watching: WatchService,
        clock: Clock,
    ) -> None:
        self._tokens = tokens
        self._revocation_service = revocation_service
        self._sessions = sessions
        self._rooms = rooms
        self._watching = watching
        self._clock = clock
        self.commands: CommandTable = {
            wire.Heartbeat: self._heartbeat,
            wire.Activity: lambda connection, session, command: None,  # counted by `dispatch`
            wire.TokenRefresh: self._refresh_token,
            wire.Bye: lambda connection, session, command: connection.bye_received(),
        }

    def _heartbeat(self, connection: Connection, session: Session, command: wire.Heartbeat) -> None:
        frame = encode_event(HeartbeatAck(), self._clock.now_ms())
        connection.send(frame, key="heartbeat", record=False)

    async def _refresh_token(self, connection: Connection, session: Session, command: wire.TokenRefresh) -> Outcome:
        """Replace the session's token. Rights that the new token does not contain end at once."""
        try:
            grants = await self._tokens.verify(command.token, self._clock.now_ms())
            await self._revocation_service.admit(grants)
        except UserBanned as error:
            raise Refused(Err.BANNED, str(error), retry_in_ms=error.retry_in_ms) from None
        except TokenError as error:
            raise Refused(Err.BAD_FIELD, f"field `token` of token.refresh: {error}") from None
        except KeysUnavailable as error:
            raise Refused(Err.UNAVAILABLE, str(error), retry_in_ms=error.retry_in_ms) from None
        if (grants.tenant, grants.user) != session.key:
            raise Refused(
                Err.BAD_FIELD,
                "field `token` of token.refresh: the token is for another user; send a token of this user",
            )
        before = session.grants
        applied = await self._replace(connection, session, grants)
        self._revocation_service.recheck(session)  # the new token may have been revoked since it was verified
        if session.grants is applied and session.connection is connection:
            await self._sessions.renew(session, before)
        return RefreshReply(grants.expires_at)

    async def _replace(self, connection: Connection, session: Session, grants: Grants) -> Grants | None:
        """Apply `grants` from now on; return them with the rooms that a foreign protocol grants. None: not applied.

        On StoreUnavailable nothing has changed, and the old token stays valid until its end.
        """
        lost = await self._lost(connection, session, grants)
        await self._watching.keep_granted(connection, session, grants)
        if connection.closing or session.connection is not connection:
            return None
        # No await below: nothing may be delivered or sent partly by one token and partly by the other.
        if connection.granted_rooms:  # read here, because a foreign protocol may have ended or added some meanwhile
            grants = structs.replace(grants, rooms=(*grants.rooms, *connection.granted_rooms))
        session.grants = grants
        self._sessions.deadlines.rearm(session)
        if not grants.send:
            self._rooms.hush(connection)
        lost = [room for room in lost if not grants.may_join(room)]
        self._rooms.removal.lose(connection, lost, "the new token does not grant this room")
        return grants

    async def _lost(self, connection: Connection, session: Session, grants: Grants) -> list[str]:
        """Return the rooms that only the old token opened. Members of a room keep it."""
        opened = [room for room in connection.rooms or () if session.grants.may_join(room)]
        doubtful = [room for room in opened if not grants.may_join(room)]
        stays = await asyncio.gather(*(self._rooms.membership.admits(grants, room) for room in doubtful))
        return [room for room, stay in zip(doubtful, stays, strict=True) if not stay]
