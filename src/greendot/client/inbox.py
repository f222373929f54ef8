"""Inbox of the user: its notifications, and marks for seen, read, archived and acknowledged ones."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal

from greendot.client.catchup import PAGE
from greendot.client.session import Session
from greendot.protocol.commands import InboxAck, InboxArchive, InboxList, InboxMark, InboxRead, InboxSeen
from greendot.protocol.replies import BadgeReply, InboxEntry, InboxReply

Filter = Literal["all", "unread", "unseen", "archived"]


class Inbox:
    """Inbox of the user (`client.inbox`). New notifications arrive as `notification.created` events.

    A mark takes ids, or `through`: every notification up to and including that number. Marks are idempotent, so they
    wait through lost connections, as `send` does.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def unread(self) -> int:
        """Return the number of notifications not read on any device. Each change is also an `inbox.badge` event."""
        return self._session.view.badge.unread

    @property
    def unseen(self) -> int:
        return self._session.view.badge.unseen

    async def page(
        self, *, after: int | None = None, before: int | None = None, limit: int = 50, filter: Filter = "all"
    ) -> InboxReply:
        """Return up to `limit` entries in ascending order.

        The page has the oldest entries after `after`, else the newest (before `before`). The filter `all` leaves out
        archived entries.
        """
        command = InboxList(after=after, before=before, limit=limit, filter=filter)
        return await self._session.call(command, InboxReply, self._counted)

    async def entries(self, *, after: int = 0, filter: Filter = "all") -> AsyncIterator[InboxEntry]:
        """Yield all entries after number `after`, oldest first, read page by page."""
        while page := (await self.page(after=after, limit=PAGE, filter=filter)).notifications:
            for entry in page:
                yield entry
            after = page[-1].seq

    def __aiter__(self) -> AsyncIterator[InboxEntry]:
        return self.entries()

    async def seen(self, *ids: str, through: int | None = None) -> BadgeReply:
        """Mark notifications as shown; return the badge."""
        return await self._mark(InboxSeen, ids, through)

    async def read(self, *ids: str, through: int | None = None) -> BadgeReply:
        return await self._mark(InboxRead, ids, through)

    async def archive(self, *ids: str, through: int | None = None) -> BadgeReply:
        return await self._mark(InboxArchive, ids, through)

    async def ack(self, *ids: str, through: int | None = None) -> BadgeReply:
        """Acknowledge notifications. A notification with `ack` is redelivered until it is acknowledged."""
        return await self._mark(InboxAck, ids, through)

    async def _mark(self, kind: type[InboxMark], ids: tuple[str, ...], through: int | None) -> BadgeReply:
        if bool(ids) == (through is not None):
            raise ValueError("give either ids or through")
        command = kind(through=through) if through is not None else kind(ids=[*ids])
        return await self._session.send(command, BadgeReply, self._counted)

    def _counted(self, reply: InboxReply | BadgeReply) -> None:
        self._session.view.badge.apply(reply)
