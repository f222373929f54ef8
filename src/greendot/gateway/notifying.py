"""What becomes of a user's inbox: pages of it, and what the user has seen, read, put away, acknowledged.

Written first, then told to the user's other devices.
"""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from greendot.engine.base import Deliver, Engine, Topic
from greendot.errors import Refused
from greendot.gateway.connection import Connection
from greendot.gateway.paging import fit
from greendot.gateway.session import Session
from greendot.gateway.shared import Shared
from greendot.protocol.codec import encode_event
from greendot.protocol.codes import Err
from greendot.protocol.commands import InboxAck, InboxArchive, InboxList, InboxMark, InboxRead, InboxSeen
from greendot.protocol.events import NotificationUpdated
from greendot.protocol.replies import BadgeReply, InboxReply
from greendot.store.base import Mark, Marked, Store
from greendot.store.events import inbox_entry

MOST_IDS = 1_000  # told to the other devices; who marks more says up to where
State = Literal["seen", "read", "archived", "acked"]
_MARKS: dict[type[InboxMark], tuple[Mark, State]] = {
    InboxSeen: ("seen", "seen"),
    InboxRead: ("read", "read"),
    InboxArchive: ("archive", "archived"),
    InboxAck: ("ack", "acked"),
}


class Notifying:
    """Commands and requests that change an inbox, or read it."""

    def __init__(self, engine: Engine, store: Store, shared: Shared) -> None:
        self._engine = engine
        self._store = store
        self._shared = shared

    # --- what users do with it ---

    async def page(self, session: Session, command: InboxList) -> InboxReply:
        if command.before is not None and command.after is not None:
            raise Refused(Err.BAD_FIELD, "field `before` of inbox.list: give either before or after")
        found = await self._store.notifications(
            *session.key, after=command.after, before=command.before, limit=command.limit, only=command.filter
        )
        inbox = await self._store.inbox(*session.key)
        entries = [inbox_entry(notification) for notification in fit(found, newest=command.after is None)]
        return InboxReply(entries, inbox.head, inbox.unread, inbox.unseen)

    async def mark(self, connection: Connection, session: Session, command: InboxMark) -> BadgeReply:
        """The user's other devices are told."""
        mark, state = _MARKS[type(command)]
        if (command.ids is None) == (command.through is None):
            raise Refused(Err.BAD_FIELD, f"field `ids` of inbox.{mark}: give either ids or through")
        marked = await self._store.mark(
            *session.key, mark, ids=command.ids, through=command.through, at=self._shared.clock.now_ms()
        )
        if marked.ids:
            self._tell_marked(connection, session, NotificationUpdated(state, *_which(command, marked)))
        return BadgeReply(marked.inbox.unread, marked.inbox.unseen)

    def _tell_marked(self, connection: Connection, session: Session, event: NotificationUpdated) -> None:
        frame = encode_event(event, self._shared.clock.now_ms())
        told = Deliver(frame, without_connection=connection.id)
        self._engine.publish(Topic("user", session.tenant, session.user), told)


def _which(command: InboxMark, marked: Marked) -> tuple[list[str], int | UnsetType]:
    return marked.ids[-MOST_IDS:], UNSET if command.through is None else command.through
