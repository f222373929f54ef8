"""Changed members of the rooms on this node: applied one by one, or read again if announcements are missing.

Each announcement names the changed member and the new revision (`members_rev`). A change of a user who does not listen
here costs no read, and a change of a listener costs a read of this listener. All listeners are read only if a revision
is missing for `GAP_S`, or if any member may have changed. Until the members are known, records wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from greendot.engine.messages import Deliver, MembersChanged, Topic
from greendot.errors import StoreUnavailable
from greendot.node.context import NodeContext
from greendot.node.stream import GAP_S
from greendot.node.subscriptions import Subscriptions
from greendot.rooms.delivery import RoomDelivery
from greendot.rooms.local_room import LocalRoom
from greendot.rooms.members import RoomMembers
from greendot.rooms.members_model import NONE, Applicable
from greendot.store.rooms import Room


class MemberUpdates:
    """Updates of the members of local rooms. `remove` removes a listener, `receive` handles a message that waited."""

    def __init__(
        self,
        context: NodeContext,
        local: Subscriptions[LocalRoom],
        membership: RoomMembers,
        delivery: RoomDelivery,
        *,
        remove: Callable[[str, str, str, str], None],
        receive: Callable[[Topic, Deliver | MembersChanged], None],
    ) -> None:
        self._context = context
        self._local = local
        self._membership = membership
        self._delivery = delivery
        self._remove = remove
        self._receive = receive

    # --- announcements ---

    def announced(self, local: LocalRoom, message: MembersChanged) -> None:
        """Apply an announced change, or keep it until the changes with lower revisions have arrived."""
        if local.reading_members:
            assert local.unchecked is not None
            local.unchecked.append(message)  # the read under way may miss this change
        if not message.revision or (local.room is None and local.opening is None):
            self.check(local)  # any member may have changed, or the room was created since this node read it
        elif not local.reading_members:
            if message.revision < local.members_rev:
                self._context.tasks.spawn(self._compare(local))
            elif message.user:
                local.changes.announce(message.revision, message.user)
                self.advance(local)
            else:
                self.expect(local, message.revision)

    def expect(self, local: LocalRoom, revision: int) -> None:
        """Hold the room's records until the members have this revision."""
        if not local.reading_members:
            local.changes.expect(revision)
            self._hold_if_missing(local)

    def differs(self, local: LocalRoom, room: Room | None, at_once: bool) -> None:
        """Read the members of a room that differs in the store: newer members, another room, or no room.

        Newer members are usually announced soon, and need no read. With `at_once`, do not wait for the announcement.
        """
        if at_once or room is None or local.room is None or local.is_another(room):
            self.check(local)
        else:
            self.expect(local, room.members_rev)

    def advance(self, local: LocalRoom) -> None:
        """Apply the announced changes that follow the room's revision without a gap."""
        if local.reading_members:
            return
        if local.room is None:  # the room is being opened
            self._hold_if_missing(local)
            return
        changes = local.changes.take(local.members_rev)
        listening = [user for user in changes.users if self._context.registry.connections_in(local.channel, user)]
        if listening:
            self._hold(local)
            self._read(local, changes, listening)
            return
        if changes.users:
            self._membership.apply(local, local.room, changes, {})
        self._hold_if_missing(local)
        if local.unchecked is not None and local.missing_timer is None:
            self._release(local)

    async def _compare(self, local: LocalRoom) -> None:
        """Read all members if the store has an older revision than this node: the store was restored."""
        try:
            is_behind = await self._membership.is_behind(local)
        except StoreUnavailable:
            return  # the next announcement or comparison finds the difference
        if is_behind and self._local.get(local.channel.topic) is local:
            self.check(local)

    # --- holding records ---

    def _hold(self, local: LocalRoom) -> None:
        if local.unchecked is None:
            local.unchecked, local.checking = [], asyncio.get_running_loop().create_future()

    def _hold_if_missing(self, local: LocalRoom) -> None:
        if not local.changes.is_missing(local.members_rev):
            self._context.timers.cancel(local.missing_timer)
            local.missing_timer = None
            return
        self._hold(local)
        if local.missing_timer is None:
            local.missing_timer = self._context.timers.set(GAP_S, self._missed, local)

    def _missed(self, local: LocalRoom) -> None:
        local.missing_timer = None
        if self._local.get(local.channel.topic) is local:
            self.check(local)
        else:
            self._release(local)

    def _release(self, local: LocalRoom, covered: int = 0) -> None:
        """Handle the messages that waited. A read of all members decides about the first `covered` ones."""
        unchecked, local.unchecked = local.unchecked or [], None
        topic = local.channel.topic
        if local.checking is not None:
            local.checking.set_result(None)
            local.checking = None
        for index, message in enumerate(unchecked):
            if index >= covered or self._local.get(topic) is not local:
                self._receive(topic, message)
            elif isinstance(message, Deliver) and local.room is not None:
                # Deliver the message even if its revision is newer than the store's: a store that was restored from a
                # backup may never reach that revision.
                self._delivery.received(local, message)

    async def _close_to_foreign(self, local: LocalRoom) -> None:
        """Detach clients that only listen to a room that is not open. Only foreign protocols have such clients.

        The client may have got a user since it began to listen. Only a join checks the user's access.
        """
        if not local.channel.mixed:
            return
        room = local.channel.topic.name
        async for some in self._context.slices.cut([*local.channel.listeners]):
            for connection in some:
                if connection.foreign is not None and room not in (connection.rooms or ()):
                    connection.foreign.room_closed(connection, room)

    # --- reads ---

    def check(self, local: LocalRoom) -> None:
        """Read all members; records wait until the members are known."""
        if not local.reading_members:
            self._hold(local)
            self._read(local)

    def _read(self, local: LocalRoom, changes: Applicable | None = None, users: list[str] | None = None) -> None:
        self._context.timers.cancel(local.missing_timer)
        local.missing_timer, local.reading_members = None, True
        self._context.tasks.spawn(self._refresh(local, changes, users))

    async def _refresh(self, local: LocalRoom, changes: Applicable | None, users: list[str] | None) -> None:
        """Read these listeners, or all, and remove those who may no longer be in the room."""
        covered = len(local.unchecked or ()) if changes is None else 0  # messages that came before the read
        topic = local.channel.topic
        try:
            if changes is None or users is None:
                local.changes.forget()
                gone = await self._membership.refresh(local)
            else:
                gone = await self._membership.refresh_some(local, changes, users)
            if local.room is not None and not local.room.open:
                await self._close_to_foreign(local)
            async for some in self._context.slices.cut([*gone]):
                for user in some:
                    self._remove(topic.tenant, topic.name, user, gone[user])
        except StoreUnavailable:
            # The members are unknown: drop the waiting messages, which are read again once the store answers.
            local.members_rev = NONE
            local.changes.forget()
            local.unchecked = []
        finally:
            local.reading_members = False
            self._release(local, covered)
        if local.room is None and self._local.give_up(local):
            return  # deleted; a room that is created again under this name is another one
        self.advance(local)
        if local.room is not None and local.room.head > local.cursor and not local.stream.gap:
            await self._delivery.fill_quietly(local)
