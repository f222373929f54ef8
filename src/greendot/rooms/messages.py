"""Messages of rooms: sending, edits, deletions, history; rooms and members as the app changes them.

A message is written to the store first, then published. A user who may be in a room may send to the room, unless the
user is only a reader.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec
from msgspec import structs

from greendot.engine.messages import Deliver, MemberRemoved, MembersChanged, Topic
from greendot.engine.port import Engine
from greendot.errors import (
    NoSuchMessage,
    Refused,
    Restricted,
    RoomArchived,
    SlowMode,
    StaleMembers,
    StoreUnavailable,
)
from greendot.ids import new_message_id
from greendot.limits.rate_limits import RateLimits
from greendot.node.cluster_rpc import ClusterRpc
from greendot.node.context import NodeContext
from greendot.node.needed_nodes import nodes_of_user
from greendot.node.session import Connection, Session
from greendot.presence.profile_model import Profile
from greendot.presence.profiles import ProfileService
from greendot.protocol.codec import encode_event
from greendot.protocol.codes import Err
from greendot.protocol.commands import RoomDelete, RoomEdit, RoomHistory, RoomReact, RoomSend
from greendot.protocol.replies import HistoryReply, SendReply
from greendot.rooms.before_publish import BeforePublish, PublishQuestion
from greendot.rooms.members import REMOVED, RoomAccess, archived, muted, reader_only, time_left
from greendot.rooms.reactions_model import REACTING
from greendot.rooms.service import RoomService
from greendot.store.pages import RoomPage
from greendot.store.port import Store
from greendot.store.rooms import BusMode, Draft, MembersWritten, Op, Record, Role, Room, Written
from greendot.store.wire import message_event, message_page, with_reactions
from greendot.telemetry import log_events
from greendot.telemetry.log import log
from greendot.telemetry.spans import parent, span

NOTHING = b"null"  # body of a deletion
ATTEMPTS = 10  # writes of one message while the members of its room change


class RoomMessages:
    """Service for commands and requests that change a room or read its messages."""

    def __init__(
        self,
        engine: Engine,
        store: Store,
        rooms: RoomService,
        context: NodeContext,
        rpc: ClusterRpc,
        rate_limits: RateLimits,
        profiles: ProfileService,
        members_changed: Callable[[str, str], Awaitable[None]],  # called with the tenant and user of a changed member
        before_publish: BeforePublish,
    ) -> None:
        self._engine = engine
        self._store = store
        self._rooms = rooms
        self._context = context
        self._rpc = rpc
        self._rate_limits = rate_limits
        self._profiles = profiles
        self._members_changed = members_changed
        self._before_publish = before_publish

    # --- permission ---

    async def speaker(self, connection: Connection, session: Session, room: str, *, fresh: bool = False) -> RoomAccess:
        """Return the access of a session that may send to the room; raise Refused otherwise.

        A session may send if its connection has joined the room, its user is a member, or its token grants the room. A
        reader may not send.
        """
        admitted = await self._rooms.membership.admit(session, room, make=True, fresh=fresh)
        if admitted.muted and not fresh:  # a refusal comes from the store: the mute may have been lifted a moment ago
            admitted = await self._rooms.membership.admit(session, room, make=True, fresh=True)
        joined = connection.rooms is not None and room in connection.rooms
        if not joined and admitted.role is None and not session.grants.may_join(room):
            raise Refused(Err.NOT_A_MEMBER, f"this connection has not joined room {room!r}; join the room first")
        if admitted.role == "reader":
            raise reader_only(room)
        if admitted.room.archived:
            raise archived(room)
        self._rooms.mutes.check(session, room, admitted.muted)
        return admitted

    # --- messages ---

    async def send(self, connection: Connection, session: Session, command: RoomSend) -> SendReply:
        admitted = await self.speaker(connection, session, command.room)
        self._rate_limits.send(connection, session, command.room)
        # A message ends the user's typing: the `typing.stop` of the client may never arrive.
        self._rooms.stop_typing(session, command.room)

        async def admit() -> RoomAccess:
            return await self.speaker(connection, session, command.room, fresh=True)

        body = bytes(command.body)
        if self._before_publish.asks(session.tenant):
            approved = await self._approved(session, command, "send")
            if isinstance(approved, SendReply):
                return approved
            body, admitted = approved, await self.speaker(connection, session, command.room)
        draft = structs.replace(self._draft(session, command, body), paced=admitted.role != "admin")
        return await self._append(session, command, draft, admitted, admit)

    async def change(self, connection: Connection, session: Session, command: RoomEdit | RoomDelete) -> SendReply:
        """Edit or delete a message."""
        await self.speaker(connection, session, command.room)
        self._rate_limits.send(connection, session, command.room)
        original = await self._store.message(session.tenant, command.room, command.ref)
        if original is None or original.op is not None:
            raise _no_message(command.room, command.ref)
        author = original.user

        async def admit(*, fresh: bool = True) -> RoomAccess:
            admitted = await self.speaker(connection, session, command.room, fresh=fresh)
            if author != session.user and admitted.role != "admin":
                raise Refused(
                    Err.FORBIDDEN, "only the author of a message or an admin of the room may change the message"
                )
            return admitted

        admitted = await admit(fresh=False)
        if isinstance(command, RoomDelete):
            draft = self._draft(session, command, NOTHING, command.ref, "delete")
            return await self._append(session, command, draft, admitted, admit)
        body = bytes(command.body)
        if self._before_publish.asks(session.tenant):
            approved = await self._approved(session, command, "edit")
            if isinstance(approved, SendReply):
                return approved
            body, admitted = approved, await admit(fresh=False)
        draft = self._draft(session, command, body, command.ref, "edit")
        return await self._append(session, command, draft, admitted, admit)

    async def _approved(
        self, session: Session, command: RoomSend | RoomEdit, op: Literal["send", "edit"]
    ) -> bytes | SendReply:
        """Return the body that the app approves, or the reply to an earlier command with the same key.

        The caller admits the session again, because its rights may have ended meanwhile.
        """
        if (earlier := await self._earlier(session, command)) is not None:
            return earlier
        ref = command.ref if isinstance(command, RoomEdit) else None
        name = self._profiles.name_of(session)
        question = PublishQuestion(session.tenant, command.room, session.user, op, command.body, name, ref, command.key)
        try:
            return await self._before_publish.approve(question)
        except Refused:
            # The same command may have been approved meanwhile, on another connection.
            if (earlier := await self._earlier(session, command)) is not None:
                return earlier
            raise

    async def _earlier(self, session: Session, command: RoomSend | RoomEdit) -> SendReply | None:
        if command.key is None:
            return None
        record = await self._store.message_by_key(session.tenant, command.room, session.user, command.key)
        return None if record is None else SendReply(record.id, record.seq)

    async def react(self, connection: Connection, session: Session, command: RoomReact) -> SendReply:
        """Set or remove a reaction; write nothing if the reaction is as wanted already."""
        admitted = await self.speaker(connection, session, command.room)
        self._rate_limits.send(connection, session, command.room)

        async def admit() -> RoomAccess:
            return await self.speaker(connection, session, command.room, fresh=True)

        op: Op = "react" if command.on else "unreact"
        draft = self._draft(session, command, reaction_body(command.reaction), command.ref, op)
        draft = structs.replace(draft, reaction=command.reaction)
        return await self._append(session, command, draft, admitted, admit)

    def _draft(
        self,
        session: Session,
        command: RoomSend | RoomEdit | RoomDelete | RoomReact,
        body: bytes,
        ref: int | None = None,
        op: Op | None = None,
    ) -> Draft:
        key, now = command.key or new_message_id(), self._context.clock.now_ms()
        return Draft(session.user, self._profiles.name_of(session), body, key, now, ref, op)

    async def _append(
        self,
        session: Session,
        command: RoomSend | RoomEdit | RoomDelete | RoomReact,
        draft: Draft,
        admitted: RoomAccess,
        admit: Callable[[], Awaitable[RoomAccess]],
    ) -> SendReply:
        """Write the draft under `admitted`. If the members have changed meanwhile, call `admit` and write again."""
        for _ in range(ATTEMPTS):
            if session.revoked:  # during the read of the access
                raise Refused(Err.FORBIDDEN, "this session was revoked; connect with a new token")
            draft = structs.replace(draft, members_rev=admitted.room.members_rev)
            try:
                record = await self.append(session.tenant, command.room, draft, command.trace)
            except StaleMembers:
                admitted = await admit()
            except NoSuchMessage:
                raise _no_message(command.room, draft.ref) from None
            else:
                return SendReply(record.id, record.seq)
        raise Refused(
            Err.UNAVAILABLE,
            f"the members of room {command.room!r} keep changing; send the command again",
            retry_in_ms=1_000,
        )

    async def append(
        self, tenant: str, room: str, draft: Draft, trace: str | None = None, without_connection: str | None = None
    ) -> Record:
        """Write a message, then publish it; raise Refused if the room does not exist or is archived.

        A message whose key was written before is not published again. A node that missed the message fills the gap.
        `without_connection` is the id of a connection of a foreign protocol, which does not get the message.
        """
        traceparent = parent()
        try:
            if traceparent is None:
                written = await self._store.append(tenant, room, draft)
            else:
                with span("store.commit", channel="room"):
                    written = await self._store.append(tenant, room, structs.replace(draft, traceparent=traceparent))
        except RoomArchived:
            raise archived(room) from None
        except Restricted as error:
            if error.kind == "mute":
                raise muted("everywhere", error.until, draft.at) from None
            left = time_left(error.until, draft.at)
            raise Refused(Err.BANNED, "the app has banned this user", retry_in_ms=left) from None
        except SlowMode as error:
            raise Refused(
                Err.SLOW_MODE, f"room {room!r} is in slow mode; wait before the next message", retry_in_ms=error.wait_ms
            ) from None
        if written is None:
            raise Refused(Err.NO_SUCH_ROOM, f"there is no room {room!r}")
        if written.new:
            await self.publish(tenant, written, trace, traceparent, without_connection)
        return written.record

    async def publish(
        self,
        tenant: str,
        written: Written,
        trace: str | None,
        traceparent: str | None,
        without_connection: str | None = None,
    ) -> None:
        """Publish a new record to the listeners of its room, on all nodes."""
        record, frame = written.record, b""
        if written.bus != "hint":
            is_ready = self._profiles.is_ready(tenant, record.user)
            profile = self._profiles.of(tenant, record.user) if is_ready else await self._author(tenant, record.user)
            frame = encode_event(message_event(record, profile), record.at, trace, traceparent)
        told = Deliver(
            frame,
            seq=record.seq,
            without_connection=without_connection,
            members_rev=written.members_rev,
            traceparent=traceparent,
        )
        if traceparent is None:
            self._engine.publish(Topic("room", tenant, record.room), told)
        else:
            self._publish_traced(Topic("room", tenant, record.room), told, record.id)
        self._context.recorder.message(tenant, record)
        if record.op in REACTING:
            self._rooms.reactions[record.op] += 1

    async def _author(self, tenant: str, user: str) -> Profile:
        """Read the profile of the author of a written message, which is published in any case."""
        try:
            await self._profiles.learn(tenant, [user])
        except StoreUnavailable:
            pass
        return self._profiles.of(tenant, user)

    def _publish_traced(self, topic: Topic, told: Deliver, message: str) -> None:
        with span("bus.publish", kind=topic.kind):
            log(log_events.RECORD_WRITTEN, message=message, tenant=topic.tenant, channel=topic.name)
            self._engine.publish(topic, told)

    async def history(self, session: Session, command: RoomHistory) -> HistoryReply:
        if command.before is not None and command.after is not None:
            raise Refused(Err.BAD_FIELD, "field `before` of room.history: give at most one of `before` and `after`")

        async def read() -> tuple[RoomPage | None, dict[str, Profile]]:
            page = await self._store.room_page(
                session.tenant,
                command.room,
                after=command.after,
                before=command.before,
                limit=command.limit,
                reader=session.user,
            )
            authors = {record.user for record in page.messages} if page is not None else set[str]()
            return page, await self._profiles.learnt(session.tenant, authors)

        page, profiles = await self._rooms.membership.throughout(session, command.room, read)
        if page is None:
            return HistoryReply([])
        messages = message_page(page.messages, profiles, newest=command.after is None)
        return HistoryReply(with_reactions(messages, page))

    # --- changes by the app ---

    async def put_room(
        self, tenant: str, room: str, open: bool | None, bus: BusMode | None, receipts: bool | None = None
    ) -> Room:
        before = await self._store.room(tenant, room) if open is None else None
        found = await self._store.put_room(tenant, room, open=open, bus=bus, receipts=receipts)
        is_new = not found.head and not found.members_rev  # clients of foreign protocols may listen already
        is_closed = before is not None and before.open != found.open  # it was provisional
        if open is not None or is_new or is_closed:
            self._engine.publish(Topic("room", tenant, room), MembersChanged())
        return found

    async def put_member(self, tenant: str, room: str, user: str, role: Role) -> bool:
        """Add a member or change the role; return False if the room does not exist."""
        written = await self._store.put_member(tenant, room, user, role)
        if written is None:
            return False
        self._publish_change(tenant, room, user, written)
        self._context.recorder.member("member added", tenant, room, user)
        await self._members_changed(tenant, user)
        return True

    async def remove_member(self, tenant: str, room: Room, user: str) -> None:
        """Remove a member. Unless the room is open, no node delivers the room's frames to the user after the return.

        A user who is added again before the return stays in the room. The nodes ask the store, because the removal may
        reach them after the addition.

        Raise EngineUnavailable if a node has not confirmed the removal; the caller repeats the call.
        """
        written = await self._store.remove_member(tenant, room.room, user)
        if written is not None:
            self._publish_change(tenant, room.room, user, written)
        self._context.recorder.member("member removed", tenant, room.room, user)
        now = await self._store.room(tenant, room.room)  # the room may have been closed since the caller read it
        if now is None or not now.open:
            nodes = await nodes_of_user(self._engine, tenant, user)
            await self._rpc.call(
                nodes, lambda asker, number: MemberRemoved(tenant, room.room, user, REMOVED, asker, number, True)
            )
        await self._members_changed(tenant, user)

    def _publish_change(self, tenant: str, room: str, user: str, written: MembersWritten) -> None:
        message = MembersChanged(written.members_rev, user if written.changed else "")
        self._engine.publish(Topic("room", tenant, room), message)


def _no_message(room: str, ref: int | None) -> Refused:
    return Refused(Err.BAD_FIELD, f"field `ref`: there is no message {ref} in room {room!r}")


def reaction_body(reaction: str) -> bytes:
    """Return the body of a record that sets or removes a reaction."""
    return msgspec.json.encode({"reaction": reaction})
