"""Small scale tests: the faults are hidden from clients, and changes that happened are counted.

`make scale` runs the full ones.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from measure import controlled, line, tell
from scale import Clients, Node, Plan, compile_scale, engine, generators, run, settings
from serverd import Access

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_scale(tmp_path_factory.mktemp("scale"))


def test_clients_see_no_change_when_a_node_is_killed_redis_flushed_and_all_nodes_restarted(
    tmp_path: Path, program: Path
) -> None:
    plan = Plan(clients=200, nodes=2, lease_s=4, grace_s=8, idle_s=1, pulse_s=2, late_s=1)
    results = run(plan, tmp_path, program)
    assert results.held, results
    assert [*results.seen] == ["idle", "kill -9 of a node", "FLUSHALL", "rolling restart"]
    assert results.figures["kill -9 of a node: connections lost"] > 0
    assert results.figures["rolling restart: connections lost"] >= 200
    assert 0 < results.figures["change_p50_ms"] <= results.figures["change_p99_ms"]


def test_users_who_go_offline_are_counted(tmp_path: Path, program: Path) -> None:
    plan, access = Plan(clients=60, nodes=1, lease_s=3, grace_s=5), Access()
    with ExitStack() as stack:
        url, _ = stack.enter_context(engine(tmp_path / "redis", plan))
        flags = ["--engine", url, "--store", f"sqlite:///{tmp_path / 'scale.db'}"]
        node = Node(flags, settings(plan, access), access, tmp_path / "node")
        stack.callback(node.close)
        node.await_ready()
        node.server.request("PUT", "/v1/rooms/scale0", {"open": True})
        commands = generators(tmp_path, plan, access, [node.port], program, each=40)
        first = stack.enter_context(controlled(commands[0], None))
        clients = Clients([first], 40)
        clients.await_first(time.monotonic())
        with controlled(commands[1], None) as second:
            line(second)
        deadline = time.monotonic() + 60
        while not clients.report()["left"] or not clients.report()["offline"]:
            assert time.monotonic() < deadline, clients.report()
            time.sleep(0.1)
        tell(first, "reset")
        assert clients.report()["offline"] == 0
