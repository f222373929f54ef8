"""Queue of unanswered commands: each is sent again until the server answers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from greendot.client.codec import encode
from greendot.client.errors import CommandRefused, Disconnected, QueueFull
from greendot.client.link import Link
from greendot.errors import GreendotError
from greendot.protocol.commands import Command
from greendot.protocol.replies import Reply

RETRY_S = 1.0  # seconds before a retry, if the refusal gives no time
MOST_FAILURES = 5  # `internal` errors until a command fails: the command may be the cause, and would fail for ever


class Sending(NamedTuple):
    """Idempotent command: it has a key that the server accepts once, or only moves state forward."""

    command: Command
    kind: type[Reply]  # type of the reply
    fold: Callable[[Any], None] | None = None  # as in Link.request

    @property
    def lane(self) -> str:
        """Return the room, or "" for the inbox. Commands of one lane must not overtake each other."""
        return getattr(self.command, "room", "")


Waiting = tuple[Sending, "asyncio.Future[Any]"]


@dataclass(frozen=True)
class SendQueue:
    """Limits of commands that wait for a connection. Beyond them, commands without a connection raise QueueFull."""

    most: int = 1_000  # messages, edits, marks
    most_bytes: int = 8 * 1024 * 1024


class Sends:
    """Unanswered commands of one client, in the order of their calls.

    The server accepts a key once: a command that is sent again after a lost reply gets the first reply again. Each
    waiting caller adds one command; a caller that stops waiting removes its command. Commands sent without a link have
    additional limits, because the length of their wait is unknown.

    Commands that waited for a link are sent to it one at a time per lane, and retried while the server is overloaded.
    New commands of the lane queue behind them.
    """

    def __init__(self, queue: SendQueue | None = None) -> None:
        self._unanswered: dict[object, Waiting] = {}
        self._lanes: dict[str, deque[Waiting]] = {}  # commands that are being sent to a new link
        self._giving: list[asyncio.Task[None]] = []  # one task per lane
        self._queue = queue or SendQueue()
        self._waiting_bytes = 0  # bytes of unanswered commands that were sent without a link

    def __len__(self) -> int:
        return len(self._unanswered)

    async def send(self, sending: Sending, link: Link | None) -> Any:
        """Send the command to `link`, or keep it for the next link; return the reply from whichever link brings it."""
        key = getattr(sending.command, "key", None) or object()
        if key in self._unanswered:
            raise ValueError(f"a message with the key {key!r} is still unanswered")
        size = self._room_for(sending) if link is None else 0
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._unanswered[key] = (sending, answer)
        self._waiting_bytes += size
        try:
            if link is not None and (lane := self._lanes.get(sending.lane)) is not None:
                lane.append((sending, answer))
            elif link is not None:
                _transmit(sending, answer, link)
            return await answer
        finally:
            self._waiting_bytes -= size
            del self._unanswered[key]

    def _room_for(self, sending: Sending) -> int:
        """Return the size of a command that is to wait. Raise QueueFull if there is no room."""
        size = len(encode(sending.command))
        if len(self._unanswered) >= self._queue.most:
            raise QueueFull(f"{len(self._unanswered)} messages wait for a connection already")
        if self._waiting_bytes + size > self._queue.most_bytes:
            raise QueueFull(f"{self._waiting_bytes} bytes wait for a connection already")
        return size

    def resend(self, link: Link) -> None:
        """Send all unanswered commands to a new link."""
        for waiting in self._unanswered.values():
            self._lanes.setdefault(waiting[0].lane, deque()).append(waiting)
        self._giving = [
            asyncio.create_task(self._give(lane, link), name="greendot client, sending") for lane in self._lanes
        ]

    async def pause(self) -> None:
        """Keep commands queued until the next link."""
        self._lanes.clear()
        giving, self._giving = [task for task in self._giving if not task.done()], []
        for task in giving:
            task.cancel()
        if giving:
            await asyncio.wait(giving)

    async def _give(self, name: str, link: Link) -> None:
        lane = self._lanes[name]
        while lane:
            if not await _deliver(*lane[0], link):
                return
            lane.popleft()
        del self._lanes[name]

    def fail(self, error: Exception) -> None:
        """Fail all unanswered commands: no link will follow."""
        for _, answer in self._unanswered.values():
            if not answer.done():
                answer.set_exception(error)


async def _deliver(sending: Sending, answer: asyncio.Future[Any], link: Link) -> bool:
    """Send a command as often as needed for an answer. Return False if the link is lost: the next link sends it."""
    failures = 0
    while not answer.done():
        try:
            reply = await link.request(sending.command, sending.kind, sending.fold)
        except Disconnected:
            return False
        except CommandRefused as error:
            failures += error.code == "internal"
            if error.retry and failures < MOST_FAILURES:
                await asyncio.sleep(RETRY_S if error.retry_in_ms is None else error.retry_in_ms / 1000)
            elif not answer.done():
                answer.set_exception(error)
        except (GreendotError, ValueError) as error:
            if not answer.done():
                answer.set_exception(error)
        else:
            if not answer.done():
                answer.set_result(reply)
    return True


def _transmit(sending: Sending, answer: asyncio.Future[Any], link: Link) -> None:
    def done(future: asyncio.Future[Any]) -> None:
        error = None if future.cancelled() else future.exception()
        if answer.done() or future.cancelled() or isinstance(error, Disconnected):
            return  # lost with its link: the next link sends it
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(future.result())

    try:
        link.request(sending.command, sending.kind, sending.fold).add_done_callback(done)
    except ValueError as too_long:
        answer.set_exception(too_long)
