"""Real server in a process of its own, and its HTTP API as an app's backend uses it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

from greendot.auth.tokens import Tokens
from greendot.clock import SystemClock

SECRET = "a secret of the behaviour suite, long enough"
API_KEY = "an API key of the behaviour suite"
READY_S = 60.0
SETTINGS = {
    "AUTH_SECRET": SECRET,
    "API_KEY": API_KEY,
    "AUTH_LEEWAY_S": "0",
    "LIMITS_ENABLED": "false",
    # Short, so that a script ends soon.
    "TYPING_TTL_S": "1.5",
    "TYPING_THROTTLE_S": "0.3",
    "TYPING_REPEAT_S": "0.6",
    "SERVER_DRAIN_S": "0.3",
}


class ServerProcess(Protocol):
    """Process with the methods of asyncio.subprocess.Process that a server needs."""

    @property
    def stdout(self) -> asyncio.StreamReader | None: ...

    def send_signal(self, number: int) -> None: ...

    async def communicate(self) -> tuple[bytes, bytes]: ...


# Start `greendot ARGUMENT…` in a folder with an environment.
Start = Callable[..., Awaitable[Any]]


async def start_process(folder: Path, environment: dict[str, str], *arguments: str) -> asyncio.subprocess.Process:
    """Start `greendot` with the Python of this process."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "greendot", *arguments),
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        cwd=folder,
        env=environment,
    )


class Server:
    """Server that keeps its port and its data when it is restarted."""

    def __init__(self, folder: Path, start: Start = start_process) -> None:
        self.port = 0
        self._folder = folder
        self._start = start
        self._process: ServerProcess | None = None
        self._tokens = Tokens(SECRET)

    async def up(self) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("GREENDOT_")}
        own = {f"GREENDOT_{name}": value for name, value in SETTINGS.items()}
        environment = inherited | own | {"GREENDOT_SERVER_DATA_DIR": str(self._folder), "PYTHONUNBUFFERED": "1"}
        process = self._process = await self._start(self._folder, environment, "serve", "--port", str(self.port))
        output = ""
        async with asyncio.timeout(READY_S):
            while "Stop with Ctrl-C" not in output:
                line = (await process.stdout.readline()).decode()
                if not line:
                    _, errors = await process.communicate()
                    raise RuntimeError(f"the server did not start: {output}{errors.decode()}")
                output += line
        found = re.search(r":(\d+)/v1/connect", output)
        assert found, output
        self.port = int(found[1])

    async def down(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End the process: SIGTERM drains the connections, SIGKILL does not."""
        if self._process is not None:
            process, self._process = self._process, None
            process.send_signal(number)
            await process.communicate()

    def token(self, user: str, ttl_s: float = 3600, **claims: Any) -> str:
        name = user.partition(".")[0].capitalize()
        return self._tokens.make(user, SystemClock().now_ms(), ttl_s, name=name, **claims)

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request of the app's backend and return the JSON of the response. Raise RuntimeError if it failed."""
        data = b"" if body is None else json.dumps(body).encode()
        head = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", f"Content-Length: {len(data)}"]
        head += [f"Authorization: Bearer {API_KEY}", "Connection: close", "", ""]
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write("\r\n".join(head).encode() + data)
            received = await reader.read(-1)
        finally:
            writer.close()
        first, _, content = received.partition(b"\r\n\r\n")
        status = int(first.split()[1])
        if status >= 400:
            raise RuntimeError(f"{method} {path}: {status} {content.decode()}")
        return json.loads(content) if content else None
