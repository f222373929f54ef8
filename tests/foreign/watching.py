"""Unmodified pusher-js in a process of its own, which reports what it sees."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from e2e.processes import until

from .clients import HERE, installed


class PusherJs:
    """Client with one channel. `seen` has all its reports, in order."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.seen: list[tuple[str, Any]] = []
        self._reading = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            report = json.loads(line)
            self.seen.append((report["what"], report.get("data")))

    def of(self, *kinds: str) -> list[Any]:
        return [data for what, data in self.seen if what in kinds]

    async def sees(self, what: str, data: Any = ..., count: int = 1) -> None:
        """Wait until it has reported this so many times."""

        def has() -> bool:
            return sum(it[0] == what and (data is ... or it[1] == data) for it in self.seen) >= count

        try:
            await until(has)
        except BaseException:
            print(self.seen)
            raise

    def trigger(self, event: str, data: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([event, data]).encode() + b"\n")

    async def end(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await asyncio.gather(self._reading, return_exceptions=True)


@asynccontextmanager
async def pusher_js(port: int, user: str, channel: str) -> AsyncIterator[PusherJs]:
    installed()
    process = await asyncio.create_subprocess_exec(
        "node",
        "pusher.mjs",
        "watch",
        user,
        channel,
        cwd=HERE,
        env={**os.environ, "GREENDOT_PORT": str(port)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    client = PusherJs(process)
    try:
        yield client
    finally:
        await client.end()
