"""What was given to the server and not yet answered: sent again until it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from greendot.client.codec import encode
from greendot.client.errors import Disconnected, QueueFull
from greendot.client.link import Link
from greendot.protocol.commands import Command
from greendot.protocol.replies import Reply


class Sending(NamedTuple):
    """A command that done twice is done once: it has a key the server takes once, or only moves things forward."""

    command: Command
    kind: type[Reply]  # of the answer
    fold: Callable[[Any], None] | None = None  # as for Link.request


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
    """

    def __init__(self, queue: SendQueue | None = None) -> None:
        self._unanswered: dict[object, tuple[Sending, asyncio.Future[Any]]] = {}
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
            if link is not None:
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
        for sending, answer in self._unanswered.values():
            if not answer.done():
                _transmit(sending, answer, link)

    def fail(self, error: Exception) -> None:
        """No link will come any more."""
        for _, answer in self._unanswered.values():
            if not answer.done():
                answer.set_exception(error)


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
