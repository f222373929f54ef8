"""Growth curves: the costs of Greendot by number of nodes, of online users and of rooms.

    python bench/growth.py            1, 2, 4 and 6 nodes; 10,000, 100,000 and 1,000,000 users and rooms
    python bench/growth.py --write    the same, and write the tables into docs/capacity.md

- **Nodes**: each node has 2,000 clients, like those of `scale.py`. Redis and all nodes share the machine. Bytes and
  processor time do not depend on the number of its cores, but the delay of a change does.
- **Users**: records of online users, written by the engine of a node, and then read and swept.
- **Rooms**: rows of PostgreSQL, written by a statement. A node reads 1,000 heads, and appends messages.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import asyncpg

from greendot.store.postgres import PostgresStore
from greendot.store.rooms import Draft
from measure import controlled, line, tell
from postgresd import running_postgres
from progress import say
from redis_measure import BUFFERS_S, NODE, plant
from redisd import running_redis
from report import grid, machine, write
from scale import Plan, compile_scale, connected, measure
from serverd import Trouble

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "capacity.md"
BEGIN, END = "<!-- growth: begin (written by bench/growth.py) -->", "<!-- growth: end -->"
NODES = (1, 2, 4, 6)
CLIENTS = 2_000  # of each node
USERS = (10_000, 100_000, 1_000_000)
READS, APPENDS, HEADS = 50, 200, 1_000
Table = tuple[Sequence[str], list[Sequence[str]]]  # headings and rows


def of_nodes(folder: Path, counts: Sequence[int], clients: int, *, idle_s: float = 20, pulse_s: float = 10) -> Table:
    """Measure clusters of several sizes, with the same number of clients on each node."""
    program, rows = compile_scale(folder), list[Sequence[str]]()
    for count in counts:
        plan = Plan(clients=clients * count, nodes=count, idle_s=idle_s, pulse_s=pulse_s)
        place = folder / f"nodes{count}"
        place.mkdir()
        with connected(plan, place, program) as cluster:
            measure(plan, cluster)
        if not cluster.results.held:
            raise Trouble(f"Clients saw changes that did not happen: {cluster.results.seen}.")
        found = cluster.results.figures
        rows.append(
            (
                f"{count}",
                f"{plan.clients:,}",
                f"{found['node_bytes_per_client'] / 1000:.1f} KB",
                f"{found['redis_bytes_per_client']:,} B",
                f"{found['idle_cores'] / plan.clients * 1e6:.1f} µs/s",
                f"{found['idle_redis_cores'] * 1e3:.1f} ms/s",
                f"{found['node_us_per_change']:,} µs",
                f"{found['redis_us_per_change']:,} µs",
                f"{found['change_p50_ms']:.1f}, {found['change_p99_ms']:.1f} ms",
            )
        )
        say(f"{count} nodes: {rows[-1]}")
    headings = (
        "nodes",
        "clients",
        "memory of nodes per client",
        "memory of Redis per client",
        "CPU of nodes per idle client",
        "CPU of Redis, all idle",
        "CPU of nodes per change",
        "CPU of Redis per change",
        "change to watcher: p50, p99",
    )
    return headings, rows


def of_users(folder: Path, counts: Sequence[int]) -> Table:
    """Measure records of online users in Redis: their memory, a read of 200, and the sweep after a node left."""
    rows = list[Sequence[str]]()
    for users in counts:
        memory, read = _stored(folder / f"users{users}", users)
        swept = _swept(folder / f"swept{users}", users)
        rows.append(
            (
                f"{users:,}",
                f"{memory / users:.0f} B",
                f"{read['p50_us'] / 1000:.2f} ms",
                f"{swept['seconds']:.2f} s",
                f"{swept['cpu_s'] / users * 1e6:.1f} µs",
            )
        )
        say(f"{users:,} users: {rows[-1]}")
    return ("online users", "memory of Redis per user", "read of 200 users", "sweep", "CPU of the node per user"), rows


def _stored(folder: Path, users: int) -> tuple[int, dict[str, Any]]:
    with running_redis(folder, None) as redis:
        empty = redis.memory()
        with controlled([sys.executable, NODE, "read", redis.url, users], None) as node:
            line(node)
            time.sleep(BUFFERS_S)
            memory = redis.memory() - empty
            tell(node, f"0 {users // 200} 200 {READS}")
            return memory, json.loads(line(node))


def _swept(folder: Path, users: int) -> dict[str, Any]:
    """Return seconds and CPU of a sweep. Every tenth user has a session of a node that has left."""
    with (
        running_redis(folder, None) as redis,
        controlled([sys.executable, NODE, "reap", redis.url], None) as node,
    ):
        lives = json.loads(line(node))
        plant(redis, lives["one"], lives["other"], users // 10, users)
        tell(node)
        found: dict[str, Any] = json.loads(line(node))
    if found["sessions"] != users // 10:
        raise Trouble(f"{found['sessions']:,} sessions were removed, not {users // 10:,}.")
    return found


def of_rooms(folder: Path, counts: Sequence[int]) -> Table:
    """Measure a store with many rooms: the read of heads, which nodes repeat, and an append."""
    with running_postgres(folder / "postgres", None) as server:
        rows = asyncio.run(_rooms(server.url, counts))
    return ("rooms", "size of the table and its indexes", f"read of {HEADS:,} heads", "append of a message"), rows


async def _rooms(url: str, counts: Sequence[int]) -> list[Sequence[str]]:
    store, rows, made = PostgresStore(url, migrate=True), list[Sequence[str]](), 0
    await store.start()
    link = await asyncpg.connect(url)
    try:
        for count in counts:
            await link.execute(
                "INSERT INTO greendot_rooms (tenant, room, open) "
                "SELECT 'default', 'r' || n, true FROM generate_series($1::int, $2::int) n",
                made,
                count - 1,
            )
            await link.execute("ANALYZE greendot_rooms")
            made, chosen = count, random.Random(7)
            some = [("default", f"r{chosen.randrange(count)}") for _ in range(HEADS)]
            size = await link.fetchval("SELECT pg_total_relation_size('greendot_rooms')")
            heads = await _timed(20, lambda _, some=some: store.heads(some))
            append = await _timed(
                APPENDS,
                lambda number, some=some, count=count: store.append(
                    *some[number], Draft("u1", "User", b'{"text":"hello"}', f"{count}-{number}", number)
                ),
            )
            rows.append((f"{count:,}", f"{size / 1e6:,.0f} MB", f"{heads:.1f} ms", f"{append:.2f} ms"))
            say(f"{count:,} rooms: {rows[-1]}")
    finally:
        await link.close()
        await store.close()
    return rows


async def _timed(count: int, work: Callable[[int], Awaitable[object]]) -> float:
    """Return the median of the milliseconds that a call takes."""
    took = []
    for number in range(count):
        start = time.perf_counter()
        await work(number)
        took.append((time.perf_counter() - start) * 1000)
    return median(took)


def text_of(tables: dict[str, Table]) -> str:
    """Return the tables as Markdown, with date and machine."""
    return "\n\n".join([machine(False, {}), *(f"### {name}\n\n{grid(*table)}" for name, table in tables.items())])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="write the tables into docs/capacity.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="greendot-growth-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # PostgreSQL runs as another user
        tables = {
            "Growth with nodes": of_nodes(folder, NODES, CLIENTS),
            "Growth with users": of_users(folder, USERS),
            "Growth with rooms": of_rooms(folder, USERS),
        }
    text = text_of(tables)
    print(text)
    if options.write:
        write(PAGE, text, BEGIN, END)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Trouble as trouble:
        sys.exit(f"growth: {trouble}")
    except KeyboardInterrupt:
        sys.exit(130)
