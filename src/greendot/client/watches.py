"""Watches of a program: counted per user, and sent together."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable

from msgspec import UNSET

from greendot.client.errors import CommandRefused, Disconnected
from greendot.client.restore import batches
from greendot.client.session import Session
from greendot.protocol.commands import Unwatch, Watch
from greendot.protocol.events import Presence
from greendot.protocol.replies import PresenceReply, Reply


class _Turn:
    """Watches and unwatches of one turn of the loop, from any number of callers."""

    def __init__(self) -> None:
        self.wanted: dict[str, None] = {}
        self.gone: dict[str, None] = {}
        self.callers = 0
        self.done: asyncio.Task[dict[str, Presence]]


class WatchCounts:
    """Counts of watches per user: `watch` adds one, `unwatch` takes one back, the last one ends the watch.

    Parts of a program can watch the same users independently. Watches of one turn of the loop are sent in one frame, or
    in several if there are very many users.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._counts: Counter[str] = Counter()
        self._turn: _Turn | None = None

    async def watch(self, users: tuple[str, ...]) -> list[Presence]:
        """Watch `users`; return their presence in their order. Users watched already are not requested again."""
        self._session.check_open()
        wanted = dict.fromkeys(users)
        self._counts.update([*wanted])
        found = {user: known for user in wanted if (known := self._known(user)) is not None}
        try:
            found |= await self._ask([user for user in wanted if user not in found])
        except asyncio.CancelledError:
            # The server may have granted the watch already, and no caller wants it any more.
            self._this_turn().gone |= dict.fromkeys(self._let_go(wanted))
            raise
        except BaseException:
            self._let_go(wanted)
            raise
        return [found[user] for user in users if user in found]

    async def unwatch(self, users: tuple[str, ...]) -> None:
        """Take back one watch of each user; the last one ends the watch on the server."""
        self._session.check_open()
        if gone := self._let_go(dict.fromkeys(users)):
            turn = self._this_turn()
            turn.gone |= dict.fromkeys(gone)
            try:
                await asyncio.shield(turn.done)
            except (CommandRefused, Disconnected):
                pass  # another request of this turn failed, or there is no connection any more

    def _known(self, user: str) -> Presence | None:
        """Return the presence of a watched user; None if it is unknown, stale or not live."""
        entry = self._session.view.people.known.get(user)
        is_told = user in self._session.view.watched
        return (
            entry if entry is not None and is_told and entry.mode == "live" and entry.stale in (UNSET, False) else None
        )

    async def _ask(self, users: list[str]) -> dict[str, Presence]:
        if not users:
            return {}
        turn = self._this_turn()
        turn.wanted |= dict.fromkeys(users)
        turn.callers += 1
        try:
            return await asyncio.shield(turn.done)
        except Disconnected as lost:
            # A new exception for each caller: raised in two places it would mix their tracebacks.
            raise Disconnected(lost.code, lost.reason) from None
        except CommandRefused as refused:
            if turn.callers == 1 or refused.retry:  # overloaded: separate requests would be more load
                raise
        # Another caller of this turn may have requested what the server does not grant.
        return await self._watch(users)

    def _this_turn(self) -> _Turn:
        if self._turn is None:
            self._turn = _Turn()
            self._turn.done = asyncio.create_task(self._send(self._turn), name="greendot client, watching")
            # The callers may have been cancelled: retrieve the error, which is then of no interest.
            self._turn.done.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._turn

    async def _send(self, turn: _Turn) -> dict[str, Presence]:
        self._turn = None
        # Unwatch first: before it, there may be no room for the new watches.
        for users in batches(turn.gone):
            await self._unwatch([user for user in users if not self._counts[user]])
        return await self._watch(turn.wanted)

    async def _unwatch(self, users: list[str]) -> None:
        if not users:
            return
        try:
            await self._session.call(Unwatch(users=users), Reply)
        except Disconnected:
            pass  # a watch ends with its link
        finally:
            # A change may have arrived meanwhile. Users who are watched again stay known.
            self._session.view.unwatch([user for user in users if not self._counts[user]])

    async def _watch(self, users: Iterable[str]) -> dict[str, Presence]:
        found: dict[str, Presence] = {}
        for batch in batches(users):
            reply = await self._session.call(Watch(users=batch), PresenceReply, self._watched)
            found |= {entry.user: entry for entry in reply.presence}
        return found

    def _watched(self, reply: PresenceReply) -> None:
        self._session.view.watch(entry for entry in reply.presence if self._counts[entry.user])

    def _let_go(self, users: Iterable[str]) -> list[str]:
        """Take back one watch of each user; return the users without a watch."""
        gone = []
        for user in users:
            self._counts[user] -= 1
            if self._counts[user] <= 0:
                del self._counts[user]
                gone.append(user)
        self._session.view.unwatch(gone)
        return gone
