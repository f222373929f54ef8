"""The programs of docs/guides/from-centrifugo.md, after their diffs, work with a real server."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

from centrifuge_clients.javascript import HERE, installed
from centrifuge_clients.parts import SOCKET, RawClient
from e2e.processes import API_KEY, running
from greendot.testing.wire import WireClient

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "from-centrifugo.md"
# The page has a WebSocket, a function that fetches a token, and a function that shows a publication.
PAGE = """
import WebSocket from "ws";
globalThis.WebSocket = WebSocket;
const getToken = async () => process.env.TOKEN;
const show = (data) => { console.log(JSON.stringify(data)); process.exit(0); };
"""


def after(diff: str) -> str:
    """Return the program that a diff leads to."""
    return "".join(f"{line[1:]}\n" for line in diff.splitlines() if not line.startswith("-"))


async def test_the_programs_of_the_guide_run_after_a_change_of_five_lines_at_most(tmp_path: Path) -> None:
    installed()
    page, app = re.findall(r"^```diff\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    for diff in (page, app):
        assert 0 < sum(line.startswith("+") for line in diff.splitlines()) <= 5
    (settings,) = re.findall(r"^```toml\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    config = tmp_path / "greendot.toml"
    config.write_text(settings)
    async with running(tmp_path, "--host", "127.0.0.1", "--config", str(config)) as server:
        port = str(server.port)
        program = HERE / f"guide-{port}.mjs"  # beside node_modules
        program.write_text(PAGE + after(page).replace("8000", port) + 'news.on("subscribed", () => console.log("on"));')
        try:
            viewer = await asyncio.create_subprocess_exec(
                "node", str(program), env={"TOKEN": server.token("ann")}, stdout=asyncio.subprocess.PIPE
            )
            assert viewer.stdout is not None
            assert await viewer.stdout.readline() == b"on\n"
            text = after(app).replace("8000", port).replace('"API_KEY"', repr(API_KEY))
            backend = await asyncio.create_subprocess_exec(sys.executable, "-c", text)
            assert await backend.wait() == 0
            assert await viewer.stdout.readline() == b'{"text":"hello"}\n'
            assert await viewer.wait() == 0
        finally:
            program.unlink()


async def test_a_development_server_serves_centrifuge_clients(tmp_path: Path) -> None:
    async with running(tmp_path, "--dev") as server:
        client = RawClient(await WireClient.connect(server.port, SOCKET))
        assert "connect" in await client.ask(connect={"token": server.token("ann")})
        assert "subscribe" in await client.ask(subscribe={"channel": "lobby"})
        await client.wire.end()
