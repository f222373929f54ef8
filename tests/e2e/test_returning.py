"""Many clients that reconnect at once: all receive all messages, with few store reads."""

from __future__ import annotations

import asyncio
import functools
import time
from collections import Counter
from typing import Any

import pytest

from greendot.node.batching import LONGEST_S
from greendot.store.port import Store
from greendot.store.sqlite import SqliteStore
from greendot.testing import Served, WireClient, serving

CLIENTS, BEHIND = 200, 50
READS = ("statuses", "heads", "user_rooms", "member_states", "messages", "inboxes", "room", "pending", "notifications")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Return the counts of store calls, by method."""
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
    """Reconnect and return the numbers of the received messages."""
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
        # The rate of reads is bounded, so a very slow machine may need more reads.
        assert sum(asked.values()) <= 20 + 4 * took_s / LONGEST_S, asked
        assert asked["messages"] <= 2


async def test_a_crowd_that_was_in_many_rooms_is_back_in_all_of_them_for_a_few_reads(asked: Counter[str]) -> None:
    async with serving() as served:
        rooms = [f"room{number}" for number in range(20)]
        for room in rooms:
            await served.node.store.put_room("default", room, open=True)
        clients = [await served.socket() for _ in range(50)]
        asked.clear()
        resume = {"rooms": dict.fromkeys(rooms, 0)}
        welcomes = await asyncio.gather(
            *(client.hello(served.token(f"u{n}"), resume=resume) for n, client in enumerate(clients))
        )
        assert [[*welcome["rooms"]] for welcome in welcomes] == [rooms] * 50
        assert 0 < asked["user_rooms"] <= 12, asked  # rooms are not looked up one by one


async def test_a_resume_with_more_rooms_than_the_limit_joins_and_looks_up_no_more_than_the_limit(
    asked: Counter[str],
) -> None:
    async with serving(limits={"rooms": 3}) as served:
        await served.lobby()
        rooms = {"none1": 0, "lobby": 0, **{f"none{number}": 0 for number in range(2, 2_000)}}
        client = await served.client("ann", resume={"rooms": rooms})
        assert [*client.welcome["rooms"]] == ["lobby"]
        assert asked["heads"] <= 5


async def test_a_single_client_does_not_wait_for_others(asked: Counter[str]) -> None:
    async with serving() as served:
        await served.lobby()
        for number in range(20):
            assert await come_back(served, await served.socket(), number) == []
        assert asked["inboxes"] == asked["statuses"] == 20  # one per user
