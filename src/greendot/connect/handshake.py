"""Hello: from an unknown socket to a session that others can see."""

from __future__ import annotations

import asyncio
import random

from msgspec import structs

from greendot.auth.model import Grants
from greendot.auth.revocation import RevocationService
from greendot.auth.tenants import Tenants
from greendot.auth.tokens import Tokens
from greendot.errors import (
    EngineUnavailable,
    KeysUnavailable,
    Refused,
    StoreUnavailable,
    TokenError,
    TokenRevoked,
    Unreadable,
)
from greendot.inbox.delivery import InboxCatchUp, InboxDelivery
from greendot.limits.connection_limits import ConnectionLimits, TooManyConnections
from greendot.limits.rate_limits import RateLimits
from greendot.node.channel import MISSED, RoomKey
from greendot.node.context import NodeContext
from greendot.node.session import Session
from greendot.presence.sessions import SessionService
from greendot.protocol.codec import encode_event
from greendot.protocol.codes import Close
from greendot.protocol.commands import Hello
from greendot.protocol.events import Event, Overloaded, RoomState, TypingCount, TypingStarted, Welcome
from greendot.protocol.replies import JoinReply
from greendot.protocol.versions import Dialects
from greendot.rooms.local_room import RECOVER_BYTES
from greendot.rooms.service import RoomService
from greendot.telemetry import log_events
from greendot.telemetry.log import log
from greendot.transport.connection import Connection

AT_ONCE = 50  # rooms
CROWDED_MS = 30_000  # at most so long to stay away where there are too many already
RETRY_MS = 5_000  # when to try again what the engine or the store could not do


