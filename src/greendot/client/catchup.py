"""Fetching what the live stream left out, so that the program is told every record all the same, and in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from greendot.client.codec import Failure
from greendot.client.errors import BadReply, ClientError, CommandRefused
from greendot.client.link import Link
from greendot.client.records import INBOX, ROOM, Record, RecordCursor, Records
from greendot.protocol.commands import Command, InboxList, RoomHistory
from greendot.protocol.events import Event, NotificationCreated
from greendot.protocol.replies import HistoryReply, InboxEntry, InboxReply, Reply

R = TypeVar("R", bound=Reply)

PAGE = 300  # the most a server gives
RETRY_S = 1.0  # before asking again what the server cannot grant now and gives no time for


async def ask(link: Link, command: Command, kind: type[R], fold: Callable[[R], None] | None = None) -> R:
    """The answer, asked for until the server can give it. Raises CommandRefused where it will not."""
    while True:
        try:
            return await link.request(command, kind, fold)
        except CommandRefused as error:
            if not error.retry:
                raise
            await asyncio.sleep(RETRY_S if error.retry_in_ms is None else error.retry_in_ms / 1000)


class CatchUp:
    """What runs beside one link: fetches for one stream after another, while there is one behind."""

    def __init__(self, link: Link, records: Records, publish: Callable[[Event], None]) -> None:
        self._link = link
        self._records = records
        self._publish = publish
        self._task: asyncio.Task[None] | None = None

    def check(self) -> None:
        """See to it that whatever is behind is fetched."""
        if (self._task is None or self._task.done()) and self._records.behind() is not None:
            self._task = asyncio.create_task(self._run(), name="greendot client, catching up")

    async def close(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while (stream := self._records.behind()) is not None:
            try:
                await self._fetch(stream)
            except (CommandRefused, BadReply) as error:
                self._give_up(stream, error)
            except ClientError:
                return  # the link is lost; the next one begins where this one was

    async def _fetch(self, stream: str) -> None:
        """Tell what is missing of `stream`, then what came meanwhile."""
        head = await self._head(stream)
        line = self._records.line(stream)
        if line is None:
            return  # left meanwhile
        head = line.target(head)
        skipped = self._records.reach(stream, head)
        if skipped is not None:
            self._publish(skipped)
        while line.last < head:
            page = await self._page(stream, line.last)
            if self._records.line(stream) is not line:
                return
            for record in page:
                if line.fetched(record):
                    self._publish(record)
            if not page:  # archived, or too old to be kept
                line.skip(head)
        self._settle(line)

    async def _head(self, stream: str) -> int:
        """The number of the newest record."""
        if stream == INBOX:
            return (await ask(self._link, InboxList(limit=1), InboxReply)).head
        newest = await ask(self._link, RoomHistory(room=stream.removeprefix(ROOM), limit=1), HistoryReply)
        return newest.messages[-1].seq if newest.messages else 0

    async def _page(self, stream: str, after: int) -> Sequence[Record]:
        if stream == INBOX:
            page = await ask(self._link, InboxList(after=after, limit=PAGE), InboxReply)
            return [_created(entry) for entry in page.notifications]
        command = RoomHistory(room=stream.removeprefix(ROOM), after=after, limit=PAGE)
        return (await ask(self._link, command, HistoryReply)).messages

    def _settle(self, line: RecordCursor) -> None:
        while (record := line.next()) is not None:
            self._publish(record)
        line.settle()

    def _give_up(self, stream: str, error: CommandRefused | BadReply) -> None:
        code = error.code if isinstance(error, CommandRefused) else "bad_reply"
        self._publish(Failure(None, code, f"some of {stream} is missing: {error}", False, None))
        line = self._records.line(stream)
        while line is not None and line.behind:
            line.skip(line.target(line.last))
            self._settle(line)


def _created(entry: InboxEntry) -> NotificationCreated:
    """A notification found in a page, as it would have been told."""
    return NotificationCreated(entry.seq, entry.id, entry.kind, entry.body, entry.created_at, entry.ack)
