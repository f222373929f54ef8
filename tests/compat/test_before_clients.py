"""JavaScript client of earlier versions on a server of this version."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from asyncio.subprocess import PIPE
from pathlib import Path

import msgspec
import pytest

from compat.versions import FIXTURES, VERSIONS
from e2e.processes import running

SCRIPT = Path(__file__).with_name("old_client.mjs")
WITHIN_S = 45.0


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_page_of_then_does_all_it_did(version: str, tmp_path: Path) -> None:
    if shutil.which("node") is None:
        reason = "Node.js is not installed"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    bundle = tmp_path / "greendot.mjs"
    shutil.copy(FIXTURES / version / "greendot.js", bundle)
    async with running(tmp_path, "--dev") as server:
        # Node 20 needs the flag for WebSocket; later versions accept it, too.
        command = ("node", "--experimental-websocket", SCRIPT, bundle, f"http://127.0.0.1:{server.port}")
        page = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
        try:
            assert page.stdout is not None
            line = await asyncio.wait_for(page.stdout.readline(), WITHIN_S)
            server.signal(signal.SIGTERM)
            out, err = await asyncio.wait_for(page.communicate(), WITHIN_S)
        finally:
            if page.returncode is None:
                page.kill()
                await page.wait()
    assert (page.returncode, out) == (0, b"sent away\n"), err.decode()
    told = msgspec.json.decode(line)
    messages = [[1, None, {"text": "helo"}], [2, "edit", {"text": "hello"}], [3, None, "hi"], [4, None, "meanwhile"]]
    assert told["alice"]["messages"] == told["bob"]["messages"] == messages
    assert told["history"] == [1, 2, 3, 4]
    assert told["bob"]["presence"] == ["online", "busy", "online"]  # and no change when alice was cut off
    assert told["alice"]["notifications"] == ["for you"]
    assert told["alice"]["badges"][-1] == 0
    assert told["bob"]["states"] == ["connecting", "online"]
