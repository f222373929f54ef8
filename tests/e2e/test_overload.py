"""Overloaded node: the signals it sheds, the work it refuses, the work it still does, and its logs and metrics."""

from __future__ import annotations

import re
from typing import Any

import pytest

from e2e.processes import ask
from greendot.limits.overload_model import Level, Load
from greendot.testing import Served, serving
from greendot.testing.server import API_KEY

HEADERS = {"Authorization": f"Bearer {API_KEY}"}
MESSAGE = {"user": "app", "body": "hello"}


def load(served: Served, level: Level) -> None:
    """Bring the node to this overload level by measured loads."""
    flood, calm = Load(lag_s=9, worked_s=9), Load()
    overload_monitor, now = served.node.overload_monitor, served.clock.monotonic()
    for _ in range(100):
        if overload_monitor.level is level:
            return
        now += 0.5
        overload_monitor.measure(flood if overload_monitor.level < level else calm, now)
    raise AssertionError(f"the overload level stays {overload_monitor.level.name}")


async def counted(served: Served) -> dict[str, int]:
    text = (await ask(served.port, "GET", "/metrics")).body.decode()
    return {name: int(float(value)) for name, value in re.findall(r"^(\w+)\{.*\} (\d+\.0)$", text, re.M)}


async def refused(client: Any, **command: Any) -> dict[str, Any]:
    client.send(**command, id=99)
    frame = await client.receive("error")
    assert frame["code"] == "unavailable"
    assert frame["retry"]
    assert 1_000 <= frame["retry_in_ms"] <= 3_000
    return dict(frame)


async def test_signals_are_shed_first_and_presence_and_messages_go_on() -> None:
    async with serving() as served:
        await served.lobby()
        ann, bob = await served.joined("ann"), await served.joined("bob")
        await bob.request(type="watch", users=["ann"])
        load(served, Level.SHEDDING)
        ann.send(type="typing.start", room="lobby")
        assert await ann.request(type="signal.send", room="lobby", kind="wave") == {}
        assert (await ask(served.port, "POST", "/v1/signals", {"user": "bob", "kind": "x"}, **HEADERS)).status == 202
        assert await bob.quiet() == []
        assert (await ann.request(type="room.send", room="lobby", body="hi"))["seq"] == 1
        await ann.request(type="status.set", status="busy")
        assert [frame["type"] for frame in await bob.quiet()] == ["room.message", "presence.changed"]
        assert (await counted(served))["realtime_shed_total"] == 3
        await served.client("cleo")  # and new clients are accepted
        load(served, Level.NORMAL)
        await ann.request(type="signal.send", room="lobby", kind="wave")
        assert [frame["type"] for frame in await bob.quiet()] == ["signal"]


async def test_new_work_is_refused_and_what_ends_work_is_done() -> None:
    async with serving() as served:
        await served.lobby()
        ann = await served.joined("ann")
        load(served, Level.REFUSING)
        await refused(ann, type="room.send", room="lobby", body="hi")
        await refused(ann, type="signal.send", room="lobby", kind="wave")
        await refused(ann, type="watch", users=["bob"])
        await refused(ann, type="room.join", room="lobby")
        await refused(ann, type="room.history", room="lobby")
        ann.send(type="typing.start", room="lobby")
        assert await ann.quiet() == []  # typing is dropped without an error; heartbeats are acknowledged
        for command in ("unwatch", "inbox.read", "room.leave"):
            fields: dict[str, Any] = {"unwatch": {"users": ["bob"]}, "inbox.read": {"through": 0}}.get(command, {})
            await ann.request(type=command, **fields or {"room": "lobby"})
        ann.send(type="bye")
        assert (await ann.closed()).code == 1000


async def test_hellos_are_refused_and_readyz_gives_the_reason_until_the_overload_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as served:
        load(served, Level.REFUSING)
        newcomer = await served.socket()
        newcomer.send(type="hello", token=served.token("ann"))
        assert (await newcomer.receive("overloaded"))["data"]["retry_in_ms"] >= 2_000
        close = await newcomer.closed()
        assert (close.code, close.reason) == (4003, "this node is overloaded; reconnect later")
        ready = await ask(served.port, "GET", "/readyz")
        assert (ready.status, ready.json()["ready"]) == (503, False)
        assert "lags by" in ready.json()["reason"]
        assert (await ask(served.port, "GET", "/livez")).status == 200
        gauges = await counted(served)
        assert gauges["realtime_overload_level"] == 2
        assert gauges["realtime_loop_lag_ms"] == gauges["realtime_loop_lag_worst_ms"] == 9_000
        assert gauges["realtime_hellos_refused_total"] == 1
        load(served, Level.NORMAL)
        await served.client("ann")
        assert (await ask(served.port, "GET", "/readyz")).status == 200
        assert (await counted(served))["realtime_overload_level"] == 0
        said = [record.getMessage() for record in caplog.records if record.name == "greendot.overload"]
        assert len(said) == 4  # one for each change
        assert "low-priority signals, such as typing, are dropped" in said[0]
        assert "new work is refused" in said[1]
        assert "overload ended" in said[3]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/rooms/lobby/messages", MESSAGE),
        ("/v1/notifications", {"user": "ann", "kind": "k", "body": 1}),
        ("/v1/notifications", {"notifications": [{"user": "ann", "kind": "k", "body": 1}]}),
        ("/v1/signals", {"user": "ann", "kind": "k"}),
        ("/v1/signals", {"room": "lobby", "kind": "k"}),
    ],
)
async def test_apps_are_asked_to_wait(path: str, body: dict[str, Any]) -> None:
    async with serving() as served:
        await served.lobby()
        load(served, Level.REFUSING)
        answer = await ask(served.port, "POST", path, body, **HEADERS)
        assert (answer.status, answer.json()["code"]) == (503, "unavailable")
        assert 1 <= int(answer.headers["retry-after"]) <= 3
        assert (await ask(served.port, "GET", "/v1/rooms/lobby", **HEADERS)).status == 200  # reads are not refused
        (node,) = (await ask(served.port, "GET", "/v1/nodes", **HEADERS)).json()["nodes"]
        assert node["level"] == "refusing"
        load(served, Level.SHEDDING)
        assert (await ask(served.port, "POST", path, body, **HEADERS)).status < 300


async def test_what_was_accepted_is_delivered() -> None:
    async with serving() as served:
        await served.lobby()
        ann, bob = await served.joined("ann"), await served.joined("bob")
        for number in range(10):
            ann.send(type="room.send", room="lobby", body=number, id=number)
        replies = 0
        while replies < 10:
            replies += (await ann.receive())["type"] == "reply"
        load(served, Level.REFUSING)
        frames = await bob.quiet()
        assert [frame["data"]["seq"] for frame in frames if frame["type"] == "room.message"] == [*range(1, 11)]


async def test_very_many_commands_at_once_are_handled_in_slices_and_in_order() -> None:
    async with serving(limits={"enabled": False}) as served:
        await served.lobby()
        ann, bob = await served.joined("ann"), await served.joined("bob")
        for number in range(1_000):
            ann.send(type="signal.send", room="lobby", kind="n", body=number)
        told: list[int] = []
        while len(told) < 1_000:
            told.append((await bob.receive("signal"))["data"]["body"])
        assert told == [*range(1_000)]
        assert await ann.quiet() == []
