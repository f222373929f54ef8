"""Metrics of real workers on a real Redis: all that the dashboard and the alerts use."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

from cluster.nodes import redis_url
from e2e.processes import Process, ask, exchange, running
from e2e.test_workers import on_two_workers
from greendot.telemetry.metrics_catalogue import CATALOGUE
from monitored import expressions, metrics_in
from postgres_server import migrated_schema
from redis_servers import RedisProcess

LINE = re.compile(r'(\w+)\{((?:\w+="(?:[^"\\]|\\.)*",?)*)\} (\S+)')
EVERYTHING = {
    "GREENDOT_STORE_MIGRATE": "true",
    "GREENDOT_OUTBOX_URL": "store",
    "GREENDOT_SERVER_TENANT_METRICS": "true",
    "GREENDOT_WEBHOOKS_URL": "https://app.example/hook",
    "GREENDOT_WEBHOOKS_SECRET": "a secret for webhooks that is long enough",
    "GREENDOT_PUSH_WEBHOOK_URL": "https://app.example/push",
    "GREENDOT_PUSH_WEBHOOK_SECRET": "a secret for pushes that is long enough",
    "GREENDOT_NODE_RENEW_S": "0.1",  # all partitions are visited in six seconds instead of two minutes
    "GREENDOT_NODE_LEASE_S": "10",
    "GREENDOT_PRESENCE_GRACE_S": "1",
    "GREENDOT_PRESENCE_CLEAN_GRACE_S": "1",
}
UPGRADE = (
    b"GET /v1/connect HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
# Metrics of Prometheus itself.
NOT_HERE = {"up"}


class Value(NamedTuple):
    """One line of the metrics page."""

    name: str
    labels: dict[str, str]
    value: float


class Page:
    """Metrics of one worker."""

    def __init__(self, text: str) -> None:
        self.types = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
        self.values = []
        for line in text.splitlines():
            if not line.startswith("#"):
                found = LINE.fullmatch(line)
                assert found, line
                self.values.append(Value(found[1], dict(re.findall(r'(\w+)="([^"]*)"', found[2])), float(found[3])))

    def sum(self, name: str) -> float:
        return sum(it.value for it in self.values if it.name == name)

    @property
    def names(self) -> set[str]:
        """Return the names of metric families."""
        return {name for it in self.values for name in metrics_in(it.name)} | {"greendot_info"}


def two_free_ports() -> int:
    """Return the first of two consecutive free ports."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as one:
            port: int = one.getsockname()[1]
            try:
                with socket.create_server(("127.0.0.1", port + 1)):
                    return port
            except OSError:
                continue


async def pages(port: int) -> list[Page]:
    """Return the metrics of both workers."""
    return [Page((await ask(port + number, "GET", "/metrics")).body.decode()) for number in range(2)]


def sums(of: Iterable[Page], *names: str) -> list[float]:
    return [sum(page.sum(name) for page in of) for name in names]


async def test_each_worker_shows_all_that_is_watched_on_a_port_of_its_own_and_users_add_up(
    tmp_path: Path, redis: RedisProcess, postgres: str
) -> None:
    port = two_free_ports()
    async with AsyncExitStack() as stack:
        place = await stack.enter_async_context(migrated_schema(postgres))
        flags = ("--host", "127.0.0.1", "--workers", "2", "--engine", redis_url(redis.port), "--store", place)
        settings = EVERYTHING | {"GREENDOT_METRICS_HOST": "127.0.0.1", "GREENDOT_METRICS_PORT": str(port)}
        server = await stack.enter_async_context(running(tmp_path, *flags, **settings))
        for path, elsewhere in ((b"/metrics", server.port), (b"/v1/rooms", port)):
            request = b"GET %b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % path
            assert (await exchange(elsewhere, request)).status == 404
        assert (await exchange(port, UPGRADE)).status == 404  # this port serves no clients
        await on_two_workers(server, stack, "alice", "alice")
        bob = await stack.enter_async_context(await server.client("bob"))
        await bob.request(type="watch", users=["alice"])
        await everybody_counted(port)
        found = await pages(port)
        both_show_everything(found)
        hellos, welcomed = sums(found, "realtime_hello_seconds_count", "ws_connections_total")
        assert hellos == welcomed >= 3
        assert all(page.sum("redis_command_seconds_count") > 10 for page in found)
        assert all(page.sum("realtime_bus_lag_seconds_count") > 0 for page in found)
        await came_back(server, port, bob)


async def everybody_counted(port: int) -> None:
    """Check the counts: Alice is on both workers and counts there twice, but once in the sum of the shares."""
    async with asyncio.timeout(40):
        while sums(await pages(port), "presence_users_online", "redis_presence_sessions") != [2, 3]:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    assert sums(await pages(port), "ws_users_online", "ws_sessions") == [3, 3]


def both_show_everything(found: list[Page]) -> None:
    watched = {name for expression in expressions() for name in metrics_in(expression) if ":" not in name}
    for page in found:
        assert watched - NOT_HERE - page.names == set()
        assert page.names - CATALOGUE.keys() == set()
        assert page.types == {name: CATALOGUE[name].type for name in page.types}
        for it in page.values:
            (family,) = metrics_in(it.name) or {it.name}
            assert it.labels.keys() - {"le"} == {"node", *CATALOGUE[family].labels}, it.name
    one, two = ({it.labels["node"] for it in page.values} for page in found)
    assert len(one) == len(two) == 1
    assert one != two


async def came_back(server: Process, port: int, bob: object) -> None:
    """Check that the duration of a resume is recorded."""
    before = sums(await pages(port), "realtime_recovery_seconds_count")
    session = bob.welcome["session"]  # type: ignore[attr-defined]
    async with await server.client("bob", resume={"session": session}) as again:
        assert again.welcome["resumed"]
        assert sums(await pages(port), "realtime_recovery_seconds_count", "realtime_sessions_resumed_total") == [
            before[0] + 1,
            1,
        ]
