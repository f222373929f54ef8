"""CLI commands through one node: all nodes are listed, and their sessions are found, followed and ended."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from cluster.nodes import Clients, redis_url, serving
from e2e.processes import PATIENCE_S, Process, greendot, start, until
from redis_servers import RedisProcess

KEY = "a key of whoever runs these two nodes"
ON = {"GREENDOT_ADMIN_ENABLED": "true", "GREENDOT_ADMIN_KEY": KEY}


async def said(folder: Path, node: Process, *arguments: str) -> str:
    ended = await greendot(folder, *arguments, "--url", f"http://127.0.0.1:{node.port}", **ON)
    assert ended.code == 0, ended.err
    return ended.out


async def test_two_nodes_are_seen_followed_and_emptied_by_one_of_them(tmp_path: Path, redis: RedisProcess) -> None:
    async with serving(tmp_path, *[redis_url(redis.port)] * 2, **ON) as nodes, Clients() as clients:
        here, there = nodes
        laptop = await clients.join(here, "ann", device="laptop")
        phone = await clients.join(there, "ann", device="phone")
        bob = await clients.join(there, "bob")
        names = [client.client.welcome["node"] for client in (laptop, phone)]
        looked, found = await asyncio.gather(
            said(tmp_path, here, "top", "--once", "--json"), said(tmp_path, here, "inspect", "user", "ann", "--json")
        )
        look: dict[str, Any] = json.loads(looked)
        assert {row["node"]: row["gauges"]["ws_connections"] for row in look["nodes"]} == {names[0]: 1, names[1]: 2}
        ann: dict[str, Any] = json.loads(found)
        assert {(it["device"], it["node"]) for it in ann["sessions"]} == {("laptop", names[0]), ("phone", names[1])}
        assert {it["node"]: it["state"] for it in ann["nodes"]} == dict.fromkeys(names, "live")
        assert all(0 < it["lease_ends_in_ms"] <= 3_000 for it in ann["nodes"])

        url = ("--url", f"http://127.0.0.1:{here.port}")
        tail = await start(tmp_path, "tail", "--json", "--node", names[1], "--type", "connects", *url, **ON)
        try:
            assert tail.stdout is not None
            assert tail.stderr is not None
            assert b"Following" in await asyncio.wait_for(tail.stderr.readline(), PATIENCE_S)
            # End a session through this node, then all remaining sessions of the other node.
            session = phone.client.welcome["session"]
            assert "1 session disconnected" in await said(tmp_path, here, "disconnect", "--session", session)
            await until(lambda: phone.closed is not None)
            emptied = ("disconnect", "--node", names[1], "--code", "4000", "--yes")
            assert "1 session disconnected (4000)" in await said(tmp_path, here, *emptied)
            await until(lambda: bob.closed is not None)
            told = [json.loads(await asyncio.wait_for(tail.stdout.readline(), PATIENCE_S)) for _ in range(3)]
        finally:
            if tail.returncode is None:
                tail.kill()
            await tail.communicate()
        assert phone.closed is not None
        assert bob.closed is not None
        assert (phone.closed.code, bob.closed.code, laptop.closed) == (4503, 4000, None)
        assert {event["node"] for event in told} == {names[1]}
        ends = [(event["user"], event["number"]) for event in told if event["what"] == "disconnected"]
        assert ends == [("ann", 4503), ("bob", 4000)]
