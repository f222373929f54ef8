"""Load balancer that polls the readiness of each node and spreads new connections over ready nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Self

from e2e.processes import ask

LOOK_S = 0.1  # between two polls of each node


class _End(asyncio.Protocol):
    """One side of a proxied connection. Received bytes are written to the other side."""

    def __init__(self, open_ends: set[_End], made: Callable[[_End], None]) -> None:
        self.transport: asyncio.Transport | None = None
        self._made = made
        self._open_ends = open_ends
        self.other: _End | None = None
        self._early = b""  # bytes received before the other side was connected

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self._open_ends.add(self)
        self._made(self)

    def data_received(self, data: bytes) -> None:
        if self.other is None or self.other.transport is None:
            self._early += data
        else:
            self.other.transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._open_ends.discard(self)
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()

    def join(self, other: _End) -> None:
        self.other, other.other = other, self
        assert self.transport is not None
        assert other.transport is not None
        other.transport.write(self._early)
        if self.transport.is_closing():
            other.transport.close()


class Balancer:
    """Load balancer on `port`, as a context manager. `nodes` has the ports of nodes and may change at any time."""

    def __init__(self) -> None:
        self.nodes: list[int] = []
        self.ready: list[int] = []
        self.port = 0
        self.refused = 0  # clients without a ready node
        self._turn = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._ends: set[_End] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accepted, "127.0.0.1", 0, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]
        self._spawn(self._keep_looking())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for end in self._ends:
            assert end.transport is not None
            end.transport.abort()
        while self._ends:  # noqa: ASYNC110  (each close takes a turn of the loop)
            await asyncio.sleep(0)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _accepted(self) -> _End:
        return _End(self._ends, lambda client: self._spawn(self._lead_on(client)))

    def _led_on(self) -> _End:
        return _End(self._ends, lambda server: None)

    async def _lead_on(self, client: _End) -> None:
        self._turn += 1
        ready = [*self.ready]
        for number in range(len(ready)):
            port = ready[(self._turn + number) % len(ready)]
            try:
                _, server = await asyncio.get_running_loop().create_connection(self._led_on, "127.0.0.1", port)
            except OSError:
                continue  # the node stopped listening after the last poll; try the next one
            client.join(server)
            return
        self.refused += 1
        assert client.transport is not None
        client.transport.close()

    async def _keep_looking(self) -> None:
        while True:
            nodes = [*self.nodes]
            answers = await asyncio.gather(*map(self._is_ready, nodes))
            self.ready = [port for port, is_ready in zip(nodes, answers, strict=True) if is_ready]
            await asyncio.sleep(LOOK_S)

    @staticmethod
    async def _is_ready(port: int) -> bool:
        with suppress(OSError, IndexError, ValueError):
            return (await ask(port, "GET", "/readyz")).status == 200
        return False
