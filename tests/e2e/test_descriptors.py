"""A server that runs out of file descriptors refuses clients, and keeps the others and its own work."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from e2e.processes import Process, ask, exchange, running, until
from greendot.testing import WireClient
from greendot.transport.ingress_model import descriptor_limits

FILES = 200
LIMITS = descriptor_limits(FILES)
UPGRADE = (
    b"GET /v1/connect HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


@pytest.fixture
def few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start servers with a low limit of open files."""
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nulimit -n {FILES}\nexec {sys.executable} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


def descriptors(server: Process) -> int:
    return len([*Path(f"/proc/{server.pid}/fd").iterdir()])


async def accepted(server: Process, user: str) -> WireClient | None:
    """Connect a client; return None if the server answers 503."""
    try:
        return await server.client(user)
    except ConnectionError as error:
        if not str(error).startswith("HTTP/1.1 503 "):
            raise
        return None


async def refused(server: Process) -> float:
    """Return the value of the metric."""
    shown = (await ask(server.port, "GET", "/metrics")).body.decode()
    return float(next(line for line in shown.splitlines() if line.startswith("realtime_refused_descr")).split()[-1])


async def test_clients_are_refused_before_the_descriptors_run_out(few_files: None, tmp_path: Path) -> None:
    async with running(tmp_path, PYTHONPATH="") as server:
        clients = list[WireClient]()
        while client := await accepted(server, f"u{len(clients)}"):
            clients.append(client)
        assert descriptors(server) >= LIMITS.clients - 5
        answer = await exchange(server.port, UPGRADE)
        assert (answer.status, answer.body) == (503, b"this server has too many connections; retry later\n")
        assert 5 <= int(answer.headers["retry-after"]) <= 10
        assert (await ask(server.port, "GET", "/livez")).status == 200, "a probe must not kill a full server"
        assert await refused(server) == 2

        strangers = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(FILES)]
        await until(lambda: any(reader.at_eof() for reader, _ in strangers))
        assert descriptors(server) < FILES, "the server needs descriptors for its own work"
        await clients[0].request(type="presence.get", users=["u1"])

        for _, writer in strangers:
            writer.close()
        for client in clients[-3:]:
            await client.end()
        await until(lambda: descriptors(server) < LIMITS.clients)
        clients.append(await server.client("late"))
        for client in clients:
            await client.end()
