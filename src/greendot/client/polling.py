"""Reads of watched users whose changes the server does not send (mode `poll`)."""

from __future__ import annotations

import asyncio
import random

from greendot.client.errors import ClientError
from greendot.client.restore import batches
from greendot.client.session import Session
from greendot.protocol.commands import PresenceGet
from greendot.protocol.replies import PresenceReply

POLL_S = 60.0  # about the time between two reads of a user


class Polling:
    """Reads of all watched users in mode `poll`, about once a minute, as long as there are such users."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._timer: asyncio.TimerHandle | None = None
        self._reading: asyncio.Task[None] | None = None

    def check(self) -> None:
        """Start to poll if there are users to poll."""
        if self._timer is None and self._reading is None and self._session.view.people.polled:
            # With jitter: the watchers of a user, who get the mode together, must not read together.
            self._timer = asyncio.get_running_loop().call_later(POLL_S * random.uniform(0.8, 1.2), self._due)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    def _due(self) -> None:
        self._timer = None
        if self._session.error is None:
            self._reading = asyncio.create_task(self._read(), name="greendot client, polling")

    async def _read(self) -> None:
        try:
            for batch in batches([*self._session.view.people.polled]):
                await self._session.call(PresenceGet(users=batch), PresenceReply, self._apply)
        except ClientError:
            pass  # there is no connection, or the server is busy: the next read is soon enough
        finally:
            self._reading = None
            self.check()

    def _apply(self, reply: PresenceReply) -> None:
        for entry in reply.presence:
            self._session.receive(entry)
