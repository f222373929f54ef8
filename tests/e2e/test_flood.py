"""Flooded room: the flooder gets errors and other rooms are not slowed down. Real processes, real time."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import cycle
from pathlib import Path
from statistics import median, quantiles

import msgspec
import pytest

from e2e.flooder import Flood
from e2e.processes import PATIENCE_S, Process, running
from greendot.testing import WireClient
from greendot.testing.server import COMINGS
from waited import waited_by_threads_s, waited_s

LIMIT = 100  # messages or signals per second in a room
FLOOD = 10 * LIMIT
LISTENERS = 20  # in the flooded room
CALM = [f"calm{number}" for number in range(4)]  # used in turn: each stays within its limit
BURST_S = 0.05
ROUNDS, MOST_ROUNDS = 6, 72  # more rounds only if noise hides the result
ROUND_S, EVERY_S = 0.25, 0.006
SLOWER = 1.5  # allowed ratio of latencies
LEAST_S = 0.0002  # allowed difference between the clocks of a round trip
COMMANDS = {"room.send": "messages", "signal.send": "signals"}


@asynccontextmanager
async def limited(folder: Path) -> AsyncIterator[Process]:
    """Run a server with limits for rooms only, so that one client can flood a room."""
    limits = {"COMMANDS_PER_S": 2_000, "COMMANDS_BURST": 2_000, "ROOM_SENDS_PER_S": LIMIT, "ROOM_SIGNALS_PER_S": LIMIT}
    limits |= {"BURST_S": BURST_S, "USER_COMMANDS_PER_S": 0, "USER_SENDS_PER_S": 0, "USER_SIGNALS_PER_S": 0}
    async with running(folder, **{f"GREENDOT_LIMITS_{key}": str(value) for key, value in limits.items()}) as server:
        for room in ("flooded", *CALM):
            assert (await server.ask("PUT", f"/v1/rooms/{room}", {"open": True})).status == 200
        yield server


class Flooding:
    """Process of the flooder, which floods between `begin` and `end`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._input, self._output = process.stdin, process.stdout

    async def begin(self) -> None:
        self._input.write(b"begin\n")
        await self._input.drain()

    async def end(self) -> Flood:
        self._input.write(b"end\n")
        return msgspec.json.decode(await asyncio.wait_for(self._output.readline(), PATIENCE_S), type=Flood)


@asynccontextmanager
async def flooding(server: Process, command: str, rate: float = FLOOD) -> AsyncIterator[Flooding]:
    tokens = [server.token(user) for user in ("mallory", *(f"listener{number}" for number in range(LISTENERS)))]
    arguments = str(server.port), "flooded", command, str(rate), *tokens
    program = Path(__file__).with_name("flooder.py")
    process = await asyncio.create_subprocess_exec(sys.executable, str(program), *arguments, stdin=PIPE, stdout=PIPE)
    try:
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), PATIENCE_S) == b"ready\n"
        yield Flooding(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def elsewhere(server: Process, user: str) -> WireClient:
    """Connect a client that joins the calm rooms."""
    client = await server.client(user)
    client.deaf_to = COMINGS
    for room in CALM:
        await client.request(type="room.join", room=room)
    return client


async def latencies(server: int, sender: WireClient, receiver: WireClient, command: str) -> list[float]:
    """Return the milliseconds from sending to receiving in a calm room, over one round.

    Time in which the server or this process waited for a processor is subtracted: beside a busy core, the flooder's own
    process takes that time.
    """
    found, end, rooms = [], time.perf_counter() + ROUND_S, cycle(CALM)
    kind, event = ({"kind": "wave"}, "signal") if command == "signal.send" else ({}, "room.message")
    while (begun := time.perf_counter()) < end:
        before_s = waited_by_threads_s(server) + waited_s(os.getpid())
        sender.send(type=command, room=next(rooms), body={}, **kind)
        await receiver.receive(event)
        took_s = time.perf_counter() - begun
        waiting_s = waited_by_threads_s(server) + waited_s(os.getpid()) - before_s
        found.append(max(took_s - waiting_s, LEAST_S) * 1000)
        if command == "room.send":
            await sender.receive("room.message")
        await asyncio.sleep(EVERY_S)
    return found


def p99(of: list[float]) -> float:
    return quantiles(of, n=100)[98]


class Rounds:
    """Short rounds without and with a flood in turn, so that other load on the machine affects both."""

    def __init__(self) -> None:
        self.quiet: list[float] = []
        self.flooded: list[float] = []
        self.floods: list[Flood] = []

    async def one(self, server: int, pair: tuple[WireClient, WireClient], flooder: Flooding, command: str) -> None:
        self.quiet.append(p99(await latencies(server, *pair, command)))
        await flooder.begin()
        self.flooded.append(p99(await latencies(server, *pair, command)))
        self.floods.append(await flooder.end())

    @property
    def slower(self) -> float:
        """Return the ratio of the slowest latencies with and without a flood, by the medians of the rounds."""
        return median(self.flooded) / median(self.quiet)


@pytest.mark.alone
@pytest.mark.parametrize(("command", "what"), COMMANDS.items())
async def test_a_flooder_gets_errors_and_other_rooms_do_not_notice(tmp_path: Path, command: str, what: str) -> None:
    rounds = Rounds()
    async with (
        limited(tmp_path) as server,
        flooding(server, command) as flooder,
        await elsewhere(server, "alice") as alice,
        await elsewhere(server, "bob") as bob,
    ):
        while len(rounds.floods) < ROUNDS or (rounds.slower > SLOWER and len(rounds.floods) < MOST_ROUNDS):
            await rounds.one(server.pid, (alice, bob), flooder, command)
    for flood in rounds.floods:
        assert not flood.closed
        assert flood.codes == {"rate_limited"}
        assert flood.reasons == {f"room `flooded` receives more than {LIMIT} {what}/s"}
        assert min(flood.waits_ms) > 0
        assert 0 < flood.granted <= LIMIT * (flood.seconds + BURST_S) + 1
        assert flood.granted + flood.refused == flood.sent
    assert rounds.slower <= SLOWER, (rounds.quiet, rounds.flooded)