class Handshake:
    """Nothing is registered before the token is verified; the user id comes from the token only."""

    def __init__(
        self,
        sessions: SessionService,
        rooms: RoomService,
        inboxes: InboxDelivery,
        context: NodeContext,
        tokens: Tokens,
        tenants: Tenants,
        revocation_service: RevocationService,
        rate_limits: RateLimits,
        connection_limits: ConnectionLimits,
        heartbeat_s: float,
    ) -> None:
        self._sessions = sessions
        self._rooms = rooms
        self._inboxes = inboxes
        self._tokens = tokens
        self._tenants = tenants
        self._revocation_service = revocation_service
        self._registry = context.registry
        self._clock = context.clock
        self._surge = context.surge
        self._recorder = context.recorder
        self._rate_limits = rate_limits
        self._connection_limits = connection_limits
        self._heartbeat_s = heartbeat_s
        self._dialects = Dialects()

    def user_of(self, hello: Hello) -> tuple[str, str] | None:
        """Tenant and user of its token; None if that is not one we accept."""
        try:
            grants = self._tokens.read(hello.token, self._clock.now_ms())
            self._revocation_service.check(grants)
        except TokenError:
            return None
        return grants.tenant, grants.user

    async def hello(self, connection: Connection, hello: Hello) -> bool:
        """Whether it was welcomed; if not, the connection is closed with the reason."""
        try:
            grants = await self._tokens.verify(hello.token, self._clock.now_ms())
            await self._revocation_service.admit(grants, hello.resume.session if hello.resume else None)
        except KeysUnavailable as error:
            self._try_again(connection, error.retry_in_ms)
            return False
        except TokenError as error:
            self._turn_away(connection, error)
            return False
        try:
            connection.dialect = self._dialects.of(hello.supports)
        except Unreadable as error:
            connection.close(Close.VERSION, str(error))
            return False
        if connection.closing:  # while its key, or whether it was revoked, was looked up
            return False
        with self._surge.one():
            return await self._greet(connection, grants, hello)

    @staticmethod
    def _turn_away(connection: Connection, error: TokenError) -> None:
        code = Close.TOKEN_EXPIRED if error.expired else Close.BAD_TOKEN
        if isinstance(error, TokenRevoked):
            code = Close.REVOKED
        log(log_events.HELLO_REFUSED, reason=error, code=int(code))
        # A reason is at most 123 bytes (RFC 6455 5.5).
        connection.close(code, str(error).encode()[:123].decode(errors="ignore"))

    def _try_again(self, connection: Connection, in_ms: int, why: str = "try again in a moment") -> None:
        last = encode_event(Overloaded(in_ms), self._clock.now_ms())
        connection.close(Close.OVERLOADED, why, last)

    async def _greet(self, connection: Connection, grants: Grants, hello: Hello) -> bool:
        connection.hold()
        try:
            await self._tenants.admit(grants.tenant)
            with self._connection_limits.entering(connection, grants, hello):
                opened = await self._sessions.open(connection, grants, hello)
            session = opened.session
            self._revocation_service.check(grants, session.id)  # from here on it is found when something is revoked
            self._registry.greeted(connection, session, opened.resumed)
            self._rate_limits.greeted(connection, session)
            inbox = self._inboxes.ask(session)  # it is read while the rest is under way
            await self._sessions.show(opened, connection)
            joined = await self._rejoin(connection, session, hello)
            self._rooms.returned(connection, session)
            after = hello.resume.inbox if hello.resume else None
            arrival = await self._inboxes.attach(connection, session, inbox, after)
        except TokenError as error:
            self._turn_away(connection, error)
            return False
        except (EngineUnavailable, StoreUnavailable):
            self._try_again(connection, RETRY_MS)
            return False
        except TooManyConnections as error:
            # Another may go meanwhile; those who wait for that must not come all at once.
            self._try_again(connection, random.randint(CROWDED_MS // 2, CROWDED_MS), str(error))
            return False
        except Exception:
            connection.close(Close.INTERNAL, "this failed on the server; it was logged")
            raise
        # A room may be lost again by now.
        joined = [reply for reply in joined if connection.rooms is not None and reply.room in connection.rooms]
        self._recorder.came(session, opened.resumed)
        connection.release(self._welcome(session, opened.resumed, joined, arrival))
        return True

    async def _rejoin(self, connection: Connection, session: Session, hello: Hello) -> list[JoinReply]:
        """Back into the rooms the client was in, each authorised again; one it lost is left out."""
        joined: list[JoinReply] = []
        if hello.resume is None:
            return joined
        most = RECOVER_BYTES  # for all rooms together
        # Nobody was in more than the limit: names beyond it would be looked up for nothing.
        named = [*hello.resume.rooms.items()][: self._rate_limits.shown(session.tenant).rooms]
        # Many at a time, so that what is read for one of them is read for all.
        for at in range(0, len(named), AT_ONCE):
            if connection.closing:
                break
            work = (self._rooms.rejoin(connection, session, *room, most) for room in named[at : at + AT_ONCE])
            for reply in await asyncio.gather(*work, return_exceptions=True):
                if isinstance(reply, JoinReply):
                    size = sum(len(bytes(message.body)) for message in reply.messages)
                    joined.append(reply if size <= most else _truncated(reply))
                    most -= size if size <= most else 0
                elif not isinstance(reply, Refused):
                    raise reply
        return joined

    def _welcome(
        self, session: Session, resumed: bool, joined: list[JoinReply], arrival: InboxCatchUp
    ) -> list[tuple[bytes, object]]:
        """The welcome, then what the client missed. What is of a room can be taken back as long as it waits."""
        now = self._clock.now_ms()
        welcome = Welcome(
            session=session.id,
            user=session.user,
            tenant=session.tenant,
            node=self._sessions.incarnation,
            resumed=resumed,
            heartbeat_s=self._heartbeat_s,
            server_time=now,
            unread=arrival.unread,
            limits=self._rate_limits.shown(session.tenant),
            rooms={reply.room: RoomState(reply.head, reply.recovered, reply.truncated) for reply in joined},
            typing=self._rooms.typing,
        )
        frames: list[tuple[bytes, object]] = [(encode_event(welcome, now), None)]
        for reply in joined:
            events: list[Event] = [*reply.messages]
            events += [TypingStarted(reply.room, t.user, t.name, t.expires_in_ms) for t in reply.typing]
            if reply.typing_count > len(reply.typing):
                events.append(TypingCount(reply.room, reply.typing_count, self._rooms.typing.hold_ms))
            key = RoomKey(reply.room, MISSED)
            frames += [(encode_event(event, now), key) for event in events]
        return frames + [(encode_event(event, now), None) for event in arrival.events]


def _truncated(reply: JoinReply) -> JoinReply:
    """Without what was missed: the client fetches it."""
    return structs.replace(reply, messages=[], recovered=False, truncated=True)
