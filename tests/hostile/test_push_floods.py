"""Hanging push endpoints of some users: other users and their pushes are not affected."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from e2e.processes import API_KEY, ask, running, until
from fake_providers import PlayedWebPush, playing
from greendot.push.providers.signing import new_vapid_key
from greendot.store.inbox import Notice
from greendot.store.push import Device
from greendot.store.sqlite import SqliteStore
from hostile.probe import metric, probing
from redis_servers.tls import certificates

HOSTS, USERS = 30, 300
PRIVATE, PUBLIC = new_vapid_key()


class SilentHosts:
    """Servers that accept connections and send nothing."""

    def __init__(self) -> None:
        self.ports: list[int] = []
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await reader.read()
        finally:
            writer.close()


@asynccontextmanager
async def silent_hosts(count: int) -> AsyncIterator[SilentHosts]:
    hosts = SilentHosts()
    servers = [await asyncio.start_server(hosts.serve, "127.0.0.1", 0) for _ in range(count)]
    hosts.ports = [server.sockets[0].getsockname()[1] for server in servers]
    try:
        yield hosts
    finally:
        for server in servers:
            server.close()


async def register(path: Path, subscriptions: dict[str, str]) -> None:
    """Write a push subscription and a push of each user into the store of a server that does not run yet."""
    now = time.time_ns() // 1_000_000
    store = SqliteStore(str(path), pushed=("default",))
    await store.start()
    for user, token in subscriptions.items():
        await store.put_device(Device("default", user, "browser", "webpush", token, now, now))
    await store.notify([Notice("default", user, "ping", b"{}", "k", now) for user in subscriptions])
    await store.close()


@pytest.mark.alone
async def test_hanging_push_endpoints_slow_no_other_client_down(tmp_path: Path) -> None:
    made, key = certificates(tmp_path), tmp_path / "vapid.pem"
    key.write_text(PRIVATE)
    environment = {
        "GREENDOT_PUSH_WEBPUSH_KEY_FILE": str(key),
        "GREENDOT_PUSH_WEBPUSH_SUBJECT": "mailto:ops@app.example",
        "GREENDOT_PUSH_ALLOW_PRIVATE": "127.0.0.0/8",
        "GREENDOT_PUSH_CA_FILE": str(made.authority),
    }
    async with silent_hosts(HOSTS) as hosts, playing(PlayedWebPush(), made) as service:
        keys = {"p256dh": PUBLIC, "auth": "A" * 22}
        subscriptions = {"good": service.subscribe(PUBLIC)} | {
            f"u{n}": json.dumps({"endpoint": f"https://127.0.0.1:{hosts.ports[n % HOSTS]}/{n}", "keys": keys})
            for n in range(USERS)
        }
        await register(tmp_path / "greendot.db", subscriptions)
        async with running(tmp_path, **environment) as server:
            async with probing(server) as probe:
                await until(lambda: len(service.taken) == 1 and hosts.connections >= 20)
                for number in range(3):
                    body = {"user": "good", "kind": "ping", "body": {}}
                    await ask(server.port, "POST", "/v1/notifications", body, Authorization=f"Bearer {API_KEY}")
                    await until(lambda taken=number + 2: len(service.taken) == taken)  # type: ignore[misc]
            probe.noticed_nothing()
            assert hosts.connections <= 20 + HOSTS, "too many connections to failing hosts"
            assert await metric(server, "push_webpush_held_total") > 0
