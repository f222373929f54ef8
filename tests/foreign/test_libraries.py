"""Library `pusher` for Python, and the programs of the guides, with unmodified libraries."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import sys
import time
from pathlib import Path

import pytest

from greendot.compat.pusher.signature_model import channel_text, sign

from .clients import APP, HERE, installed, real_server
from .watching import pusher_js

GUIDES = HERE.parents[1] / "docs" / "guides"
KEYS = {"app_id": "4711", "key": "278d425bdf160c739803", "secret": "7ad3773142a6692b25b8"}
pytestmark = pytest.mark.timeout(90)


async def output(*command: str | Path, **environment: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        cwd=HERE,
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(40):
        text, _ = await process.communicate()
    assert process.returncode == 0, text.decode()[-4000:]
    return text.decode()


async def test_the_library_for_python_finds_what_it_expects() -> None:
    async with real_server() as greendot, pusher_js(greendot.server.port, "ann", "presence-lobby") as ann:
        await ann.sees("here")
        body = json.dumps({"time_ms": round(time.time() * 1000), "events": [{"name": "channel_occupied"}]})
        arguments = (APP["key"], sign(APP["secret"], body), body)
        script = HERE / "pusher_library.py"
        found = json.loads(await output(sys.executable, script, str(greendot.server.port), *arguments))
        text = channel_text("1.2", "presence-lobby", '{"user_id": "ann"}')
        assert found == {"auth": f"{APP['key']}:{sign(APP['secret'], text)}", "events": 1}
        await ann.sees("state", "disconnected")


def after(diff: str) -> str:
    """Return the program that a diff leads to."""
    return "".join(f"{line[1:]}\n" for line in diff.splitlines() if not line.startswith("-"))


def diffs(name: str) -> list[str]:
    return re.findall(r"^```diff\n(.*?)^```$", (GUIDES / name).read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("guide", ["from-pusher.md", "from-laravel.md"])
async def test_the_changed_lines_of_a_guide_are_few_and_work(guide: str, tmp_path: Path) -> None:
    installed()
    with socket.create_server(("127.0.0.1", 0)) as free:
        auth_port = str(free.getsockname()[1])
    found = diffs(guide)
    assert found
    assert all(sum(line.startswith("+") for line in diff.splitlines()) <= 5 for diff in found)
    async with real_server(pusher=KEYS) as greendot:
        files = []
        for number, diff in enumerate(found):
            text = after(diff).replace("8000", str(greendot.server.port)).replace("3000", auth_port)
            file = HERE / "node_modules" / f".guide-{tmp_path.name}-{number}.mjs"  # beside the packages that it imports
            file.write_text(text)
            files.append(file)
        try:
            await output("node", "guide.mjs", *files, AUTH_PORT=auth_port)
        finally:
            for file in files:
                file.unlink()
