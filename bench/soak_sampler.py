"""Threads of the soak test: one samples the figures of all processes, one is the backend of the app."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import redis

from progress import say
from scale import Node
from serverd import Trouble
from soak_cluster import Cluster
from storms import metrics

NOTIFIED_IN_DAY = 4.0  # notifications of a user
APP_S = 2.0
STORE_WITHIN_S = 5.0
_ROWS = "SELECT count(*) FROM {}"
_TABLES = "SELECT relname, pg_total_relation_size(oid) FROM pg_class WHERE relkind = 'r' AND relname LIKE 'greendot_%'"


@dataclass(frozen=True)
class Sample:
    """Figures at one time, by the name of their series. Those that could not be read are missing."""

    at_s: float
    values: dict[str, float]


@dataclass
class Samples:
    """All samples of a run."""

    rows: list[Sample] = field(default_factory=list)

    def series(self) -> dict[str, list[tuple[float, float]]]:
        found: dict[str, list[tuple[float, float]]] = {}
        for row in self.rows:
            for name, value in row.values.items():
                found.setdefault(name, []).append((row.at_s, value))
        return found


def node_figures(number: int, node: Node) -> dict[str, float]:
    """Return memory, descriptors and loop lag. `descriptors besides clients` leaves out the sockets of clients."""
    server = node.server
    try:
        memory, descriptors = server.rss_bytes(), len(os.listdir(f"/proc/{server.pid}/fd"))
        gauges = metrics(server)
    except (OSError, ValueError):  # being restarted
        return {}
    found = {
        "memory": memory,
        "descriptors": descriptors,
        "descriptors besides clients": max(0.0, descriptors - gauges.get("ws_connections", 0)),
        "loop lag, ms": gauges.get("realtime_loop_lag_worst_ms", 0),
        "sessions": gauges.get("ws_sessions", 0),
        "connections": gauges.get("ws_connections", 0),
    }
    return {f"node {number}: {name}": float(value) for name, value in found.items()}


def redis_figures(port: int) -> dict[str, float]:
    try:
        with redis.Redis(port=port, socket_timeout=2) as link:
            return {
                "redis: keys": float(link.dbsize()),
                "redis: memory": float(link.info("memory")["used_memory"]),
                "redis: connections": float(link.info("clients")["connected_clients"]),
            }
    except redis.RedisError:  # paused
        return {}


async def _postgres_tables(url: str) -> dict[str, tuple[int, int]]:
    link = await asyncpg.connect(url, timeout=STORE_WITHIN_S)
    try:
        sizes = await link.fetch(_TABLES, timeout=STORE_WITHIN_S)
        return {name: (await link.fetchval(_ROWS.format(name), timeout=STORE_WITHIN_S), size) for name, size in sizes}
    finally:
        link.terminate()


def _sqlite_tables(file: str) -> dict[str, tuple[int, int]]:
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=1)) as link:
        names = [name for (name,) in link.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = {name: int(link.execute(_ROWS.format(f'"{name}"')).fetchone()[0]) for name in names}
        pages, free, page = (
            int(link.execute(f"PRAGMA {what}").fetchone()[0]) for what in ("page_count", "freelist_count", "page_size")
        )
    return {name: (count, 0) for name, count in rows.items()} | {"file": (0, (pages - free) * page)}


def store_figures(url: str) -> dict[str, float]:
    """Return rows and bytes of the store, in total and of each table with rows."""
    try:
        if url.startswith("sqlite"):
            tables = _sqlite_tables(url.removeprefix("sqlite:///"))
        else:
            tables = asyncio.run(_postgres_tables(url))
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, sqlite3.Error):  # paused
        return {}
    found = {
        "store: rows": float(sum(rows for rows, _ in tables.values())),
        "store: bytes": float(sum(size for _, size in tables.values())),
    }
    for name, (rows, size) in tables.items():
        if rows:
            short = name.removeprefix("greendot_")
            found |= {f"rows of {short}": float(rows), f"bytes of {short}": float(size)}
    return found


class Worker(threading.Thread):
    """Thread that repeats its work until it is stopped. `failed` has the reason of an early end."""

    def __init__(self, cluster: Cluster, every_s: float) -> None:
        super().__init__(daemon=True)
        self.cluster = cluster
        self.failed: Exception | None = None
        self._every_s = every_s
        self._over = threading.Event()

    def run(self) -> None:
        due = time.monotonic()
        while not self._over.wait(max(0.0, due - time.monotonic())):
            due = max(due + self._every_s, time.monotonic())
            try:
                self.work()
            except Exception as error:  # the main thread raises it
                self.failed = error
                return

    def work(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        self._over.set()
        self.join(30)

    def check(self) -> None:
        if self.failed is not None:
            raise Trouble(f"{type(self).__name__} failed: {self.failed!r}") from self.failed


class Sampler(Worker):
    """Thread that samples all figures and prints a line about each sample."""

    def __init__(self, cluster: Cluster, samples: Samples, note: Callable[[], str]) -> None:
        super().__init__(cluster, cluster.plan.sample_s)
        self._samples = samples
        self._note = note

    def work(self) -> None:
        cluster, at = self.cluster, self.cluster.elapsed_s()
        values = {f"clients: {name}": float(count) for name, count in cluster.clients.report().items()}
        values["clients: behind"] = values["clients: awake"] - values["clients: ready"]
        for number, node in enumerate(cluster.nodes, 1):
            values |= node_figures(number, node)
        values |= redis_figures(cluster.redis.port)
        values |= store_figures(cluster.store.url)
        sample = Sample(round(at, 2), values)
        self._samples.rows.append(sample)
        say(f"{_clock(at)} {progress(sample, cluster)}, {self._note()}")


def progress(sample: Sample, cluster: Cluster) -> str:
    """Return a line about a sample."""
    values, day = sample.values, sample.at_s / cluster.plan.day_s
    memory = "/".join(
        f"{values.get(f'node {number}: memory', 0) / 1e6:.0f}" for number in range(1, len(cluster.nodes) + 1)
    )
    return (
        f"day {day:.2f}, {values['clients: ready']:,.0f} of {values['clients: awake']:,.0f} connected, "
        f"{memory} MB, {values.get('redis: keys', 0):,.0f} keys, {values.get('store: rows', 0):,.0f} rows, "
        f"wrong {wrong(values):,.0f}"
    )


WRONG = {
    "clients: offline": "users shown as offline although they had a session",
    "clients: ghosts": "users shown as online long after they had left",
    "clients: gaps": "messages of a room left out",
    "clients: repeats": "messages of a room received twice or late",
    "clients: errors": "errors that no repetition solves",
}


def wrong(values: dict[str, float]) -> float:
    return sum(values.get(name, 0) for name in WRONG)


class App(Worker):
    """Backend of the app: it notifies users, and deletes the rooms of yesterday."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, APP_S)
        self._random = random.Random(cluster.plan.seed)
        self._rooms: list[str] = []
        self._day = 0
        self._sent = 0
        self.refused = 0

    def work(self) -> None:
        self._notify()
        plan = self.cluster.plan
        day, rest = divmod(self.cluster.elapsed_s() / plan.day_s, 1)
        if day > self._day and rest > 0.15:  # all clients have moved to today's rooms
            self._day = int(day)
            self._rooms += [f"soak{room}-{self._day - 1}" for room in range(plan.rooms)]
        until = time.monotonic() + APP_S
        while self._rooms and time.monotonic() < until:
            status = self._request("DELETE", f"/v1/rooms/{self._rooms[-1]}")
            if status not in (202, 204, 404):
                break
            self._rooms.pop()

    def _notify(self) -> None:
        plan = self.cluster.plan
        regulars = plan.clients - plan.guests
        chosen = self._random.sample(range(regulars), max(1, round(regulars * NOTIFIED_IN_DAY * APP_S / plan.day_s)))
        self._sent += 1
        notifications = [
            {"user": f"u{n}", "kind": "note", "body": {"text": "hello"}, "key": f"{self._sent}-{n}", "ttl_s": ttl}
            for n in chosen
            for ttl in [max(1, round(plan.day_s / 2))]
        ]
        self._request("POST", "/v1/notifications", {"notifications": notifications})

    def _request(self, method: str, path: str, body: Any = None) -> int:
        status = self.cluster.any_node().server.request(method, path, body)
        self.refused += status == 0 or status >= 500
        if 400 <= status < 500 and status not in (404, 409, 429):
            raise Trouble(f"{method} {path} was refused with {status}.")
        return status


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 3600}:{int(seconds) // 60 % 60:02}:{int(seconds) % 60:02}"
