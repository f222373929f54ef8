"""Redis or PostgreSQL is stopped under load and restarted: a few log lines describe it, and all recovers.

`make outage` stops Redis for a minute, with default periods. Here the outage takes seconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from cluster.nodes import Clients, Listener, eventually, meanwhile, redis_url, serving
from e2e.processes import Process, until
from postgres_server import postgres_server
from redis_servers import RedisProcess

AWAY_S = float(os.environ.get("OUTAGE_S", "2"))
CLIENTS = int(os.environ.get("OUTAGE_CLIENTS", "20"))  # on each node
IS_LONG = AWAY_S >= 60
MOST_LINES = 10
ROOMS = ("den", "hall", "yard")
HEALED_S = 30.0
# In the short test all periods are short, as in other cluster tests.
SHORT = {"GREENDOT_ENGINE_STALE_AFTER_S": "1", "GREENDOT_LOG_REPEAT_S": "3"}
LONG = {
    "GREENDOT_NODE_LEASE_S": "15",
    "GREENDOT_NODE_RENEW_S": "5",
    "GREENDOT_PRESENCE_GRACE_S": "30",
    "GREENDOT_PRESENCE_CLEAN_GRACE_S": "5",
}
PERIODS = LONG if IS_LONG else SHORT


class Load:
    """Continuous load: clients that send, type, connect and leave, and an app that sends."""

    def __init__(self, nodes: list[Process], talkers: list[Listener]) -> None:
        self._nodes = nodes
        self._talkers = talkers
        self.sent = 0

    async def talk(self) -> None:
        number = random.randrange(len(self._talkers))
        talker, room = self._talkers[number], ROOMS[number % len(ROOMS)]
        assert talker.closed is None, talker.closed
        talker.send(type="typing.start", room=room)
        talker.send(type="room.send", room=room, body="hello")
        talker.send(type="signal.send", room=room, kind="wave")
        self.sent += 1
        await asyncio.sleep(0.03)

    async def change(self) -> None:
        random.choice(self._talkers).send(type="status.set", status=random.choice(("busy", "auto")))
        await asyncio.sleep(0.05)

    async def come_and_go(self) -> None:
        """Connect a new client, which may be refused."""
        node = random.choice(self._nodes)
        try:
            async with await node.client(f"guest{random.randrange(1000)}") as guest:
                guest.send(type="room.join", room="den")
        except Exception:  # noqa: S110  (any error may occur during the outage)
            pass
        await asyncio.sleep(0.1)

    async def ask(self) -> None:
        node = random.choice(self._nodes)
        body = {"user": "user0", "kind": "ping", "body": {}}
        with suppress(TimeoutError):
            answer = await node.ask("POST", "/v1/notifications", body)
            assert answer.status in (201, 429, 503), answer
        await asyncio.sleep(0.05)


@asynccontextmanager
async def under_load(nodes: list[Process]) -> AsyncIterator[tuple[Load, list[Listener]]]:
    """Run the load, with a listener on each node that joins all rooms and watches all users."""
    for room in ROOMS:
        assert (await nodes[0].ask("PUT", f"/v1/rooms/{room}", {"open": True})).status < 300
    async with Clients() as clients:
        users = [f"user{number}" for number in range(CLIENTS * len(nodes))]
        crowds = [await clients.crowd(node, users[at :: len(nodes)]) for at, node in enumerate(nodes)]
        listeners = await clients.watchers(nodes, *users)
        talkers = [talker for crowd in crowds for talker in crowd.values()]
        for number, talker in enumerate(talkers):
            await talker.request(type="room.join", room=ROOMS[number % len(ROOMS)])
        for listener in listeners:
            for room in ROOMS:
                await listener.request(type="room.join", room=room)
        load = Load(nodes, talkers)
        async with meanwhile(load.talk, load.change, load.come_and_go, load.ask):
            yield load, listeners


class Log:
    """Log of a node, read continuously."""

    def __init__(self, node: Process) -> None:
        self.text = ""
        self._node = node
        self._reading = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        source = self._node._process.stderr
        assert source is not None
        while line := await source.readline():
            self.text += line.decode()

    async def has(self, event: str) -> None:
        await until(lambda: f'"{event}"' in self.text, HEALED_S)

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)


def lines(log: str) -> list[dict[str, Any]]:
    """Return the JSON lines of a log. The output at the end of the process is not JSON."""
    return [json.loads(line) for line in log.splitlines() if line.startswith("{")]


async def story(
    nodes: list[Process], leave: Callable[[], None], come_back: Callable[[], None], last: str
) -> list[list[Any]]:
    """Return the log lines of each node, from its start through an outage to its end.

    `last` is the event of a complete recovery.
    """
    logs = [Log(node) for node in nodes]

    async def ready(wanted: bool) -> bool:
        answers = [(await node.ask("GET", "/readyz")).status == 200 for node in nodes]
        return all(answers) if wanted else not any(answers)

    try:
        async with under_load(nodes) as (load, listeners):
            await until(lambda: load.sent > 30)
            leave()
            await eventually(lambda: ready(False), "the nodes have noticed the outage", HEALED_S)
            await asyncio.sleep(AWAY_S)
            come_back()
            await eventually(lambda: ready(True), "the nodes are ready again", HEALED_S)
            await are_in_step(nodes, listeners)
            await until(lambda: not any(is_stale(listener) for listener in listeners), HEALED_S)
            await asyncio.gather(*(log.has(last) for log in logs))
    finally:
        await asyncio.gather(*(log.close() for log in logs))
    for node, log in zip(nodes, logs, strict=True):
        node.signal(signal.SIGTERM)
        log.text += (await node.ended()).err
    return [lines(log.text) for log in logs]


async def are_in_step(nodes: list[Process], listeners: list[Listener]) -> None:
    """Check that messages of one node reach the other once and in order, including those sent during the outage."""
    for number, listener in enumerate(listeners):
        other = listeners[number - 1]

        async def is_said() -> bool:
            answer = await listener.answer(type="room.send", room="den", body="healed")  # noqa: B023
            return answer["type"] == "reply"

        await eventually(is_said, "messages are accepted", HEALED_S)
        seq = max(data["seq"] for data in listener.of("room.message") if data["room"] == "den")
        await other.hears("room.message", HEALED_S, room="den", seq=seq)
    for listener in listeners:
        assert listener.closed is None
        for room in ROOMS:
            seqs = [data["seq"] for data in listener.of("room.message") if data["room"] == room]
            assert seqs == [*range(seqs[0], seqs[0] + len(seqs))], room


def is_stale(listener: Listener) -> bool:
    """Return whether the last change of any user is marked stale."""
    last = {told.data["user"]: told.data.get("stale", False) for told in listener.changes()}
    return any(last.values())


def show(what: str, told: list[list[Any]]) -> None:
    for number, log in enumerate(told):
        print(f"--- {what}: node {number}")
        for line in log:
            shown = {name: value for name, value in line.items() if name in ("event", "repeated", "over_s")}
            print(line["time"][11:], f"{line['level']:<8}", shown.pop("event"), "·", line["text"], shown or "")


def is_short(log: list[Any]) -> list[str]:
    """Check that the log is short and return the names of its events."""
    assert len(log) <= MOST_LINES, Counter(line["event"] for line in log)
    assert {line["level"] for line in log} <= {"info", "warning"}
    return [line["event"] for line in log]


@pytest.mark.timeout(240 if IS_LONG else 60)
async def test_the_log_reports_an_outage_of_redis_in_a_few_lines_and_all_nodes_recover(tmp_path: Path) -> None:
    def start_again() -> None:
        redis.start()
        redis.ready()

    with RedisProcess("redis", tmp_path / "redis") as redis:
        async with serving(tmp_path, *[redis_url(redis.port)] * 2, **PERIODS) as nodes:
            told = await story(nodes, redis.kill, start_again, "node.recovered")
    show(f"Redis away for {AWAY_S:g} s", told)
    for log in told:
        names = is_short(log)
        assert names[:3] == ["redis.connected", "node.started", "redis.lost"]
        assert {"node.stale", "redis.back", "node.recovered"} <= {*names}
        assert names.index("node.stale") < names.index("redis.back") < names.index("node.recovered")
        back = next(line for line in log if line["event"] == "redis.back")
        assert back["away_s"] >= AWAY_S


@pytest.mark.timeout(240 if IS_LONG else 60)
async def test_the_log_reports_an_outage_of_postgresql_in_a_few_lines_and_all_nodes_recover(tmp_path: Path) -> None:
    with postgres_server() as postgres, RedisProcess("redis", tmp_path / "redis") as redis:
        env = PERIODS | {"GREENDOT_STORE_URL": postgres.url, "GREENDOT_STORE_MIGRATE": "true"}
        async with serving(tmp_path, *[redis_url(redis.port)] * 2, **env) as nodes:
            told = await story(nodes, postgres.end, postgres.start, "store.back")
    show(f"PostgreSQL away for {AWAY_S:g} s", told)
    for log in told:
        names = is_short(log)
        assert names.index("store.lost") < names.index("store.back")
