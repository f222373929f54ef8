"""Whom the program watches: counted, and asked for together."""

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
    """What was asked for in one turn of the loop, by however many callers."""

    def __init__(self) -> None:
        self.wanted: dict[str, None] = {}
        self.gone: dict[str, None] = {}
        self.callers = 0
        self.done: asyncio.Task[dict[str, Presence]]


class WatchCounts:
    """Each `watch` of a user counts one, each `unwatch` takes one back; the last one lets the user go.

    Parts of a program can so watch the same people without knowing of each other. What is asked for in one turn of the
    loop goes out in one frame (as many as it takes, if there are very many users).
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._counts: Counter[str] = Counter()
        self._turn: _Turn | None = None

    async def watch(self, users: tuple[str, ...]) -> list[Presence]:
        """How `users` stand, in their order. Those who are watched already are not asked for again."""
        self._session.check_open()
        wanted = dict.fromkeys(users)
        self._counts.update([*wanted])
        found = {user: known for user in wanted if (known := self._known(user)) is not None}
        try:
            found |= await self._ask([user for user in wanted if user not in found])
        except asyncio.CancelledError:
            # It may have been granted already, with nobody left who wants it.
            self._this_turn().gone |= dict.fromkeys(self._let_go(wanted))
            raise
        except BaseException:
            self._let_go(wanted)
            raise
        return [found[user] for user in users if user in found]

    async def unwatch(self, users: tuple[str, ...]) -> None:
        """Nobody is told of a user any more whom nobody else watches."""
        self._session.check_open()
        if gone := self._let_go(dict.fromkeys(users)):
            turn = self._this_turn()
            turn.gone |= dict.fromkeys(gone)
            try:
                await asyncio.shield(turn.done)
            except (CommandRefused, Disconnected):
                pass  # what else was asked for in this turn failed, or there is nobody left to tell

    def _known(self, user: str) -> Presence | None:
        """How somebody stands whom the server tells of."""
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
            # One for each who asked: raised in two places it would mix their tracebacks.
            raise Disconnected(lost.code, lost.reason) from None
        except CommandRefused as refused:
            if turn.callers == 1 or refused.retry:  # too much now: asked for one by one it would be more
                raise
        # One of the others may have asked for what is not to be had.
        return await self._watch(users)

    def _this_turn(self) -> _Turn:
        if self._turn is None:
            self._turn = _Turn()
            self._turn.done = asyncio.create_task(self._send(self._turn), name="greendot client, watching")
            # Whoever waited may have been cancelled: an error nobody asks for is no news.
            self._turn.done.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._turn

    async def _send(self, turn: _Turn) -> dict[str, Presence]:
        self._turn = None
        # First those who are let go: there may be no room for the others before.
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
            # A change may have been on its way. Who is watched again since is known again since.
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
        """Those whom nobody watches any more."""
        gone = []
        for user in users:
            self._counts[user] -= 1
            if self._counts[user] <= 0:
                del self._counts[user]
                gone.append(user)
        self._session.view.unwatch(gone)
        return gone
