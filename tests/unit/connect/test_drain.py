"""Drain: clients are sent away evenly, busy ones after their command, and the rest are cut off."""

from __future__ import annotations

import asyncio
from collections import deque

from greendot.connect.drain import FAREWELL_S, SOONEST_MS, SPREAD_MS, Drainer, DrainPace
from greendot.protocol.codes import Close
from unit.node_parts import Client, NodeParts, in_virtual_time, pass_time, settle, under_way

PER_S, GRACE_S = 10, 30.0


def drainer(parts: NodeParts) -> Drainer:
    pace = DrainPace(PER_S, GRACE_S)
    return Drainer(parts.registry.connections, parts.clock, parts.context.tasks, pace)


async def leave(made: Drainer, clients: list[Client]) -> list[int]:
    """Close the sockets of clients that were sent away. Return their retry times."""
    times = []
    for client in [*clients]:
        frames = await client.frames()
        if frames:
            drain, close = frames
            assert (drain["type"], close["code"]) == ("drain", Close.DRAINING)
            times.append(drain["data"]["retry_in_ms"])
            clients.remove(client)
            client.answer_close()
            await settle()
            made.gone()
    return times


@in_virtual_time
async def test_clients_are_sent_away_no_faster_than_others_take_them(parts: NodeParts) -> None:
    made, clients = drainer(parts), [parts.client() for _ in range(20)]
    async with under_way(made.run(60)) as draining:
        await pass_time(0.97)
        early = len(await leave(made, clients))
        assert 9 <= early <= 10
        await pass_time(1.0)
        await leave(made, clients)
        await settle()
        assert (clients, draining.done(), made.begun) == ([], True, True)


@in_virtual_time
async def test_all_are_sent_away_within_half_of_the_time_and_return_over_the_rest(parts: NodeParts) -> None:
    made, clients = drainer(parts), [parts.client() for _ in range(100)]  # 10 s at 10 clients per second
    async with under_way(made.run(4.0)):
        await pass_time(2.1)
        times = await leave(made, clients)
    assert len(times) == 100
    rest_ms = 8_000
    assert all(SOONEST_MS <= time <= SOONEST_MS + rest_ms for time in times)
    assert max(times) - min(times) > rest_ms / 2


@in_virtual_time
async def test_a_client_returns_before_half_of_its_grace_is_over(parts: NodeParts) -> None:
    made, clients = drainer(parts), [parts.client() for _ in range(1_000)]
    async with under_way(made.run(4.0)):
        await pass_time(2.5)
        for client in clients:
            client.answer_close()
    times = [frames[0]["data"]["retry_in_ms"] for frames in [await client.frames() for client in clients[:100]]]
    assert max(times) <= SOONEST_MS + GRACE_S * 500
    assert max(times) > SOONEST_MS + SPREAD_MS


@in_virtual_time
async def test_a_client_with_a_command_under_way_is_sent_away_when_it_is_done(parts: NodeParts) -> None:
    made, busy, idle = drainer(parts), parts.client(), parts.client()
    busy.connection.waiting = deque()
    async with under_way(made.run(60)):
        await pass_time(3)
        assert (len(await idle.frames()), await busy.frames()) == (2, [])
        busy.connection.waiting = None
        await pass_time(0.1)
        assert len(await busy.frames()) == 2
        for client in (busy, idle):
            client.answer_close()


@in_virtual_time
async def test_a_client_whose_command_is_not_done_in_time_is_sent_away_all_the_same(parts: NodeParts) -> None:
    made, busy = drainer(parts), parts.client()
    busy.connection.waiting = deque()
    async with under_way(made.run(4.0)):
        await pass_time(4.0 - FAREWELL_S - 0.1)
        assert await busy.frames() == []
        await pass_time(0.2)
        assert [frame["type"] for frame in await busy.frames()] == ["drain", "close"]
        busy.answer_close()


@in_virtual_time
async def test_sockets_that_stay_are_cut_off_at_the_end(parts: NodeParts) -> None:
    made, client = drainer(parts), parts.client()
    began = parts.clock.monotonic()
    await made.run(3.0)
    await settle()
    assert (parts.registry.connections, client.connection.closing) == ({}, True)
    assert parts.clock.monotonic() - began <= 3.0 + 0.1


@in_virtual_time
async def test_a_node_without_clients_is_drained_at_once(parts: NodeParts) -> None:
    began = asyncio.get_running_loop().time()
    await drainer(parts).run(60)
    assert asyncio.get_running_loop().time() == began


@in_virtual_time
async def test_all_clients_or_those_of_a_tenant_are_disconnected(parts: NodeParts) -> None:
    made = drainer(parts)
    ann, bob, stranger = parts.session("ann"), parts.session("bob", tenant="acme"), parts.client()
    assert made.disconnect_all(Close.DISCONNECTED, "by the operator", "acme") == 1
    assert [await client.closed() for client in (ann, bob, stranger)] == [None, Close.DISCONNECTED, None]
    assert made.disconnect_all(Close.DRAINING, "moved", None) == 2
    assert [frame["type"] for frame in await ann.frames()] == ["drain", "close"]
    assert await stranger.frames() == []
