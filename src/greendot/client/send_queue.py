"""What was given to the server and not yet answered: sent again until it is."""

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

RETRY_S = 1.0  # before giving again what the server cannot take now and gives no time for
MOST_FAILURES = 5  # a command that fails on the server may be at fault itself, and would fail for ever


class Sending(NamedTuple):
    """A command that done twice is done once: it has a key the server takes once, or only moves things forward."""

    command: Command
    kind: type[Reply]  # of the answer
    fold: Callable[[Any], None] | None = None  # as for Link.request

    @property
    def lane(self) -> str:
        """Those of one lane must not overtake each other: what is said in one room, what is marked in the inbox."""
        return getattr(self.command, "room", "")


Waiting = tuple[Sending, "asyncio.Future[Any]"]


@dataclass(frozen=True)
class SendQueue:
    """How much may wait for a connection. More is refused (QueueFull) while there is none."""

    most: int = 1_000  # messages, edits, marks
    most_bytes: int = 8 * 1024 * 1024


class Sends:
    """The unanswered ones of one client, in the order they were given.

    The server takes a key once, so that sending again after a lost answer gives the first answer again. Each
    waiting caller bounds this by one; a caller that stops waiting takes its command out. What is given without a
    link is bounded besides: nobody knows for how long it will wait.

    What has waited for a link is given to it patiently: of each lane one at a time, again where the server has too
    much to do, and what is given meanwhile comes behind it.
    """

    def __init__(self, queue: SendQueue | None = None) -> None:
        self._unanswered: dict[object, Waiting] = {}
        self._lanes: dict[str, deque[Waiting]] = {}  # those that are being given to a new link
        self._giving: list[asyncio.Task[None]] = []  # one for each
        self._queue = queue or SendQueue()
        self._waiting_bytes = 0  # of what was given without a link, and is not answered

    def __len__(self) -> int:
        return len(self._unanswered)

    async def send(self, sending: Sending, link: Link | None) -> Any:
        """Hand the command to `link`, or keep it for the next one; its answer, whichever link brings it."""
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
        """The size of what is to wait. QueueFull if there is no room for it."""
        size = len(encode(sending.command))
        if len(self._unanswered) >= self._queue.most:
            raise QueueFull(f"{len(self._unanswered)} messages wait for a connection already")
        if self._waiting_bytes + size > self._queue.most_bytes:
            raise QueueFull(f"{self._waiting_bytes} bytes wait for a connection already")
        return size

    def resend(self, link: Link) -> None:
        """Give everything unanswered to a new link."""
        for waiting in self._unanswered.values():
            self._lanes.setdefault(waiting[0].lane, deque()).append(waiting)
        self._giving = [
            asyncio.create_task(self._give(lane, link), name="greendot client, sending") for lane in self._lanes
        ]

    async def pause(self) -> None:
        """The link is lost."""
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
        """No link will come any more."""
        for _, answer in self._unanswered.values():
            if not answer.done():
                answer.set_exception(error)


async def _deliver(sending: Sending, answer: asyncio.Future[Any], link: Link) -> bool:
    """Have it answered, however often that takes. False if the link is lost: the next one gets it."""
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
            return  # lost with its link: the next one gets it
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(future.result())

    try:
        link.request(sending.command, sending.kind, sending.fold).add_done_callback(done)
    except ValueError as too_long:
        answer.set_exception(too_long)
