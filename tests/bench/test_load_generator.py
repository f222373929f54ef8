"""Load generator with faulty servers."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from measure import sources

UPGRADED = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
SUBSCRIBERS = 3

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler is installed")


@pytest.fixture(scope="session")
def load(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("load") / "load"
    files = map(str, sources("load"))
    subprocess.run(["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", str(program), *files], check=True)
    return program


def frame(text: str) -> bytes:
    payload = text.encode()
    size = bytes([len(payload)]) if len(payload) < 126 else b"\x7e" + len(payload).to_bytes(2, "big")
    return b"\x81" + size + payload


class Broadcaster:
    """Server of the dialect `app` that joins two messages into one frame, or omits one delivery."""

    def __init__(self, tell: Callable[[list[asyncio.StreamWriter], str, int], None]) -> None:
        self._subscribers: list[asyncio.StreamWriter] = []
        self._tell = tell
        self._told = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await reader.readuntil(b"\r\n\r\n")
            writer.write(UPGRADED)
            if request.startswith(b"GET /sub "):
                self._subscribers.append(writer)
            writer.write(frame("welcome"))
            while text := await self._next(reader):
                self._told += 1
                self._tell(self._subscribers, text, self._told)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _next(self, reader: asyncio.StreamReader) -> str:
        opcode, size = await reader.readexactly(2)
        size &= 0x7F
        size = int.from_bytes(await reader.readexactly(2), "big") if size == 126 else size
        mask, payload = await reader.readexactly(4), await reader.readexactly(size)
        text = bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))
        return text.decode() if opcode == 0x81 else ""


@asynccontextmanager
async def serving(tell: Callable[[list[asyncio.StreamWriter], str, int], None]) -> AsyncIterator[int]:
    server = await asyncio.start_server(Broadcaster(tell).serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def broadcast(load: Path, port: int, *flags: str) -> tuple[list[dict[str, Any]], str]:
    """Run the generator and return its output lines and its error."""
    words = ["broadcast", "--dialect", "app", "--port", str(port), "--connections", str(SUBSCRIBERS)]
    timing = ["--warmup", "0", "--seconds", "0.2"]
    pipe = asyncio.subprocess.PIPE
    program = await asyncio.create_subprocess_exec(load, *words, *timing, *flags, stdout=pipe, stderr=pipe)
    try:
        said, trouble = await program.communicate()
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
    assert (program.returncode == 0) == (not trouble)
    return [json.loads(line) for line in said.splitlines()], trouble.decode()


async def test_messages_joined_into_one_frame_are_counted_one_by_one(load: Path) -> None:
    waiting: list[str] = []
    messages = 0

    def tell(subscribers: list[asyncio.StreamWriter], text: str, number: int) -> None:
        nonlocal messages
        messages = number
        waiting.append(text)
        if len(waiting) == 2:
            for writer in subscribers:
                writer.write(frame("\n".join(waiting)))
            waiting.clear()

    async with serving(tell) as port:
        (got,), trouble = await broadcast(load, port, "--in-flight", "2")
    assert trouble == ""
    assert got["in_flight"] == 2
    assert got["deliveries_per_s"] * got["seconds"] == pytest.approx(messages * SUBSCRIBERS, abs=3 * SUBSCRIBERS)


async def test_a_single_missing_delivery_fails_the_round_with_a_word(load: Path) -> None:
    def tell(subscribers: list[asyncio.StreamWriter], text: str, number: int) -> None:
        for writer in subscribers[1:] if number == 20 else subscribers:
            writer.write(frame(text))

    async with serving(tell) as port:
        lines, trouble = await broadcast(load, port, "--in-flight", "4")
    assert lines == []
    assert f"of {SUBSCRIBERS} subscribers, then nothing for 5 s" in trouble


async def test_several_numbers_in_flight_and_the_age_at_half_load_are_one_run(load: Path) -> None:
    def tell(subscribers: list[asyncio.StreamWriter], text: str, number: int) -> None:
        for writer in subscribers:
            writer.write(frame(text))

    async with serving(tell) as port:
        lines, trouble = await broadcast(load, port, "--in-flight", "1,16", "--latency", "0.2")
    assert trouble == ""
    assert [got["mode"] for got in lines] == ["broadcast", "broadcast", "latency"]
    assert lines[2]["rate"] == pytest.approx(lines[1]["messages_per_s"] / 2, rel=0.01)
    assert 0 < lines[2]["p50_ms"] <= lines[2]["p99_ms"] <= lines[2]["p999_ms"] <= lines[2]["max_ms"]


async def test_a_server_too_slow_for_a_load_is_reported_as_too_slow(load: Path) -> None:
    def tell(subscribers: list[asyncio.StreamWriter], text: str, number: int) -> None:
        for writer in subscribers:
            asyncio.get_running_loop().call_later(0.05, writer.write, frame(text))

    async with serving(tell) as port:
        lines, trouble = await broadcast(load, port, "--in-flight", "1,1000", "--patience", "1")
    assert trouble == ""
    assert [got["mode"] for got in lines] == ["broadcast", "too slow"]
