"""An app database with an outbox, and relays that send its rows to a real store."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from greendot.app_outbox.relay import Publisher, Relay
from greendot.clock import SystemClock
from greendot.errors import Refused
from greendot.store.inbox import Notice
from greendot.store.port import Store
from greendot.store.postgres import PostgresOutbox, PostgresStore
from greendot.store.rooms import Draft
from postgres_server import fresh_schema

T = "default"
PATIENCE_S = 20.0
SAY = (
    "INSERT INTO greendot_outbox (target, room, user_id, name, body, key) VALUES ('message', $1, 'app', 'App', $2, $3)"
)
TELL = "INSERT INTO greendot_outbox (target, user_id, kind, body, key) VALUES ('notification', $1, 'k', $2, $3)"


class Straight:
    """Publisher that writes to the store and records each new message and notification."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.told: list[tuple[str, str]] = []  # stream and body of each new record

    async def append(self, tenant: str, room: str, draft: Draft) -> None:
        written = await self.store.append(tenant, room, draft)
        if written is None:
            raise Refused("not_a_member", f"there is no room {room!r}")
        if written.new:
            self.told.append((room, draft.body.decode()))

    async def notify(self, notices: Sequence[Notice]) -> None:
        for notice, created in zip(notices, await self.store.notify(notices), strict=True):
            if created.new:
                self.told.append((notice.user, notice.body.decode()))


class Site:
    """One database with the outbox and the records."""

    def __init__(self, url: str, store: PostgresStore, app: asyncpg.Connection) -> None:
        self.url = url
        self.store = store
        self.app = app
        self.outbox = PostgresOutbox(url, 0.2)
        self.straight = Straight(store)

    @asynccontextmanager
    async def relay(self, delivery: Publisher | None = None, poll_s: float = 0.2) -> AsyncIterator[Relay]:
        relay = Relay(PostgresOutbox(self.url, poll_s), delivery or self.straight, SystemClock(), poll_s)
        relay.start()
        try:
            yield relay
        finally:
            await relay.close()

    async def say(self, room: str, body: str, key: str | None = None) -> None:
        await self.app.execute(SAY, room, body, key)

    async def tell(self, user: str, body: str, key: str | None = None) -> None:
        await self.app.execute(TELL, user, body, key)

    async def left(self) -> int:
        """Return the number of rows that still wait."""
        return (await self.outbox.status(0)).waiting

    async def sent(self) -> None:
        async def none_left() -> bool:
            return await self.left() == 0

        await until(none_left)

    async def said(self, room: str) -> list[str]:
        """Return the bodies of a room's messages. The messages must be numbered without gaps."""
        found = await self.store.messages(T, room, after=0, limit=100_000)
        assert [record.seq for record in found] == [*range(1, len(found) + 1)]
        return [record.body.decode() for record in found]

    async def told(self, user: str) -> list[str]:
        found = await self.store.notifications(T, user, after=0, limit=100_000)
        assert [entry.seq for entry in found] == [*range(1, len(found) + 1)]
        return [entry.body.decode() for entry in found]

    async def cut(self, most: int = 100) -> None:
        """Terminate the database sessions of all relays, or of at most `most` relays, as a network failure does."""
        sessions = await self.app.fetch(
            "SELECT DISTINCT pid FROM pg_locks WHERE locktype = 'advisory' AND granted"
            " AND (objid::bigint >> 5) = ('greendot_outbox'::regclass::oid::bigint & 67108863)"
        )
        for session in random.sample(sessions, min(most, len(sessions))):
            await self.app.execute("SELECT pg_terminate_backend($1)", session[0])


@asynccontextmanager
async def site(url: str) -> AsyncIterator[Site]:
    async with fresh_schema(url) as place, at(place) as found:
        yield found


@asynccontextmanager
async def at(place: str) -> AsyncIterator[Site]:
    store = PostgresStore(place, migrate=True)
    await store.start()
    try:
        for room in ("r1", "r2", "r3"):
            await store.put_room(T, room, open=True)
        found = Site(place, store, await asyncpg.connect(place))
        try:
            yield found
        finally:
            found.app.terminate()
    finally:
        await store.close()


async def until(condition: Callable[[], Coroutine[Any, Any, bool]] | Callable[[], bool]) -> None:
    """Poll until a condition without an event is true. Raise TimeoutError if it stays false."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            answer = condition()
            if answer is True or (not isinstance(answer, bool) and await answer):
                return
            await asyncio.sleep(0.005)
