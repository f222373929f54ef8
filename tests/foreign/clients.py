"""Unmodified clients of other servers, installed when a test first needs them, and servers in real time for them."""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from clients.javascript import _cannot
from greendot.app.server import Greendot
from greendot.config import Settings

HERE = Path(__file__).parent
APP = {"app_id": "4711", "key": "a-public-key", "secret": "a secret of twenty+"}
GRACES = {"grace_s": 0.5, "clean_grace_s": 0.1, "silent_grace_s": 0.5}


@cache
def installed() -> None:
    """Install node_modules by package-lock.json."""
    wanted, there = HERE / "package-lock.json", HERE / "node_modules" / ".package-lock.json"
    with wanted.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if there.exists() and there.stat().st_mtime >= wanted.stat().st_mtime:
            return
        try:
            result = subprocess.run(["npm", "ci"], cwd=HERE, capture_output=True, text=True, timeout=300)
        except FileNotFoundError:
            _cannot("the clients of other servers need Node and npm (make node)")
        if result.returncode:
            _cannot(f"npm ci in tests/foreign failed: {result.stderr.strip()[-500:]}")
        there.touch()


def settings(**sections: dict[str, Any]) -> Settings:
    """Return the settings of a server with an app of the Pusher protocol."""
    given: dict[str, Any] = {
        "server": {"host": "127.0.0.1", "port": 0, "drain_s": 0.2, "drain_notice_s": 0.0},
        "store": {"url": "sqlite:///:memory:"},
        "auth": {"secret": "a secret for tests, long enough to be taken"},
        "api": {"key": "an API key for tests"},
        "presence": dict(GRACES),
        "pusher": dict(APP),
    }
    for name, values in sections.items():
        given[name] = given.get(name, {}) | values
    return msgspec.convert(given, Settings)


@asynccontextmanager
async def real_server(**sections: dict[str, Any]) -> AsyncIterator[Greendot]:
    """Run a server in real time in this process."""
    greendot = Greendot(settings(**sections))
    await greendot.start()
    try:
        yield greendot
    finally:
        await greendot.stop()


async def run_node(scenario: str, port: int, *, within_s: float = 40, **environment: str) -> None:
    """Run a scenario of pusher.mjs against a server. Fail the test if it fails."""
    installed()
    process = await asyncio.create_subprocess_exec(
        "node",
        "pusher.mjs",
        scenario,
        cwd=HERE,
        env={**os.environ, "GREENDOT_PORT": str(port), **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(within_s):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, output.decode()[-4000:]
