"""A crowd that comes back: everybody has everything, and the store is hardly asked."""

from __future__ import annotations

import asyncio
import functools
import time
from collections import Counter
from typing import Any

import pytest

from greendot.gateway.batched import LONGEST_S
from greendot.store.base import Store
from greendot.store.sqlite import SqliteStore
from greendot.testing import Served, WireClient, serving

CLIENTS, BEHIND = 200, 50
READS = ("statuses", "heads", "standings", "messages", "inboxes", "room", "pending", "notifications")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What the store was asked, by verb."""
    found: Counter[str] = Counter()

    def counted(verb: str, method: Any) -> Any:
        @functools.wraps(method)
        def call(self: Any, *given: Any, **named: Any) -> Any:
            found[verb] += 1
            return method(self, *given, **named)

        return call

    for verb in READS:
        assert hasattr(Store, verb)
        monkeypatch.setattr(SqliteStore, verb, counted(verb, getattr(SqliteStore, verb)))
    return found


async def come_back(served: Served, client: WireClient, number: int) -> list[int]:
    """The numbers of the messages it was told."""
    await client.hello(served.token(f"u{number}"), resume={"session": "gone", "rooms": {"lobby": 0}})
    return [frame["data"]["seq"] for frame in await client.quiet() if frame["type"] == "room.message"]


async def test_a_crowd_that_returns_has_all_it_missed_for_a_few_reads(asked: Counter[str]) -> None:
    async with serving() as served:
        await served.lobby()
        ann = await served.joined("ann")
        for number in range(BEHIND):
            await ann.request(type="room.send", room="lobby", body=number)
        clients = [await served.socket() for _ in range(CLIENTS)]
        asked.clear()
        start = time.monotonic()
        told = await asyncio.gather(*(come_back(served, client, n) for n, client in enumerate(clients)))
        took_s = time.monotonic() - start
        assert told == [[*range(1, BEHIND + 1)]] * CLIENTS
        # What is bounded is how often it is read in a time: on a machine that is very slow it takes longer.
        assert sum(asked.values()) <= 20 + 4 * took_s / LONGEST_S, asked
        assert asked["messages"] <= 2


async def test_who_comes_alone_waits_for_nobody(asked: Counter[str]) -> None:
    async with serving() as served:
        await served.lobby()
        for number in range(20):
            assert await come_back(served, await served.socket(), number) == []
        assert asked["inboxes"] == asked["statuses"] == 20  # each its own
