"""Large rooms get counts instead of names, at a limited rate. Real sockets, virtual time, default settings."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from greendot.testing import Served, WireClient, serving


async def crowd(served: Served, first: int, last: int) -> list[WireClient]:
    """Connect the users `u<first>` … `u<last>` to the lobby at once."""
    clients = await asyncio.gather(*(served.joined(f"u{n}", comings=True) for n in range(first, last + 1)))
    await served.settle()
    return clients


async def heard(client: WireClient) -> tuple[Counter[str], list[int]]:
    """Return the number of events of each type since the last call, and the values of the counts."""
    frames: list[dict[str, Any]] = await client.quiet()
    counts = [frame["data"]["count"] for frame in frames if frame["type"].endswith(".count")]
    return Counter(frame["type"] for frame in frames), counts


async def test_a_room_of_a_hundred_receives_names_and_a_larger_one_a_count() -> None:
    async with serving() as served:
        await served.lobby()
        first = (await crowd(served, 1, 100))[0]
        types, _ = await heard(first)
        assert types == {"room.entered": 99}
        await crowd(served, 101, 101)
        assert await heard(first) == ({"room.count": 1}, [101])


async def test_a_burst_of_enters_into_a_large_room_is_a_count_a_second() -> None:
    async with serving() as served:
        await served.lobby()
        listeners = await crowd(served, 1, 120)
        await served.advance(2)
        await asyncio.gather(*map(heard, listeners))
        sent = served.node.metrics.realtime_socket_send_total
        newcomers = await crowd(served, 121, 420)
        await served.advance(1)
        for listener in listeners:
            types, counts = await heard(listener)
            assert types.keys() == {"room.count"}
            assert counts[-1] == 420
            assert len(counts) <= 2
        # Two counts for each listener, a welcome and a reply for each new client, and a heartbeat reply for each
        # checked one.
        assert served.node.metrics.realtime_socket_send_total - sent <= 2 * 420 + 2 * 300 + 120

        for newcomer in newcomers:
            newcomer.send(type="bye")
        await asyncio.gather(*(newcomer.closed() for newcomer in newcomers))
        await served.until_gone(120)
        await served.advance(1)
        for listener in listeners:
            types, counts = await heard(listener)
            assert types.keys() == {"room.count"}
            assert counts[-1] == 120
            assert len(counts) <= 3


async def test_people_who_come_all_the_time_are_a_count_a_second_for_as_long_as_they_come() -> None:
    async with serving() as served:
        await served.lobby()
        listener = (await crowd(served, 1, 101))[0]
        await served.advance(2)
        await heard(listener)
        for number in range(40):
            await crowd(served, 200 + 2 * number, 201 + 2 * number)
            await served.advance(0.25)
        _, counts = await heard(listener)
        assert len(counts) in (10, 11)
        await served.advance(1)
        _, last = await heard(listener)
        assert (counts + last)[-1] == 181


async def test_a_large_room_receives_the_number_of_typing_users_once_a_second() -> None:
    async with serving() as served:
        await served.lobby()
        clients = await crowd(served, 1, 150)
        await served.advance(2)
        await asyncio.gather(*map(heard, clients))
        for _ in range(2):  # and again after three seconds, as clients do
            for client in clients[50:]:
                client.send(type="typing.start", room="lobby")
                await client.drain()
            await asyncio.gather(*map(heard, clients[50:]))
            await served.advance(3)
        quiet = [await heard(client) for client in clients[:50]]
        assert {*map(str, quiet)} == {str(quiet[0])}
        types, counts = quiet[0]
        assert types.keys() == {"typing.count"}
        assert len(counts) <= 5
        assert counts[-1] == 100
        await served.advance(3)
        types, counts = await heard(clients[0])
        assert (types.keys(), counts[-1]) == ({"typing.count"}, 0)
        assert len(counts) <= 3
