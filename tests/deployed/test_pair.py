"""deploy/compose/pair.yml without Docker: its settings, its nginx and its two nodes as processes. One node is
restarted.
"""

from __future__ import annotations

import re
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from deployed.programs import DEPLOY, program
from deployed.test_compose import FOLDER, filled_in, nodes
from deployed.test_proxied import proxy
from e2e.processes import Process, greendot, running
from greendot.auth.tokens import Tokens
from greendot.clock import SystemClock
from greendot.testing import WireClient
from postgres_server import fresh_schema
from redis_servers import free_port, redis_server


def settings(redis: int, postgres: str) -> dict[str, str]:
    """Return the settings of a node, with the addresses of the services here."""
    shown = {name: filled_in(value) for name, value in nodes(FOLDER / "pair.yml")["greendot-1"]["environment"].items()}
    here = {
        "GREENDOT_ENGINE_URL": f"redis://127.0.0.1:{redis}",
        "GREENDOT_STORE_URL": postgres,
        "GREENDOT_DOOR_TRUSTED_PROXIES": "127.0.0.1",
        "GREENDOT_SERVER_HOST": "127.0.0.1",
    }
    assert shown.keys() >= here.keys() - {"GREENDOT_SERVER_HOST"}
    return shown | here


def nginx(folder: Path, first: Process, second: Process) -> tuple[int, list[str]]:
    """Return nginx's port and its start command with the configuration of the Compose files."""
    port = free_port()
    text = (FOLDER / "nginx.conf").read_text().replace("listen 8080", f"listen 127.0.0.1:{port}")
    for number, node in enumerate((first, second), 1):
        text = text.replace(f"greendot-{number}:8000", f"127.0.0.1:{node.port}")
    text = text.replace("/etc/nginx/", f"{DEPLOY}/proxy/nginx/")
    text = text.replace("worker_processes auto", "worker_processes 2").replace("65536", "256")
    text = re.sub(r"worker_rlimit_nofile.*\n", "", text)  # this machine may not allow it
    (folder / "nginx.conf").write_text(f"daemon off;\npid {folder}/nginx.pid;\nerror_log stderr;\n{text}")
    return port, [program("nginx"), "-p", str(folder), "-e", "stderr", "-c", str(folder / "nginx.conf")]


async def comes(port: int, secret: str, user: str, **hello: object) -> WireClient:
    client = await WireClient.connect(port)
    try:
        await client.hello(Tokens(secret).make(user, SystemClock().now_ms(), 3600), **hello)
    except BaseException:
        await client.end()
        raise
    return client


@pytest.mark.timeout(90)
async def test_a_node_is_stopped_and_its_clients_go_on_at_the_other_unseen(tmp_path: Path, postgres: str) -> None:
    async with AsyncExitStack() as stack:
        redis = stack.enter_context(redis_server("redis", tmp_path / "redis"))
        given = settings(redis, await stack.enter_async_context(fresh_schema(postgres)))
        migrated = await greendot(tmp_path, "migrate", **given)
        assert migrated.code == 0, migrated.err
        both = [await stack.enter_async_context(running(tmp_path, **given)) for _ in range(2)]
        port, command = nginx(tmp_path, *both)
        await stack.enter_async_context(proxy(tmp_path, port, *command))
        secret = given["GREENDOT_AUTH_SECRET"]
        names = {(await node.ask("GET", "/readyz")).json()["node"]: node for node in both}

        alice = await comes(port, secret, "alice", device="phone")
        bob = await comes(port, secret, "bob")
        try:
            assert {alice.welcome["node"], bob.welcome["node"]} == names.keys()  # nginx has spread them
            await bob.request(type="watch", users=["alice"])
            names[alice.welcome["node"]].signal(signal.SIGTERM)
            assert (await alice.receive("drain"))["data"]["retry_in_ms"] <= 2_000
            assert (await alice.closed()).code == 4000
            back = await comes(port, secret, "alice", device="phone", resume={"session": alice.welcome["session"]})
            try:
                assert (back.welcome["resumed"], back.welcome["node"]) == (True, bob.welcome["node"])
                assert (await names[alice.welcome["node"]].ended()).code == 0
                assert await bob.quiet() == []  # others saw no change
            finally:
                await back.end()
        finally:
            await alice.end()
            await bob.end()
