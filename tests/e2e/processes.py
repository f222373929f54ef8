"""A real `greendot` in a process of its own, HTTP as an app backend speaks it, and waiting for a condition."""

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

PATIENCE_S = 15.0  # seconds before a test fails instead of waiting on
SECRET = "a secret for real processes, long enough"
API_KEY = "an API key for real processes"

AnyProcess = asyncio.subprocess.Process | Forked


def crowding() -> float:
    """How many processes want a core, for each that there is: everything takes so many times as long."""
    try:
        running = Path("/proc/loadavg").read_text().split()[3].partition("/")[0]
    except OSError:
        return 1.0
    return max(1.0, int(running) / (os.cpu_count() or 1))


class Patience:
    """Seconds of a machine that has nothing else to do, for one who looks again and again for something."""

    def __init__(self, seconds: float, pause_s: float = 0.001, longest_s: float = 0.025) -> None:
        self._left_s = seconds
        self._pause_s, self._longest_s = pause_s, longest_s  # what takes long is not looked for all the time
        self._looked = time.monotonic()

    async def pause(self) -> bool:
        """Wait until the next look. False: it has taken too long."""
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 1.2, self._longest_s)
        now = time.monotonic()
        self._left_s -= (now - self._looked) / crowding()
        self._looked = now
        return self._left_s > 0


async def until(condition: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
    """Wait for something no event tells of; TimeoutError if it does not become true."""
    patience = Patience(within_s)
    while not condition():
        if not await patience.pause() and not condition():
            raise TimeoutError(f"not within {within_s:g} s")


async def serves_a_fresh_client(port: int, token: str) -> None:
    """Whatever was done to the server before: a newcomer is welcomed and answered."""
    async with await WireClient.connect(port) as client:
        await client.hello(token)
        await client.quiet()
        client.send(type="bye")
        assert (await client.closed()).code == 1000


# --- HTTP ---


class Answer(NamedTuple):
    """What came back for a request."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


async def ask(port: int, method: str, path: str, body: Any = None, **headers: str) -> Answer:
    """One request on a connection of its own. `body` is sent as it is if it is bytes, else as JSON.

    Whatever is asked, the answer must be one the OpenAPI document speaks of.
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
        raise ConnectionResetError("the server ended in the middle of its answer")
    conforms(method, path, answer.status, answer.headers.get("content-type"), answer.body)
    return answer


async def exchange(port: int, request: bytes) -> Answer:
    """The answer to these bytes, whatever they are, read until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        received = await asyncio.wait_for(reader.read(-1), PATIENCE_S)
    finally:
        writer.close()
    return answer_in(received)


def answer_in(received: bytes) -> Answer:
    """The first answer in what a server sent. A chunked body is left as it is."""
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return Answer(int(first.split()[1]), headers, body)


# --- processes ---


class Ended(NamedTuple):
    """How a process ended and what it said."""

    code: int
    out: str
    err: str


class Process:
    """A server that is ready for clients."""

    def __init__(self, process: AnyProcess, announced: str) -> None:
        self._process = process
        self._ended: Ended | None = None
        self.announced = announced  # what it printed until it was ready
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
        """For a server that was started with SECRET."""
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
        """Wait for its end; TimeoutError if it goes on."""
        if self._ended is None:
            out, err = await asyncio.wait_for(self._process.communicate(), within_s)
            self._ended = Ended(self._process.returncode or 0, self.announced + out.decode(), err.decode())
        return self._ended

    async def kill(self) -> None:
        """As the kernel does when memory is short: without a word."""
        if self._process.returncode is None:
            self._process.kill()
        await self.ended()


@asynccontextmanager
async def running(data_dir: Path, *flags: str, **environment: str) -> AsyncIterator[Process]:
    """`greendot serve` on a free port, with SECRET and API_KEY unless the test says otherwise."""
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
    """Run a command that is expected to end by itself."""
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
    # A stray file must not land in the repository: the folder is the test's own.
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
