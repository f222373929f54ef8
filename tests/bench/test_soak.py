"""Small soak tests: clients live through faults, and a wrong event is counted. `make soak` runs the full one."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from measure import controlled
from scale import Node
from serverd import Access
from soak import compile_soak, plot, soak
from soak_cluster import Faults, Generator, Plan, await_back, check_alive, environment, mint, running
from soak_sampler import wrong

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_soak(tmp_path_factory.mktemp("soak"))


def until(condition: Callable[[], bool], what: str, within_s: float = 90.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def all_back(report: dict[str, int]) -> bool:
    return report["ready"] == report["awake"]


SMALL = Plan(8, clients=80, nodes=2, store="sqlite", day_s=20, warm_up_s=0, fault_s=2, sample_s=0.5, pause_s=1)


def test_clients_return_after_every_fault_and_see_no_wrong_event(tmp_path: Path, program: Path) -> None:
    with running(SMALL, tmp_path, program) as cluster:
        until(lambda: cluster.clients.report()["ready"] > 60, "clients are connected")
        faults = Faults(cluster)
        for name in faults.names:
            faults.cause(name)
            assert await_back(cluster, 90) is not None, name
            # All, not most: no session may still be on a killed node when the next fault flushes Redis.
            until(lambda: all_back(cluster.clients.report()), f"all clients are back after: {name}")
        counts = cluster.clients.report()
        check_alive(cluster)
        assert not wrong({f"clients: {name}": count for name, count in counts.items()}), cluster.log.read_text()
    for name in ("messages", "typing", "delivered", "changes", "checked", "left", "lost", "resumed"):
        assert counts[name] > 0, name


def test_a_short_soak_samples_all_processes(tmp_path: Path, program: Path) -> None:
    run = soak(SMALL, tmp_path, program)
    assert run.problems == []
    assert run.faults
    series = run.samples.series()
    of_nodes = {
        f"node {n}: {name}" for n in (1, 2) for name in ("memory", "descriptors besides clients", "loop lag, ms")
    }
    assert {"redis: keys", "redis: memory", "store: rows", "store: bytes", "clients: ready", *of_nodes} <= {*series}
    assert plot(run).startswith("<svg")


def test_users_who_are_shown_offline_too_early_are_counted(tmp_path: Path, program: Path) -> None:
    plan, access = Plan(60, clients=60, nodes=1, day_s=600), Access()
    settings = environment(plan, access) | {
        "GREENDOT_PRESENCE_GRACE_S": "0.05",
        "GREENDOT_PRESENCE_CLEAN_GRACE_S": "0.05",
        "GREENDOT_PRESENCE_SILENT_GRACE_S": "0.05",
    }
    node = Node(["--store", f"sqlite:///{tmp_path / 'soak.db'}"], settings, access, tmp_path / "node")
    try:
        node.await_ready()
        command = [program, "--ports", node.port, "--tokens", mint(tmp_path / "tokens", plan, access)]
        command += ["--connections", 60, "--guests", 6, "--day", 600, "--acts", 1, "--settle", 1, "--grace", 100]
        # The day began earlier, so that all clients are awake.
        command += ["--start", time.monotonic() - 250, "--log", tmp_path / "log"]
        with controlled(command, None) as process:
            clients = Generator(process)
            until(lambda: clients.report()["ready"] > 55, "clients are connected")
            settled = time.monotonic() + 1.5
            until(lambda: time.monotonic() > settled, "all users have had a session for longer than --settle")
            assert clients.report()["offline"] == 0
            clients.send("crowd 1")
            until(lambda: clients.report()["offline"] > 0, "the offline users are counted")
        assert "offline: client" in (tmp_path / "log").read_text()
    finally:
        node.close()


def test_every_fault_comes_once_before_any_comes_again() -> None:
    class Cluster:
        plan = Plan(60, seed=7)

    faults = Faults(Cluster())  # type: ignore[arg-type]
    for _ in range(3):
        assert sorted(faults.next() for _ in faults.names) == sorted(faults.names)
