"""centrifuge-js in a Node process, installed from npm by the lock file when a test first needs it."""

from __future__ import annotations

import asyncio
import fcntl
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
LIMIT_S = 20.0


@cache
def installed() -> None:
    """Install node_modules by package-lock.json. Skip the test if that is not possible."""
    if not shutil.which("node") or not shutil.which("npm"):
        pytest.skip("centrifuge-js needs Node and npm")
    wanted, there = HERE / "package-lock.json", HERE / "node_modules" / ".package-lock.json"
    with wanted.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests in other processes need it as well
        if there.exists() and there.stat().st_mtime >= wanted.stat().st_mtime:
            return
        result = subprocess.run(["npm", "ci"], cwd=HERE, capture_output=True, text=True, timeout=300)
        if result.returncode:
            pytest.skip(f"npm ci in tests/centrifuge_clients failed: {result.stderr.strip()[-500:]}")
        there.touch()


class CallFailed(Exception):
    """Error of a call of the client."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.code = error["code"]


class JavaScript:
    """Node process with any number of centrifuge-js clients."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._numbers = 0
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self.events: list[dict[str, Any]] = []  # not taken by `event` yet
        self._arrived = asyncio.Event()
        self._reader = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            said = json.loads(line)
            if "id" in said:
                call = self._calls.pop(said["id"])
                if "error" in said:
                    call.set_exception(CallFailed(said["error"]))
                else:
                    call.set_result(said["result"])
            else:
                self.events.append(said)
                self._arrived.set()

    async def call(self, op: str, client: str = "a", **given: Any) -> Any:
        """Run an operation of the driver and return its result. Raise CallFailed with the client's error."""
        self._numbers += 1
        call = self._calls[self._numbers] = asyncio.get_running_loop().create_future()
        line = json.dumps({"id": self._numbers, "op": op, "client": client, **given})
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        async with asyncio.timeout(LIMIT_S):
            return await call

    async def event(self, name: str, client: str = "a", **about: Any) -> dict[str, Any]:
        """Return the context of the next event of this name, which is taken from `events`."""
        wanted = {"event": name, "client": client} | about
        async with asyncio.timeout(LIMIT_S):
            while True:
                for said in self.events:
                    if wanted.items() <= said.items():
                        self.events.remove(said)
                        context: dict[str, Any] = said["context"]
                        return context
                self._arrived.clear()
                await self._arrived.wait()

    async def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()
        await self._reader


@asynccontextmanager
async def javascript() -> AsyncIterator[JavaScript]:
    """Run centrifuge-js for a test."""
    installed()
    process = await asyncio.create_subprocess_exec(
        "node", str(HERE / "driver.mjs"), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 22
    )
    node = JavaScript(process)
    try:
        yield node
    finally:
        await node.close()
