"""Fair shares of the loop: frames of a connection in one turn, and pauses for connections that flood."""

from __future__ import annotations

import asyncio

from greendot.limits.frame_limit_model import CommandLimit
from greendot.node.session import Connection
from greendot.transport.flow_control import SHARE, FlowControl
from unit.node_parts import Client, NodeParts, in_virtual_time, pass_time, settle


class Flow(FlowControl):
    """Flow control on the parts of a node, with a list of connections that were resumed."""

    def __init__(self, parts: NodeParts) -> None:
        self.went_on: list[Connection] = []
        super().__init__(self.went_on.append, parts.clock.monotonic, parts.metrics)

    def frames(self, client: Client, count: int) -> list[bool]:
        """Count `count` frames in this turn of the loop."""
        for _ in range(count):
            if client.connection.limit is not None:
                client.connection.limit.admit(client.connection._owner.now())
        return [self.count(client.connection) for _ in range(count)]


@in_virtual_time
async def test_frames_beyond_the_share_of_a_turn_are_not_handled_and_reading_pauses(parts: NodeParts) -> None:
    flow, client = Flow(parts), parts.client()
    assert flow.frames(client, SHARE) == [True] * SHARE
    assert client.socket.reading
    assert flow.frames(client, 3) == [False] * 3
    assert not client.socket.reading
    await asyncio.sleep(0)
    assert client.socket.reading


@in_virtual_time
async def test_the_share_begins_anew_with_every_turn(parts: NodeParts) -> None:
    flow, client = Flow(parts), parts.client()
    for _ in range(3):
        assert all(flow.frames(client, SHARE))
        await asyncio.sleep(0)
    assert parts.metrics.realtime_reading_paused_total == 0


@in_virtual_time
async def test_a_connection_is_not_charged_for_frames_of_others(parts: NodeParts) -> None:
    flow, ann, bob = Flow(parts), parts.client(), parts.client()
    for _ in range(SHARE):
        assert flow.frames(ann, 1) + flow.frames(bob, 1) == [True, True]
    assert all(flow.frames(ann, SHARE))


@in_virtual_time
async def test_a_connection_over_its_limit_is_not_read_for_as_long_as_it_flooded(parts: NodeParts) -> None:
    flow, client = Flow(parts), parts.client(CommandLimit(10, 10, parts.clock.monotonic()))
    flow.frames(client, SHARE + 46)  # 100 beyond the burst of 10: half a second of 20 times the rate
    await pass_time(0.4)
    assert (client.socket.reading, parts.metrics.realtime_reading_paused_total) == (False, 1)
    await pass_time(0.1)
    assert client.socket.reading


class NotedLimit(CommandLimit):
    """Command limit that records its pauses."""

    pauses: tuple[float, ...] = ()

    def paused(self, for_s: float) -> None:
        self.pauses += (for_s,)
        super().paused(for_s)


@in_virtual_time
async def test_a_pause_counts_for_the_limit_with_its_whole_length(parts: NodeParts) -> None:
    limit = NotedLimit(10, 10, parts.clock.monotonic())
    flow, client = Flow(parts), parts.client(limit)
    flow.frames(client, SHARE + 46)
    await pass_time(0.4)
    assert limit.pauses == ()
    await pass_time(2)
    assert [round(pause, 3) for pause in limit.pauses] == [0.5]


@in_virtual_time
async def test_a_connection_that_is_closing_is_read_again_at_once(parts: NodeParts) -> None:
    flow, client = Flow(parts), parts.client(CommandLimit(10, 10, parts.clock.monotonic()))
    flow.frames(client, 200)
    client.connection.close(4000)
    await settle()
    assert (client.socket.reading, parts.metrics.realtime_reading_paused_total) == (True, 0)


@in_virtual_time
async def test_a_connection_that_is_paused_for_its_backlog_too_stays_paused(parts: NodeParts) -> None:
    flow, client = Flow(parts), parts.client()
    flow.frames(client, SHARE + 1)
    client.connection.pause_reading()
    await settle()
    assert not client.socket.reading
    client.connection.resume_reading()
    assert client.socket.reading


@in_virtual_time
async def test_connections_that_wait_go_on_in_the_next_turn_once_and_in_order(parts: NodeParts) -> None:
    flow, ann, bob = Flow(parts), parts.client(), parts.client()
    flow.wait(ann.connection)
    flow.wait(bob.connection)
    assert flow.went_on == []
    await asyncio.sleep(0)
    assert flow.went_on == [ann.connection, bob.connection]
    await settle()
    assert len(flow.went_on) == 2


@in_virtual_time
async def test_a_connection_that_waits_again_when_it_goes_on_has_another_turn(parts: NodeParts) -> None:
    flow, ann = Flow(parts), parts.client()
    turns = []

    def go_on(connection: Connection) -> None:
        turns.append(connection)
        if len(turns) < 3:
            flow.wait(connection)

    flow._go_on = go_on
    flow.wait(ann.connection)
    for expected in (1, 2, 3):
        await asyncio.sleep(0)
        assert len(turns) == expected
