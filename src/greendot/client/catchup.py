"""Catch-up of streams: fetches records that the live stream missed, so that delivery is complete and in order."""

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

PAGE = 300  # largest page that a server returns
RETRY_S = 1.0  # seconds before a retry, if the refusal gives no time


async def ask(link: Link, command: Command, kind: type[R], fold: Callable[[R], None] | None = None) -> R:
    """Send `command` until the server can answer; return the reply.

    Raise CommandRefused if the refusal is not retryable.
    """
    while True:
        try:
            return await link.request(command, kind, fold)
        except CommandRefused as error:
            if not error.retry:
                raise
            await asyncio.sleep(RETRY_S if error.retry_in_ms is None else error.retry_in_ms / 1000)


class CatchUp:
    """Task beside one link that fetches missing records, one stream after another, while a stream is behind."""

    def __init__(self, link: Link, records: Records, publish: Callable[[Event], None]) -> None:
        self._link = link
        self._records = records
        self._publish = publish
        self._task: asyncio.Task[None] | None = None

    def check(self) -> None:
        """Start the fetch task if a stream is behind and no task runs."""
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
                return  # the link is lost; the next link continues at the same cursor

    async def _fetch(self, stream: str) -> None:
        """Publish the missing records of `stream`, then the records that arrived meanwhile."""
        head = await self._head(stream)
        line = self._records.line(stream)
        if line is None:
            return  # the room was left meanwhile
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
            if not page:  # the records are archived, or too old to be kept
                line.skip(head)
        self._settle(line)

    async def _head(self, stream: str) -> int:
        """Return the number of the newest record."""
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
    """Convert an entry of an inbox page to the event that delivers a new notification."""
    return NotificationCreated(entry.seq, entry.id, entry.kind, entry.body, entry.created_at, entry.ack)
