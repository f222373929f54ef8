"""The services of production.yml as processes: deploy/compose/without-docker, with test providers around them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import ssl
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from deployed.programs import DEPLOY
from e2e.processes import Answer, ask
from greendot.auth.tokens import Tokens
from greendot.client import Client
from greendot.clock import SystemClock
from greendot.testing import WireClient

SCRIPT = DEPLOY / "compose" / "without-docker"
START_S = 90.0  # the script has its own limit for each program
WAIT_S = 40.0


class Production:
    """Running services, their addresses and their secrets."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path, output: list[str]) -> None:
        self.process = process
        self.folder = folder
        self.output = output  # lines that the script has printed
        self.addresses: dict[str, str] = json.loads((folder / "addresses.json").read_text())
        lines = (folder / ".env").read_text().splitlines()
        self.secrets = dict(line.split("=", 1) for line in lines)
        self.nodes = [int(self.addresses[f"greendot-{number}"].rpartition(":")[2]) for number in (1, 2)]
        self.url = self.addresses["proxy"].replace("https:", "wss:") + "/v1/connect"
        self.tls = ssl.create_default_context(cafile=self.addresses["authority"])

    def token(self, user: str) -> str:
        return Tokens(self.secrets["GREENDOT_AUTH_SECRET"]).make(user, SystemClock().now_ms(), 3600)

    def client(self, user: str, device: str = "default") -> Client:
        """Return a client that connects through Caddy and verifies its certificate."""
        return Client(self.url, lambda: self.token(user), device, ssl=self.tls)

    def direct_client(self, user: str, device: str = "default") -> Client:
        """Return a client on the first node, which no test ends."""
        return Client(f"ws://127.0.0.1:{self.nodes[0]}/v1/connect", lambda: self.token(user), device)

    async def wire(self, node: int, user: str, **hello: Any) -> WireClient:
        client = await WireClient.connect(self.nodes[node])
        await client.hello(self.token(user), **hello)
        return client

    async def http(self, method: str, path: str, body: Any = None) -> Answer:
        """Send a request of an app's backend, on the internal address of a node."""
        key = self.secrets["GREENDOT_API_KEY"]
        return await ask(self.nodes[0], method, path, body, Authorization=f"Bearer {key}")

    async def must(self, method: str, path: str, body: Any = None) -> Any:
        answer = await self.http(method, path, body)
        assert 200 <= answer.status < 300, (method, path, answer)
        return answer.json() if answer.body else None

    def pid(self, part: str) -> int:
        """Return the process of this user that listens on the port of a service."""
        port = int(self.addresses[part].rpartition(":")[2])
        return listening(port)

    def signal(self, part: str, number: signal.Signals) -> None:
        os.kill(self.pid(part), number)

    async def command(self, *words: str) -> tuple[int, str]:
        """Run `greendot` with the settings of a node; return its exit code and its output."""
        process = await asyncio.create_subprocess_exec(
            self.folder / "greendot", *words, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, cwd=self.folder
        )
        out, _ = await process.communicate()
        return process.returncode or 0, out.decode()


def listening(port: int) -> int:
    """Return the id of the process that listens on a port of 127.0.0.1."""
    sockets = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, *rest = line.split()
        if state == "0A" and int(local.rpartition(":")[2], 16) == port:
            sockets.add(f"socket:[{rest[5]}]")
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(link) in sockets:
                return int(link.parts[2])
        except OSError:  # the process has ended, or belongs to another user
            continue
    raise AssertionError(f"no process listens on port {port}")


@asynccontextmanager
async def producing(folder: Path, **settings: str) -> AsyncIterator[Production]:
    """Run all services, with these further settings of the nodes."""
    more = folder / "more.env"
    more.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    flags = ["--https-port", "0", "--prometheus-port", "0", "--scrape-interval", "1", "--settings", str(more)]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GREENDOT_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, SCRIPT, *flags, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, env=inherited, cwd=folder
    )
    output: list[str] = []
    reader = asyncio.create_task(read(process, output))
    try:
        async with asyncio.timeout(START_S):
            await until(lambda: any("Stop with Ctrl-C" in line for line in output) or process.returncode is not None)
        assert process.returncode is None, "\n".join(output)
        (place,) = [found[1] for line in output if (found := re.search(r"secrets to (\S+)/\.env", line))]
        yield Production(process, Path(place), output)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        await process.wait()
        await reader


async def read(process: asyncio.subprocess.Process, output: list[str]) -> None:
    assert process.stdout is not None
    async for line in process.stdout:
        output += [line.decode().rstrip()]


async def until(condition: Callable[[], bool], within_s: float = START_S) -> None:
    """Poll a condition without an event. Raise TimeoutError after `within_s`."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def until_data(condition: Callable[[], bool], within_s: float = WAIT_S) -> None:
    """Poll a condition that asks Prometheus, in a thread: providers in this process must continue to answer."""
    async with asyncio.timeout(within_s):
        while not await asyncio.to_thread(condition):  # noqa: ASYNC110
            await asyncio.sleep(0.2)
