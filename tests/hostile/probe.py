"""A well-behaved client beside a flood: how long its replies take, and how large the server becomes meanwhile."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from e2e.processes import Process, ask
from greendot.testing import WireClient

EVERY_S = 0.02  # between two commands: within the limit of a connection
MEMORY_EVERY_S = 0.1
LEAST = 150  # commands: a flood that is stopped at once is followed by a look at how the server does
P99_MS = 200.0  # at most, whatever others send
GROWTH = 1.5  # times the memory before, at most


class Probe:
    """Commands at fixed times, whether or not the ones before were answered: a stall counts with all it delays."""

    def __init__(self, server: Process, client: WireClient) -> None:
        self._server = server
        self._client = client
        self._sent: list[float] = []
        self.latencies_s: list[float] = []
        self.before_kb = self.most_kb = server.resident_kb

    async def send(self) -> None:
        due = time.monotonic()
        while True:
            self._sent.append(time.monotonic())  # not when it was due: this process may be late, too
            self._client.send(type="activity", id=len(self._sent) - 1)
            due += EVERY_S
            await asyncio.sleep(due - time.monotonic())

    async def receive(self) -> None:
        while True:
            reply = await self._client.receive("reply")
            assert reply["id"] == len(self.latencies_s)  # in order
            self.latencies_s.append(time.monotonic() - self._sent[len(self.latencies_s)])

    async def weigh(self) -> None:
        while True:
            self.most_kb = max(self.most_kb, self._server.resident_kb)
            await asyncio.sleep(MEMORY_EVERY_S)

    async def settle(self) -> None:
        """Wait until every command is answered."""
        async with asyncio.timeout(30):
            while len(self.latencies_s) < len(self._sent):  # noqa: ASYNC110  (counted by another task)
                await asyncio.sleep(0.001)
        self.most_kb = max(self.most_kb, self._server.resident_kb)

    @property
    def p99_ms(self) -> float:
        return sorted(self.latencies_s)[int(len(self.latencies_s) * 0.99)] * 1000

    @property
    def growth(self) -> float:
        """The most memory the server had, as a multiple of that before."""
        return self.most_kb / self.before_kb

    def noticed_nothing(self) -> None:
        """Fail if the flood slowed this client down or made the server larger than it may."""
        assert self.p99_ms < P99_MS, f"p99 {self.p99_ms:.0f} ms, worst {max(self.latencies_s) * 1000:.0f} ms"
        assert self.growth < GROWTH, f"memory {self.before_kb} → {self.most_kb} kB"


@asynccontextmanager
async def probing(server: Process, user: str = "probe") -> AsyncIterator[Probe]:
    """Measure while the block runs."""
    client = await server.client(user)
    probe = Probe(server, client)
    receiving = asyncio.create_task(probe.receive())
    sending = [asyncio.create_task(probe.send()), asyncio.create_task(probe.weigh())]
    try:
        yield probe
        while len(probe.latencies_s) < LEAST and not receiving.done():  # noqa: ASYNC110  (counted by another task)
            await asyncio.sleep(EVERY_S)
        await _end(*sending)
        await probe.settle()
    finally:
        await _end(receiving, *sending)
        await client.end()


async def _end(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if result is not None and not isinstance(result, asyncio.CancelledError):
            raise result


async def metric(server: Process, name: str) -> float:
    """Read a metric, all its labels together; 0 if there is none of that name yet."""
    text = (await ask(server.port, "GET", "/metrics")).body.decode()
    return sum(float(value) for value in re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE))
