"""Real `greendot` processes, HTTP requests of an app backend, and waiting for conditions."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from described import conforms
from e2e.forking import OF_THE_INTERPRETER, Forked, fork
from greendot.auth.tokens import Tokens
from greendot.clock import SystemClock
from greendot.testing import WireClient

PATIENCE_S = 15.0  # time until a waiting test fails
SECRET = "a secret for real processes, long enough"
API_KEY = "an API key for real processes"

AnyProcess = asyncio.subprocess.Process | Forked


def crowding() -> float:
    """Return the number of runnable processes per core, at least 1. Everything takes that many times as long."""
    try:
        running = Path("/proc/loadavg").read_text().split()[3].partition("/")[0]
    except OSError:
        return 1.0
    return max(1.0, int(running) / (os.cpu_count() or 1))


class Patience:
    """Time limit of a polling loop, in seconds of an idle machine."""

    def __init__(self, seconds: float, pause_s: float = 0.001, longest_s: float = 0.025) -> None:
        self._left_s = seconds
        self._pause_s, self._longest_s = pause_s, longest_s  # pauses grow: slow conditions are polled less often
        self._looked = time.monotonic()

    async def pause(self) -> bool:
        """Sleep until the next poll. Return False when the time limit has passed."""
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 1.2, self._longest_s)
        now = time.monotonic()
        self._left_s -= (now - self._looked) / crowding()
        self._looked = now
        return self._left_s > 0


async def until(condition: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
    """Poll until the condition is true; raise TimeoutError after `within_s`. For states without an event."""
    patience = Patience(within_s)
    while not condition():
        if not await patience.pause() and not condition():
            raise TimeoutError(f"condition not true within {within_s:g} s")


async def serves_a_fresh_client(port: int, token: str) -> None:
    """Check that the server accepts and answers a new client."""
    async with await WireClient.connect(port) as client:
        await client.hello(token)
        await client.quiet()
        client.send(type="bye")
        assert (await client.closed()).code == 1000


# --- HTTP ---


class Answer(NamedTuple):
    """HTTP response."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


async def ask(port: int, method: str, path: str, body: Any = None, **headers: str) -> Answer:
    """Send a request on its own connection and return the response. A body that is not bytes is sent as JSON.

    The response must match the OpenAPI document.
    """
    data = b"" if body is None else body if isinstance(body, bytes) else msgspec.json.encode(body)
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        f"Content-Length: {len(data)}",
        "Connection: close",
    ]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    answer = await exchange(port, "\r\n".join([*lines, "", ""]).encode() + data)
    if method != "HEAD" and len(answer.body) < int(answer.headers.get("content-length", 0)):
        raise ConnectionResetError("the server closed the connection within its response")
    conforms(method, path, answer.status, answer.headers.get("content-type"), answer.body)
    return answer


async def exchange(port: int, request: bytes) -> Answer:
    """Send raw bytes and return the response, read until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        received = await asyncio.wait_for(reader.read(-1), PATIENCE_S)
    finally:
        writer.close()
    return answer_in(received)


def answer_in(received: bytes) -> Answer:
    """Parse the first response in the received bytes. A chunked body is not decoded."""
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return Answer(int(first.split()[1]), headers, body)


# --- processes ---


class Ended(NamedTuple):
    """Exit code and output of an ended process."""

    code: int
    out: str
    err: str


class Process:
    """Server process that accepts clients."""

    def __init__(self, process: AnyProcess, announced: str) -> None:
        self._process = process
        self._ended: Ended | None = None
        self.announced = announced  # output until the server was ready
        found = re.search(r":(\d+)/v1/connect", announced)
        assert found, announced
        self.port = int(found[1])
        self.pid = process.pid

    async def client(self, user: str, **hello: Any) -> WireClient:
        client = await WireClient.connect(self.port)
        try:
            await client.hello(self.token(user), **hello)
        except BaseException:
            await client.end()
            raise
        return client

    def token(self, user: str) -> str:
        """Return a token for a server that was started with SECRET."""
        return Tokens(SECRET).make(user, SystemClock().now_ms(), 3600, name=user.capitalize())

    async def ask(self, method: str, path: str, body: Any = None, key: str = API_KEY) -> Answer:
        return await ask(self.port, method, path, body, Authorization=f"Bearer {key}")

    @property
    def resident_kb(self) -> int:
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        assert found
        return int(found[1])

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def ended(self, within_s: float = PATIENCE_S) -> Ended:
        """Wait for the end of the process; raise TimeoutError if it does not end."""
        if self._ended is None:
            out, err = await asyncio.wait_for(self._process.communicate(), within_s)
            self._ended = Ended(self._process.returncode or 0, self.announced + out.decode(), err.decode())
        return self._ended

    async def kill(self) -> None:
        """Kill the process without warning, as the kernel does when memory is short."""
        if self._process.returncode is None:
            self._process.kill()
        await self.ended()


@asynccontextmanager
async def running(data_dir: Path, *flags: str, **environment: str) -> AsyncIterator[Process]:
    """Run `greendot serve` on a free port, with SECRET and API_KEY unless the environment has others."""
    process = await start(data_dir, "serve", "--port", "0", *flags, **environment)
    lines = []
    try:
        async with asyncio.timeout(2 * PATIENCE_S):
            assert process.stdout is not None
            while (line := (await process.stdout.readline()).decode()) and "Stop with Ctrl-C" not in line:
                lines.append(line)
        if not line:
            _, err = await process.communicate()
            raise AssertionError(f"the server did not start: {''.join(lines)}{err.decode()}")
        server = Process(process, "".join([*lines, line]))
        yield server
        await server.kill()
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def greendot(data_dir: Path, *arguments: str, **environment: str) -> Ended:
    """Run a command that ends by itself."""
    process = await start(data_dir, *arguments, **environment)
    try:
        out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    return Ended(process.returncode or 0, out.decode(), err.decode())


async def start(data_dir: Path, *arguments: str, **environment: str) -> AnyProcess:
    given = {"GREENDOT_AUTH_SECRET": SECRET, "GREENDOT_API_KEY": API_KEY} | environment
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GREENDOT_")}
    surroundings = (
        inherited
        | {"GREENDOT_SERVER_DATA_DIR": str(data_dir), "PYTHONUNBUFFERED": "1"}
        | {name: value for name, value in given.items() if value}
    )
    # Run in the test's own folder: stray files must not end up in the repository.
    if not any(name in environment for name in OF_THE_INTERPRETER):
        return await fork(data_dir, surroundings, *arguments)
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "greendot", *arguments),
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        cwd=data_dir,
        env=surroundings,
    )
