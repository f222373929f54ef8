"""Messages given to the server and not yet answered: sent again, with the same key, until they are."""

from __future__ import annotations

import asyncio

from greendot.client.errors import Disconnected
from greendot.client.link import Link
from greendot.protocol.commands import RoomSend
from greendot.protocol.replies import SendReply


class Sends:
    """The unanswered `room.send` commands of one client, in the order they were given.

    The server takes a key once, so that sending again after a lost answer gives the first answer again. Each
    waiting caller bounds this by one; a caller that stops waiting takes its message out.
    """

    def __init__(self) -> None:
        self._unanswered: dict[str, tuple[RoomSend, asyncio.Future[SendReply]]] = {}

    async def send(self, command: RoomSend, link: Link | None) -> SendReply:
        """Hand `command` to `link`, or keep it for the next one; its answer, whichever link brings it."""
        key = str(command.key)
        if key in self._unanswered:
            raise ValueError(f"a message with the key {key!r} is still unanswered")
        answer: asyncio.Future[SendReply] = asyncio.get_running_loop().create_future()
        self._unanswered[key] = (command, answer)
        try:
            if link is not None:
                _transmit(command, answer, link)
            return await answer
        finally:
            del self._unanswered[key]

    def resend(self, link: Link) -> None:
        """Give everything unanswered to a new link."""
        for command, answer in self._unanswered.values():
            if not answer.done():
                _transmit(command, answer, link)

    def fail(self, error: Exception) -> None:
        """No link will come any more."""
        for _, answer in self._unanswered.values():
            if not answer.done():
                answer.set_exception(error)


def _transmit(command: RoomSend, answer: asyncio.Future[SendReply], link: Link) -> None:
    def done(future: asyncio.Future[SendReply]) -> None:
        error = None if future.cancelled() else future.exception()
        if answer.done() or future.cancelled() or isinstance(error, Disconnected):
            return  # lost with its link: the next one gets it
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(future.result())

    try:
        link.request(command, SendReply).add_done_callback(done)
    except ValueError as too_long:
        answer.set_exception(too_long)
