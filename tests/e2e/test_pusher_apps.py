"""Apps of the Pusher protocol in the settings of a server: rotated with SIGHUP, and made by --dev."""

from __future__ import annotations

import asyncio
import re
import signal
from pathlib import Path

import pytest

from e2e.processes import PATIENCE_S, Process, running
from greendot.testing.wire import Closed, WireClient
from unit.compat.pusher.wire import QUERY, PusherClient

FILE = '[pusher]\napp_id = "1"\nkey = "{key}"\nsecret = "{secret}"\nsecret_before = "{before}"\n'
ONE, TWO = "the first secret here", "the second secret here"


async def is_accepted(server: Process, key: str, secret: str) -> bool:
    """Return whether the server accepts a subscription that is signed with this secret."""
    async with await WireClient.connect(server.port, f"/app/{key}?{QUERY}") as socket:
        client = PusherClient(socket, secret, key)
        try:
            await client.establish()
        except Closed:  # 4001: there is no such key
            return False
        client.ask("private-x")
        return (await client.receive())["event"] == "pusher_internal:subscription_succeeded"


async def test_secrets_rotate_with_sighup_and_a_key_that_is_gone_closes_its_sockets(tmp_path: Path) -> None:
    file = tmp_path / "greendot.toml"
    file.write_text(FILE.format(key="k1", secret=ONE, before=""))
    async with (
        running(tmp_path, "--config", str(file)) as server,
        await WireClient.connect(server.port, f"/app/k1?{QUERY}") as socket,
    ):
        client = PusherClient(socket, ONE, "k1")
        await client.establish()
        assert await is_accepted(server, "k1", ONE)
        assert not await is_accepted(server, "k1", TWO)
        file.write_text(FILE.format(key="k1", secret=TWO, before=ONE))
        await reloaded(server, "k1", TWO)
        assert await is_accepted(server, "k1", ONE)
        file.write_text('[pusher]\nkey = "only a key"\n')
        server.signal(signal.SIGHUP)
        assert await is_accepted(server, "k1", TWO)
        assert await client.quiet() == []
        file.write_text(FILE.format(key="k2", secret=TWO, before=""))
        await reloaded(server, "k2", TWO)
        assert not await is_accepted(server, "k1", ONE)
        with pytest.raises(Closed) as closed:
            await client.receive()
        assert closed.value.code == 4001


async def reloaded(server: Process, key: str, secret: str) -> None:
    """Send SIGHUP, and wait until the server accepts the key and the secret."""
    server.signal(signal.SIGHUP)
    async with asyncio.timeout(PATIENCE_S):
        while not await is_accepted(server, key, secret):  # noqa: ASYNC110  (has no event)
            await asyncio.sleep(0.02)


async def test_dev_mode_prints_the_keys_of_its_app(tmp_path: Path) -> None:
    async with running(tmp_path, "--dev") as server:
        server.signal(signal.SIGTERM)
        output = (await server.ended()).out
    found = re.search(r"Pusher:  app id (\w+), key ([\w-]+), secret (\w+)", output)
    assert found, output
    async with running(tmp_path, "--dev") as server:
        assert await is_accepted(server, found[2], found[3])
