"""Floods of WebSocket frames: others are not delayed, memory stays, and the sender is closed and counted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from e2e.processes import Process, running, until
from greendot.testing import WireClient
from greendot.testing.wire import TEXT, make_frame
from hostile.flood import FRAMES, Flood, flood, flood_frames, hello, upgrade
from hostile.probe import CLIENTS, FLOOD_S, LONG, metric, probing

HALF_CLOSED = 200
ROOM_TURNS = 10_000
USERS_S = 15.0 if LONG else 2.0  # closed after ten full seconds, which e2e/test_framing.py tests in virtual time
USED = 1 / 3  # allowed share of a processor, for nine floods and the probe
pytestmark = pytest.mark.alone


@pytest.mark.parametrize("kind", FRAMES)
async def test_control_frames_of_strangers_close_them_4502(tmp_path: Path, kind: str) -> None:
    async with running(tmp_path) as server:
        async with probing(server) as probe:
            outcomes = await flood_frames(server.port, kind, FLOOD_S, strangers=10, ends=10)
        probe.noticed_nothing()
        assert [outcome.close_code for outcome in outcomes] == [4502] * 10
        assert await metric(server, "realtime_flood_closed_total") == 10


async def test_control_frames_of_users_are_read_slowly(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        used_s = await metric(server, "process_cpu_seconds_total")
        async with probing(server) as probe, asyncio.TaskGroup() as group:
            floods = [
                group.create_task(flood_frames(server.port, kind, USERS_S, tokens=[server.token(f"m{n}")] * 3))
                for n, kind in enumerate(FRAMES)
            ]
        outcomes = [outcome for flood in floods for outcome in flood.result()]
        probe.noticed_nothing()
        assert await metric(server, "realtime_reading_paused_total") >= 9
        # The server is idle most of the time.
        assert await metric(server, "process_cpu_seconds_total") - used_s < USERS_S * USED
        if LONG:
            assert [outcome.close_code for outcome in outcomes] == [4003] * 9
            assert await metric(server, "realtime_flood_closed_total") == 9


async def test_strangers_that_reconnect_at_once_after_a_close_do_not_slow_other_clients(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        async with probing(server) as probe:
            outcomes = await flood_frames(server.port, "pongs", FLOOD_S, strangers=10, returns=True, ends=20)
        probe.noticed_nothing()
        closed = [outcome for outcome in outcomes if outcome.ended != "open"]
        assert len(closed) >= 20
        assert {outcome.close_code for outcome in closed} == {4502}


async def test_frames_of_64_kib_that_arrive_byte_by_byte_cost_little(tmp_path: Path) -> None:
    frame = make_frame(TEXT, b'{"type":"heartbeat","x":"%b"}' % (b"x" * (65_536 - 27)))
    async with running(tmp_path) as server:
        openings = [[upgrade(), hello(server.token(f"m{number}"))] for number in range(2)]
        async with probing(server) as probe:
            outcomes = await flood(
                Flood(server.port, openings, frame, FLOOD_S, piece=1, sends=len(frame), answer=b'"heartbeat.ack"')
            )
        probe.noticed_nothing()
        # These frames are valid: each whole frame is answered, and no client is closed.
        for outcome in outcomes:
            assert outcome.received.count(b'"heartbeat.ack"') == outcome.sent // len(frame)
        assert {outcome.ended for outcome in outcomes} == {"open"}


async def half_closed(server: Process, number: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a WebSocket and close its sending side. The other side can still be read."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    for step in (upgrade(), hello(server.token(f"m{number}"))):
        writer.write(step.send)
        received = b""
        while step.answer not in received:
            received += await reader.read(65_536)
    writer.write_eof()
    return reader, writer


async def test_half_closed_websockets_end_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        async with probing(server) as probe:
            sockets = [await half_closed(server, number) for number in range(HALF_CLOSED)]
            for reader, writer in sockets:
                await reader.read()  # to its end
                writer.close()
            assert await metric(server, "ws_connections") == CLIENTS  # connections of the probe
            assert await metric(server, "ws_closed_total") == HALF_CLOSED
        probe.noticed_nothing()


class Counter:
    """Reader that counts replies without keeping them."""

    def __init__(self, client: WireClient) -> None:
        self.replies = 0
        self._rest = b""
        self.task = asyncio.create_task(client.read_raw(self._add))

    def _add(self, data: bytes) -> None:
        data = self._rest + data
        self.replies += data.count(b'"type":"reply"')
        self._rest = data[-13:]


async def test_10_000_joins_and_leaves_of_a_room_do_not_slow_other_clients(tmp_path: Path) -> None:
    pair = [{"type": "room.join", "room": "lobby", "id": 1}, {"type": "room.leave", "room": "lobby", "id": 2}]
    frames = b"".join(make_frame(TEXT, msgspec.json.encode(command)) for command in pair)
    async with running(tmp_path, GREENDOT_LIMITS_ENABLED="false") as server:
        assert (await server.ask("PUT", "/v1/rooms/lobby", {"open": True})).status == 200
        listener, rude = await server.client("listener"), await server.client("rude")
        await listener.request(type="room.join", room="lobby")
        heard, replies = Counter(listener), Counter(rude)
        async with probing(server) as probe:
            rude.send_bytes(frames * ROOM_TURNS)
            await until(lambda: replies.replies == 2 * ROOM_TURNS, 40)
        probe.noticed_nothing()
        for counter, client in ((heard, listener), (replies, rude)):
            await client.end()
            await counter.task


async def test_joins_and_leaves_at_full_speed_are_refused_beyond_the_limit(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        assert (await server.ask("PUT", "/v1/rooms/lobby", {"open": True})).status == 200
        commands = [{"type": kind, "room": "lobby", "id": 1} for kind in ("room.join", "room.leave")]
        frames = b"".join(make_frame(TEXT, msgspec.json.encode(command)) for command in commands)
        openings = [[upgrade(), hello(server.token(f"m{number}"))] for number in range(10)]
        async with probing(server) as probe:
            outcomes = await flood(Flood(server.port, openings, frames, FLOOD_S, hears=b'"rate_limited"'))
        probe.noticed_nothing()
        assert all(b'"rate_limited"' in outcome.received for outcome in outcomes)
        assert await metric(server, "realtime_rate_limited_connection_total") >= 10
        assert await metric(server, "realtime_reading_paused_total") >= 10
