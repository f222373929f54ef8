"""What was given to the server and not yet answered: sent again until it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from greendot.client.errors import Disconnected
from greendot.client.link import Link
from greendot.protocol.commands import Command
from greendot.protocol.replies import Reply


class Sending(NamedTuple):
    """A command that done twice is done once: it has a key the server takes once, or only moves things forward."""

    command: Command
    kind: type[Reply]  # of the answer
    fold: Callable[[Any], None] | None = None  # as for Link.request


class Sends:
    """The unanswered ones of one client, in the order they were given.

    The server takes a key once, so that sending again after a lost answer gives the first answer again. Each
    waiting caller bounds this by one; a caller that stops waiting takes its command out.
    """

    def __init__(self) -> None:
        self._unanswered: dict[object, tuple[Sending, asyncio.Future[Any]]] = {}

    async def send(self, sending: Sending, link: Link | None) -> Any:
        """Hand the command to `link`, or keep it for the next one; its answer, whichever link brings it."""
        key = getattr(sending.command, "key", None) or object()
        if key in self._unanswered:
            raise ValueError(f"a message with the key {key!r} is still unanswered")
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._unanswered[key] = (sending, answer)
        try:
            if link is not None:
                _transmit(sending, answer, link)
            return await answer
        finally:
            del self._unanswered[key]

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
