"""CLI commands of operators as processes, with real servers on a real Redis."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from e2e.processes import PATIENCE_S, SECRET, Ended, Process, crowding, greendot, running
from greendot.engine.redis.keys import UserKeys, user_keys
from greendot.testing import WireClient
from redis_servers import Cluster, RedisProcess, redis_cluster

QUICK_S = 6.0  # limit for the error of a command, with the start of Python on a busy machine


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    with RedisProcess("redis", tmp_path_factory.mktemp("redis"), requirepass="hush", login=("default", "hush")) as one:
        yield one


class Site:
    """Servers and commands with the same settings. The prefix separates them from other tests."""

    def __init__(self, folder: Path, redis: RedisProcess | Cluster, **environment: str) -> None:
        self.folder = folder
        self.redis = redis
        self.prefix = f"{folder.name}:"
        self.url = redis.url if isinstance(redis, Cluster) else f"redis://:hush@127.0.0.1:{redis.port}"
        self.environment = environment | {"GREENDOT_ENGINE_PREFIX": self.prefix, "GREENDOT_PRESENCE_GRACE_S": "60"}

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Process]:
        async with running(self.folder, "--host", "127.0.0.1", "--engine", self.url, **self.environment) as server:
            yield server

    async def run(self, *command: str) -> Ended:
        ended = await greendot(self.folder, *command, "--engine", self.url, **self.environment)
        assert (ended.code, ended.err) == (0, ""), ended
        return ended

    async def said(self, *command: str) -> str:
        return (await self.run(*command)).out

    async def rows(self, *command: str) -> list[dict[str, str]]:
        """Return the rows of the printed table, by column name."""
        head, *lines = [re.split(r"  +", line) for line in (await self.said(*command)).splitlines()]
        return [dict(zip(head, line, strict=True)) for line in lines]

    async def json(self, *command: str) -> Any:
        said = await self.said(*command, "--json")
        assert said.count("\n") == 1
        return msgspec.json.decode(said)

    def record(self, user: str) -> bytes | None:
        where = user_keys(self.prefix, "default", user)
        record: bytes | None = self._command("HGET", self._bucket(where), where.field)
        return record

    def _bucket(self, where: UserKeys) -> str:
        return where.buckets(int(self._command("HGET", where.nodes, "~buckets") or 128))[0]

    def plant(self, user: str, session: str) -> None:
        """Write the record of a user with only this session, of an unknown node."""
        where = user_keys(self.prefix, "default", user)
        record = f"o{round(time.time() * 1000):x}|||a||{session},,1"
        self._command("HSET", self._bucket(where), where.field, record)

    def _command(self, name: str, key: str, *arguments: str) -> Any:
        server = self.redis.primary_of(key) if isinstance(self.redis, Cluster) else self.redis
        return server.command(name, key, *arguments)


async def counted(server: Process, metric: str) -> int:
    found = re.search(rf"^{metric}{{.*}} (\S+)$", (await server.ask("GET", "/metrics")).body.decode(), re.MULTILINE)
    assert found, metric
    return int(float(found[1]))


async def heard(watcher: WireClient) -> list[tuple[str, str, str]]:
    """Wait for the next frame and return it with all frames that followed."""
    first = await watcher.receive()
    frames = [first, *await watcher.quiet()]
    return [(frame["type"], frame["data"]["user"], frame["data"]["state"]) for frame in frames]


# --- inspect ---


async def test_nodes_live_and_dead_are_listed_with_when_their_sessions_end(tmp_path: Path, redis: RedisProcess) -> None:
    site = Site(tmp_path, redis)
    assert await site.said("nodes") == "No nodes found on this engine.\n"
    assert await site.json("nodes") == {"nodes": []}
    async with site.serving() as stays:
        async with site.serving() as goes, await goes.client("alice") as alice:
            gone = alice.welcome["node"]
            goes.signal(signal.SIGTERM)
            assert (await goes.ended()).code == 0
        rows = {row["NODE"]: row for row in await site.rows("nodes")}
        dead = rows.pop(gone)
        assert dead["STATE"] == "dead"
        assert re.fullmatch(r"now|\d+ s ago", dead["RENEWED"])
        assert re.fullmatch(r"\d+ s|1 min", dead["SESSIONS END IN"])
        (live,) = rows.values()
        assert (live["STATE"], live["SESSIONS END IN"]) == ("live", "–")
        assert re.fullmatch(r"now|\d s ago", live["RENEWED"])

        mine, theirs = await site.json("nodes"), (await stays.ask("GET", "/v1/nodes")).json()
        assert mine.keys() == {"nodes"}
        for entry in (*mine["nodes"], *theirs["nodes"]):
            # The lease may be renewed between the two reads.
            assert entry["state"] == "dead" or entry.pop("renewed_at") > 0
        assert mine["nodes"] == theirs["nodes"]


async def test_presence_is_what_others_see(tmp_path: Path, redis: RedisProcess) -> None:
    site = Site(tmp_path, redis)
    async with (
        site.serving() as server,
        await server.client("alice", device="phone"),
        await server.client("alice", device="laptop"),
        await server.client("bob") as bob,
    ):
        status = {"status": "busy", "text": "on \x1b[31mair"}
        assert (await server.ask("PUT", "/v1/users/alice/status", status)).status == 200
        bob.send(type="bye")
        await bob.closed()
        users = ("alice", "bob", "nobody")
        alice, bob_row, nobody = await site.rows("presence", *users)
        assert (alice["USER"], alice["STATE"], alice["LAST SEEN"]) == ("alice", "busy", "–")
        assert re.fullmatch(r"now|\d+ s ago", alice["SINCE"])
        assert (alice["DEVICES"], alice["STATUS TEXT"]) == ("laptop, phone", "on �[31mair")
        assert bob_row["STATE"] == "offline"
        assert re.fullmatch(r"now|\d+ s ago", bob_row["LAST SEEN"])
        assert [*nobody.values()] == ["nobody", "offline", "–", "–", "–", "–"]
        api = (await server.ask("POST", "/v1/presence/query", {"users": users})).json()
        assert await site.json("presence", *users) == api
        elsewhere = await site.json("presence", "alice", "--tenant", "acme")
        assert elsewhere["presence"][0]["state"] == "offline"


async def test_sessions_are_shown_wherever_they_are_and_when_those_that_are_left_end(
    tmp_path: Path, redis: RedisProcess
) -> None:
    site = Site(tmp_path, redis)
    async with site.serving() as stays, site.serving() as goes:
        assert await site.said("sessions", "alice") == "alice has no sessions.\n"
        async with await stays.client("alice", device="phone") as phone:
            lost = await stays.client("alice", device="laptop")
            moved = await goes.client("alice", device="tablet")
            await lost.reset()
            goes.signal(signal.SIGTERM)
            await moved.closed()
            await goes.ended()
            async with asyncio.timeout(PATIENCE_S):
                while (await site.json("sessions", "alice"))["sessions"][1]["state"] != "lingering":
                    pass
            rows = await site.rows("sessions", "alice")
            for row, client, device in zip(rows, (phone, lost, moved), ("phone", "laptop", "tablet"), strict=True):
                assert row["SESSION"] == client.welcome["session"]
                assert (row["DEVICE"], row["NODE"]) == (device, client.welcome["node"])
            assert [row["STATE"] for row in rows] == ["online", "lingering", "lingering"]
            assert rows[0]["ENDS IN"] == "–"
            for row in rows[1:]:
                assert re.fullmatch(r"\d\d s", row["ENDS IN"])

            mine, theirs = await site.json("sessions", "alice"), (await stays.ask("GET", "/v1/users/alice/sessions"))
            (tablet,) = [entry for entry in theirs.json()["sessions"] if entry["device"] == "tablet"]
            assert mine["sessions"][2].keys() < tablet.keys()
            assert {it["session"]: (it["node"], it["state"]) for it in mine["sessions"]} == {
                it["session"]: (it["node"], it["state"]) for it in theirs.json()["sessions"]
            }
            assert 0 < mine["sessions"][2]["ends_in_ms"] <= 60_000
            assert mine["sessions"][0]["ends_in_ms"] is None
            assert await site.json("sessions", "alice", "--tenant", "acme") == {"sessions": []}


async def test_typers_are_listed_with_when_they_stop(tmp_path: Path, redis: RedisProcess) -> None:
    site = Site(tmp_path, redis, GREENDOT_TYPING_TTL_S="30")
    async with (
        site.serving() as server,
        await server.client("alice") as alice,
        await server.client("bob") as bob,
    ):
        await server.ask("PUT", "/v1/rooms/club", {"open": True})
        assert await site.said("typing", "club") == "No user is typing in club.\n"
        assert await site.json("typing", "club") == {"typing": []}
        await bob.request(type="room.join", room="club")
        await alice.request(type="room.join", room="club")
        await bob.receive("room.entered")
        alice.send(type="typing.start", room="club")
        await bob.receive("typing.started")
        (row,) = await site.rows("typing", "club")
        assert (row["USER"], row["NAME"]) == ("alice", "Alice")
        assert re.fullmatch(r"\d+ s", row["STOPS IN"])
        (entry,) = (await site.json("typing", "club"))["typing"]
        (api,) = (await server.ask("GET", "/v1/rooms/club/typing")).json()["typing"]
        assert 0 < api.pop("expires_in_ms") <= entry.pop("expires_in_ms") <= 30_000
        assert entry == api
        assert await site.json("typing", "club", "--tenant", "acme") == {"typing": []}


# --- repair ---


async def test_an_orphaned_session_is_removed_and_counted_at_once_and_watchers_receive_one_change(
    tmp_path: Path, redis: RedisProcess
) -> None:
    site = Site(tmp_path, redis)
    async with (
        site.serving() as one,
        site.serving() as other,
        await one.client("alice") as alice,
        await one.client("bob") as near,
        await other.client("carol") as far,
    ):
        for watcher in (near, far):
            assert (await watcher.request(type="watch", users=["alice"]))["presence"][0]["state"] == "online"
        site.plant("alice", "Zzzz-planted000")
        site.plant("dave", "Zzzz-planted001")
        said = await site.said("sweep")
        assert said.splitlines()[:2] == [
            "Ended 2 leftover sessions.",
            "2 users went offline as a result.",
        ]
        assert said.splitlines()[2].startswith("Live nodes that now compare their sessions with the engine: 2. ")
        for watcher in (near, far):
            assert await heard(watcher) == [("presence.changed", "alice", "offline")]
        assert (site.record("alice"), site.record("dave")) == (None, None)
        assert (await site.said("sweep")).splitlines()[0] == "Nothing to repair."
        assert await site.json("sweep") == {"sessions": 0, "users": 0, "forgotten": 0, "nodes": 0, "asked": 2}
        site.plant("dave", "Zzzz-planted002")
        assert await site.json("sweep") == {"sessions": 1, "users": 1, "forgotten": 0, "nodes": 0, "asked": 2}
        for client in (near, far, alice):
            assert await client.quiet() == []


async def test_a_session_its_live_node_does_not_hold_is_removed_soon_after_and_counted_there(
    tmp_path: Path, redis: RedisProcess
) -> None:
    site = Site(tmp_path, redis)
    async with site.serving() as server, await server.client("alice") as alice:
        site.plant("ghost", f"{alice.welcome['node']}-planted000")
        assert (await alice.request(type="watch", users=["ghost"]))["presence"][0]["state"] == "online"
        assert (await site.said("sweep")).splitlines() == [
            "Nothing to repair.",
            "Live nodes that now compare their sessions with the engine: 1. The metric presence_audited_sessions_total "
            "counts the sessions that they end.",
        ]
        assert await heard(alice) == [("presence.changed", "ghost", "offline")]
        assert site.record("ghost") is None
        assert [row["STATE"] for row in await site.rows("presence", "alice", "ghost")] == ["online", "offline"]
        async with asyncio.timeout(PATIENCE_S):
            while await counted(server, "presence_audited_sessions_total") != 1:
                pass


async def test_a_cluster_is_seen_and_swept_as_one(tmp_path: Path) -> None:
    with redis_cluster("redis", tmp_path / "cluster") as cluster:
        site = Site(tmp_path, cluster)
        async with (
            site.serving() as one,
            site.serving() as other,
            await one.client("alice") as alice,
            await other.client("bob") as bob,
        ):
            nodes = {client.welcome["node"] for client in (alice, bob)}
            assert {(node["node"], node["state"]) for node in (await site.json("nodes"))["nodes"]} == {
                (node, "live") for node in nodes
            }
            users = [f"user-{number}" for number in range(12)]  # very likely on all three servers
            for number, user in enumerate(users):
                site.plant(user, f"{[*nodes][number % 2]}-planted{number:03}")
            await alice.request(type="watch", users=users)
            site.plant("dave", "Zzzz-planted000")
            rows = await site.rows("presence", "alice", "bob", *users)
            assert [row["STATE"] for row in rows] == ["online"] * 14
            assert len(await site.rows("sessions", "bob")) == 1
            assert await site.said("typing", "club") == "No user is typing in club.\n"
            assert await site.json("sweep") == {"sessions": 1, "users": 1, "forgotten": 0, "nodes": 0, "asked": 2}
            gone = [(await alice.receive("presence.changed"))["data"] for _ in users]
            assert sorted((entry["user"], entry["state"]) for entry in gone) == sorted((u, "offline") for u in users)
            assert await alice.quiet() == []


async def test_a_sweep_with_another_secret_still_cleans_up_and_no_node_accepts_its_messages(
    tmp_path: Path, redis: RedisProcess
) -> None:
    site = Site(tmp_path, redis)
    async with site.serving() as server, await server.client("bob") as bob:
        await bob.request(type="watch", users=["dave"])
        site.plant("dave", "Zzzz-planted000")
        site.environment["GREENDOT_AUTH_SECRET"] = SECRET[::-1]
        assert (await site.json("sweep"))["users"] == 1
        async with asyncio.timeout(PATIENCE_S):
            while await counted(server, "realtime_pubsub_invalid_total") != 2:  # the change and the request to compare
                pass
        assert await bob.quiet() == []


async def test_without_any_server_the_rest_of_one_that_is_over_is_swept(tmp_path: Path, redis: RedisProcess) -> None:
    site = Site(tmp_path, redis)
    assert await site.said("sweep") == "Nothing to repair.\n"
    site.plant("dave", "Zzzz-planted000")
    assert await site.said("sweep") == "Ended 1 leftover session.\n1 user went offline as a result.\n"


# --- errors ---

COMMANDS = [("nodes",), ("presence", "alice"), ("sessions", "alice"), ("typing", "club"), ("sweep",)]


async def refused(folder: Path, *command: str) -> str:
    """Return the one-line error of a command that fails."""
    started = time.monotonic()
    ended = await greendot(folder, *command)
    assert (time.monotonic() - started) / crowding() < QUICK_S
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("greendot: ")
    assert ended.err.count("\n") == 1
    return ended.err


@pytest.mark.parametrize("command", COMMANDS, ids=[name for name, *_ in COMMANDS])
async def test_a_redis_that_does_not_answer_is_named_quickly(
    tmp_path: Path, redis: RedisProcess, command: tuple[str, ...]
) -> None:
    redis.stop()
    try:
        said = await refused(tmp_path, *command, "--engine", f"redis://:hush@127.0.0.1:{redis.port}")
    finally:
        redis.cont()
    assert said == f"greendot: Redis at 127.0.0.1:{redis.port} cannot be used: no answer in time\n"


async def test_a_wrong_password_place_or_url_is_named_and_no_password_shown(
    tmp_path: Path, redis: RedisProcess
) -> None:
    here = f"127.0.0.1:{redis.port}"
    said = await refused(tmp_path, "nodes", "--engine", f"redis://:wrong@{here}")
    assert f"Redis at {here} cannot be used: WRONGPASS" in said
    assert "wrong@" not in said
    assert "a user and password are required" in await refused(tmp_path, "nodes", "--engine", f"redis://{here}")
    assert "sentinel" in await refused(tmp_path, "nodes", "--engine", f"redis+sentinel://:hush@{here}/main")
    assert "cluster" in await refused(tmp_path, "nodes", "--engine", f"redis+cluster://:hush@{here}")
    assert "engine.url" in await refused(tmp_path, "nodes", "--engine", "redis://:hu/sh@localhost")


async def test_ctrl_c_is_quiet(tmp_path: Path) -> None:
    came = asyncio.Event()

    async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        came.set()

    writers: list[asyncio.StreamWriter] = []
    listener = await asyncio.start_server(silent, "127.0.0.1", 0)
    url = f"redis://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "greendot", "sweep", "--engine", url),
        stdout=PIPE,
        stderr=PIPE,
        cwd=tmp_path,
        env={"GREENDOT_AUTH_SECRET": SECRET},
    )
    try:
        await asyncio.wait_for(came.wait(), PATIENCE_S)
        process.send_signal(signal.SIGINT)
        out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
        for writer in writers:
            writer.close()
        listener.close()
    assert (process.returncode, out, err) == (130, b"", b"")
