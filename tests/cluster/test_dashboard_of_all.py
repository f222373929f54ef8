"""Dashboard of one node: it shows, finds and ends sessions and topics of other nodes."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from cluster.nodes import LEASE_S, Clients, Listener, redis_url, serving
from e2e.processes import Process, until
from greendot.testing import WireClient
from redis_servers import RedisProcess

DOCUMENT = Path(__file__).parents[2] / "docs" / "dashboard.md"
KEY = "a key of whoever runs these two nodes"
ON = {"GREENDOT_ADMIN_ENABLED": "true", "GREENDOT_ADMIN_KEY": KEY}


class Viewer(Listener):
    """Client of the dashboard socket."""

    @property
    def latest(self) -> dict[str, Any]:
        samples = self.of("sample")
        return samples[-1] if samples else {"nodes": [], "sums": {}}

    def rows(self) -> dict[str, dict[str, Any]]:
        return {row["node"]: row for row in self.latest["nodes"]}

    async def shows(self, condition: Callable[[dict[str, Any]], bool]) -> None:
        await until(lambda: bool(self.of("sample")) and condition(self.latest))

    def events(self) -> list[dict[str, Any]]:
        return [event for tail in self.of("tail") for event in tail["events"]]


def documented() -> set[str]:
    """Return the metrics that docs/dashboard.md names for its panels."""
    rows = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("|")]
    return {name for row in rows for name in re.findall(r"`([a-z]+_[a-z_]+)`", row.rstrip("| ").rpartition("|")[2])}


@asynccontextmanager
async def looking(node: Process) -> AsyncIterator[Viewer]:
    client = await WireClient.connect(node.port, "/admin/live")
    viewer = Viewer(client)
    try:
        viewer.send(type="hello", key=KEY)
        await until(lambda: bool(viewer.of("welcome")))
        yield viewer
    finally:
        viewer._reading.cancel()
        await asyncio.gather(viewer._reading, return_exceptions=True)
        await client.end()


async def test_nodes_are_shown_together_and_one_that_dies_is_seen_to(tmp_path: Path, redis: RedisProcess) -> None:
    pushing = {"GREENDOT_PUSH_ENABLED": "true", "GREENDOT_PUSH_DRY_RUN": "true"}
    async with serving(tmp_path, *[redis_url(redis.port)] * 2, **ON, **pushing) as nodes, Clients() as clients:
        await clients.join(nodes[0], "ann")
        for user in ("bob", "carl"):
            await clients.join(nodes[1], user)
        async with looking(nodes[0]) as viewer:
            await viewer.shows(lambda frame: frame["sums"].get("ws_connections") == 3)
            rows = viewer.rows()
            assert sorted(row["gauges"]["ws_connections"] for row in rows.values()) == [1, 2]
            assert all(row["state"] == "live" and row["answered"] for row in rows.values())
            assert all(row["renewed_ago_ms"] < LEASE_S * 1000 for row in rows.values())
            assert all(row["gauges"]["redis_command_latency_us"] > 0 for row in rows.values())
            await viewer.shows(lambda frame: "store_latency_ms" in frame["worst"])
            frame = viewer.of("sample")[-1]
            assert frame["worst"]["push_queue_waiting"] == 0  # all nodes report the same queue
            assert "push_queue_waiting" not in frame["sums"]
            await viewer.shows(lambda frame: {"retention", "sweep"} <= {job["name"] for job in frame["jobs"]})
            scraped = (await nodes[0].ask("GET", "/metrics")).body.decode()
            assert {name for name in documented() if f"\n{name}{{" not in scraped} == set()
            assert "# TYPE ws_closed_total counter" in scraped
            await nodes[1].kill()
            await viewer.shows(lambda frame: sorted(row["state"] for row in frame["nodes"]) == ["dead", "live"])
            await viewer.shows(lambda frame: frame["sums"]["ws_connections"] == 1)


async def test_a_session_on_another_node_is_found_reported_and_disconnected(
    tmp_path: Path, redis: RedisProcess
) -> None:
    async with serving(tmp_path, *[redis_url(redis.port)] * 2, **ON) as nodes, Clients() as clients:
        assert (await nodes[0].ask("PUT", "/v1/rooms/den", {"open": True})).status < 300
        async with looking(nodes[0]) as viewer:
            await viewer.request(type="tail", kinds=["connects", "rooms"])
            await until(lambda: len(viewer.of("sample")) >= 3)  # both nodes have received the request for events
            ann = await clients.join(nodes[0], "ann", device="laptop")
            ann_too = await clients.join(nodes[1], "ann", device="phone")
            for client in (ann, ann_too):
                await client.request(type="room.join", room="den")
            await ann_too.request(type="room.send", room="den", body="a secret")
            await until(lambda: any(event["what"] == "message" for event in viewer.events()))
            assert {event["node"] for event in viewer.events()} == set(viewer.rows())
            assert "secret" not in str(viewer.of("tail"))

            found = await viewer.request(type="find.user", user="ann")
            assert {(it["device"], it["state"], *it["rooms"]) for it in found["sessions"]} == {
                ("laptop", "online", "den"),
                ("phone", "online", "den"),
            }
            assert all(it["token_expires_at"] for it in found["sessions"])
            room = await viewer.request(type="find.room", room="den")
            assert (room["listeners"], room["present"], room["head"]) == (2, ["ann"], 1)

            there = next(it["session"] for it in found["sessions"] if it["device"] == "phone")
            offer = await viewer.request(type="act", do="disconnect", session=there)
            assert not ann_too.closed
            await viewer.request(type="confirm", number=offer["number"])
            await until(lambda: ann_too.closed is not None)
            assert ann_too.closed is not None
            assert ann_too.closed.code == 4503
            assert ann.closed is None


async def test_a_node_that_stands_still_does_not_hold_up_the_look(tmp_path: Path, redis: RedisProcess) -> None:
    async with serving(tmp_path, *[redis_url(redis.port)] * 2, **ON) as nodes, looking(nodes[0]) as viewer:
        await viewer.shows(lambda frame: [row["answered"] for row in frame["nodes"]] == [True, True])
        nodes[1].signal(signal.SIGSTOP)
        try:
            await viewer.shows(lambda frame: sorted(row["answered"] for row in frame["nodes"]) == [False, True])
            before = len(viewer.of("sample"))
            await until(lambda: len(viewer.of("sample")) >= before + 3, within_s=6)
        finally:
            nodes[1].signal(signal.SIGCONT)
        await viewer.shows(lambda frame: [row["answered"] for row in frame["nodes"]].count(True) == 2)


async def test_lists_and_history_are_of_all_nodes(tmp_path: Path, redis: RedisProcess) -> None:
    async with serving(tmp_path, *[redis_url(redis.port)] * 2, **ON) as nodes, Clients() as clients:
        assert (await nodes[0].ask("PUT", "/v1/rooms/den", {"open": True})).status < 300
        for user, node in (("ann", nodes[0]), ("bob", nodes[1]), ("bert", nodes[1])):
            client = await clients.join(node, user)
            await client.request(type="room.join", room="den")
        async with looking(nodes[0]) as viewer:
            listed = await viewer.request(type="list.users")
            assert [it["shown"]["user"] for it in listed["users"]] == ["ann", "bert", "bob"]
            listed = await viewer.request(type="list.users", prefix="b")
            assert [it["shown"]["user"] for it in listed["users"]] == ["bert", "bob"]
            (den,) = (await viewer.request(type="list.rooms", prefix="d"))["rooms"]
            assert den["listeners"] == 3

            async def newest() -> float | None:
                history = await viewer.request(type="history")
                column: list[float | None] = history["columns"].get("sums.ws_connections", [None])
                return column[-1]

            deadline = asyncio.get_running_loop().time() + 25  # points are ten seconds apart
            while await newest() != 3:
                assert asyncio.get_running_loop().time() < deadline
                await asyncio.sleep(0.5)
