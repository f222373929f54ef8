"""Well-behaved clients during a flood: their latencies and the server's memory.

Delays by other programs do not count: the time that the server or this process waited for a processor is subtracted.
The server's own work in that time counts in full.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from e2e.processes import Process, ask
from greendot.testing import WireClient
from waited import waited_s

LONG = bool(os.environ.get("HOSTILE"))  # set by `make hostile`
FLOOD_S = 5.0 if LONG else 1.0
CLIENTS = 3
EVERY_S = 0.02  # between two commands of a client: within its connection's limit
MEMORY_EVERY_S = 0.1
LEAST = 150  # commands: after a flood that is stopped at once, the probe continues until then
P99_MS = 200.0  # allowed under any flood
GROWTH = 1.5  # allowed ratio to the memory before


class Client:
    """Client that sends commands at fixed times without waiting for replies, so that a stall delays many of them."""

    def __init__(self, server: Process, client: WireClient) -> None:
        self._server = server
        self._client = client
        # Send time, and the time processes had waited for a processor by then.
        self.sent: list[tuple[float, float]] = []
        self.latencies_s: list[float] = []

    def _delayed_s(self) -> float:
        return waited_s(self._server.pid, os.getpid())

    async def send(self, after_s: float) -> None:
        await asyncio.sleep(after_s)
        due = time.monotonic()
        while True:
            self.sent.append(
                (time.monotonic(), self._delayed_s())
            )  # actual time, not due time: this process may be late, too
            self._client.send(type="activity", id=len(self.sent) - 1)
            due += EVERY_S
            await asyncio.sleep(due - time.monotonic())

    async def receive(self) -> None:
        while True:
            reply = await self._client.receive("reply")
            assert reply["id"] == len(self.latencies_s)  # in order
            at, delayed_s = self.sent[len(self.latencies_s)]
            took_s = time.monotonic() - at
            self.latencies_s.append(max(0.0, took_s - (self._delayed_s() - delayed_s)))

    async def end(self) -> None:
        await self._client.end()


class Probe:
    """Some clients, and the memory of the server."""

    def __init__(self, server: Process, clients: list[Client]) -> None:
        self._server = server
        self._clients = clients
        self.before_kb = self.most_kb = server.resident_kb

    async def weigh(self) -> None:
        while True:
            self.most_kb = max(self.most_kb, self._server.resident_kb)
            await asyncio.sleep(MEMORY_EVERY_S)

    async def settle(self) -> None:
        """Wait until all commands are answered."""
        async with asyncio.timeout(30):
            while any(len(client.latencies_s) < len(client.sent) for client in self._clients):  # noqa: ASYNC110  (counted by other tasks)
                await asyncio.sleep(0.001)
        self.most_kb = max(self.most_kb, self._server.resident_kb)

    @property
    def latencies_s(self) -> list[float]:
        return sorted(latency for client in self._clients for latency in client.latencies_s)

    @property
    def p99_ms(self) -> float:
        latencies = self.latencies_s
        return latencies[int(len(latencies) * 0.99)] * 1000

    @property
    def growth(self) -> float:
        """Return the server's largest memory as a multiple of the memory before."""
        return self.most_kb / self.before_kb

    def noticed_nothing(self) -> None:
        """Fail if the flood slowed the clients down or the server's memory grew too much."""
        assert self.p99_ms < P99_MS, f"p99 {self.p99_ms:.0f} ms, worst {self.latencies_s[-1] * 1000:.0f} ms"
        assert self.growth < GROWTH, f"memory {self.before_kb} → {self.most_kb} kB"


@asynccontextmanager
async def probing(server: Process) -> AsyncIterator[Probe]:
    """Measure during the block."""
    clients = [Client(server, await server.client(f"probe{number}")) for number in range(CLIENTS)]
    probe = Probe(server, clients)
    receiving = [asyncio.create_task(client.receive()) for client in clients]
    sending = [asyncio.create_task(client.send(EVERY_S * n / CLIENTS)) for n, client in enumerate(clients)]
    sending.append(asyncio.create_task(probe.weigh()))
    try:
        yield probe
        while len(probe.latencies_s) < LEAST and not any(task.done() for task in receiving):  # noqa: ASYNC110  (counted by other tasks)
            await asyncio.sleep(EVERY_S)
        await _end(*sending)
        await probe.settle()
    finally:
        await _end(*receiving, *sending)
        for client in clients:
            await client.end()


async def _end(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if result is not None and not isinstance(result, asyncio.CancelledError):
            raise result


async def metric(server: Process, name: str) -> float:
    """Return the sum of a metric over its labels, or 0 if it does not exist yet."""
    text = (await ask(server.port, "GET", "/metrics")).body.decode()
    return sum(float(value) for value in re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE))
