"""Processes of the soak test: nodes, Redis, the store and the generator; and the faults that disturb them."""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
import redis

from measure import controlled, line, tell
from progress import say
from scale import Node, settings
from scale import Plan as ScalePlan
from serverd import Access, Trouble

DAY_S = 86_400
LEASE_S, GRACE_S, HEARTBEAT_S = 10.0, 20.0, 15.0
BACK = 0.98  # share of clients that must be connected; some change the network at any time


@dataclass(frozen=True)
class Plan:
    """Sizes and times of a run."""

    seconds: float
    clients: int = 5_000
    nodes: int = 3
    store: str = "postgres"
    day_s: float = 600.0
    warm_up_s: float = 900.0
    seed: int = 1
    fault_s: float = 30.0
    sample_s: float = 10.0
    pause_s: float = 5.0  # of Redis and of the store
    acts: float = 20.0  # of a client in a day
    in_room: int = 20

    @property
    def guests(self) -> int:
        return max(1, self.clients // 10)

    @property
    def rooms(self) -> int:
        return -(-self.clients // self.in_room)


class Generator:
    """The process with all clients. Several threads may use it."""

    def __init__(self, program: subprocess.Popen[str]) -> None:
        self._program = program
        self._lock = threading.Lock()

    def send(self, command: str) -> None:
        with self._lock:
            tell(self._program, command)

    def report(self) -> dict[str, int]:
        with self._lock:
            tell(self._program, "report")
            found: dict[str, int] = json.loads(line(self._program))
        return found


@dataclass
class Cluster:
    """Running processes."""

    plan: Plan
    nodes: list[Node]
    redis: Any  # RedisProcess of the tests
    store: PausedStore
    clients: Generator
    log: Path  # of the generator: faults that clients saw
    started: float = field(default_factory=time.monotonic)

    def elapsed_s(self) -> float:
        return time.monotonic() - self.started

    def any_node(self) -> Node:
        """Return the node that is never restarted."""
        return self.nodes[0]


class PausedStore:
    """Store that a fault can pause: PostgreSQL with signals, SQLite with a lock."""

    def __init__(self, url: str, process: Any = None) -> None:
        self.url = url
        self._process = process

    @property
    def file(self) -> str:
        return self.url.removeprefix("sqlite:///")

    @contextmanager
    def paused(self) -> Iterator[None]:
        if self._process is None:
            link = sqlite3.connect(self.file, timeout=30, isolation_level=None)
            try:
                link.execute("BEGIN EXCLUSIVE")
                yield
                link.execute("ROLLBACK")
            finally:
                link.close()
            return
        self._process.freeze(True)
        try:
            yield
        finally:
            self._process.freeze(False)


def environment(plan: Plan, access: Access) -> dict[str, str]:
    """Return the settings of nodes. Records are kept for about a day of the clients, so that their number is steady."""
    day = f"{plan.day_s / DAY_S:.9f}"
    return settings(ScalePlan(lease_s=LEASE_S, grace_s=GRACE_S), access) | {
        "GREENDOT_PRESENCE_HEARTBEAT_S": f"{HEARTBEAT_S:g}",
        "GREENDOT_PRESENCE_DEAD_AFTER_S": f"{HEARTBEAT_S * 2.5:g}",
        "GREENDOT_PRESENCE_CLEAN_GRACE_S": "2",
        "GREENDOT_PRESENCE_SILENT_GRACE_S": f"{GRACE_S:g}",
        "GREENDOT_PRESENCE_IDLE_S": f"{max(5.0, plan.day_s / 20):g}",
        "GREENDOT_PRESENCE_LAST_SEEN_DAYS": day,
        "GREENDOT_INBOX_KEEP_DAYS": day,
        "GREENDOT_AUDIT_KEEP_DAYS": day,
        "GREENDOT_JOBS_LEASE_S": f"{LEASE_S:g}",
        "GREENDOT_JOBS_RETENTION_EVERY_S": f"{max(5.0, plan.day_s / 20):g}",
        "GREENDOT_JOBS_RETENTION_JITTER_S": "1",
        "GREENDOT_JOBS_SWEEP_EVERY_S": f"{max(5.0, plan.day_s / 5):g}",
        "GREENDOT_JOBS_SWEEP_JITTER_S": "1",
    }


def mint(file: Path, plan: Plan, access: Access) -> Path:
    """Write the tokens of all users, then those of the guests of each day."""
    claims = {"iat": int(time.time()), "exp": int(time.time() + plan.seconds) + 7_200, "rooms": ["soak*"]}
    regulars = plan.clients - plan.guests
    users = [f"u{number}" for number in range(regulars)]
    users += [
        f"g{day}x{number}"
        for day in range(int(plan.seconds / plan.day_s) + 3)
        for number in range(regulars, plan.clients)
    ]
    file.write_text("".join(f"{jwt.encode(claims | {'sub': user}, access.auth_secret, 'HS256')}\n" for user in users))
    return file


@contextmanager
def _stored(plan: Plan, folder: Path) -> Iterator[PausedStore]:
    if plan.store == "sqlite":
        yield PausedStore(f"sqlite:///{folder / 'soak.db'}")
        return
    from postgres_server import postgres_server

    # Days are short, so deleted rows must be reused soon.
    with postgres_server(autovacuum="on", autovacuum_naptime="10s", autovacuum_vacuum_scale_factor="0.05") as process:
        yield PausedStore(process.url, process)


@contextmanager
def running(plan: Plan, folder: Path, program: Path) -> Iterator[Cluster]:
    """Start all processes. They end with the context."""
    from redis_servers import RedisProcess

    access = Access()
    with ExitStack() as stack:
        engine = stack.enter_context(RedisProcess("redis", folder / "redis"))
        store = stack.enter_context(_stored(plan, folder))
        flags = ["--engine", f"redis://127.0.0.1:{engine.port}", "--store", store.url]
        nodes: list[Node] = []
        for number in range(plan.nodes):
            nodes.append(Node(flags, environment(plan, access), access, folder / f"node{number + 1}"))
            stack.callback(nodes[-1].close)
            nodes[-1].await_ready()  # the first one creates the tables
        say(f"{plan.nodes} nodes are ready")
        tokens, log = mint(folder / "tokens", plan, access), folder / "clients.log"
        started = time.monotonic()
        command = [program, "--ports", ",".join(str(node.port) for node in nodes), "--tokens", tokens]
        command += ["--connections", plan.clients, "--guests", plan.guests, "--room", plan.in_room, "--log", log]
        command += ["--start", f"{started:.6f}", "--day", plan.day_s, "--seed", plan.seed, "--acts", plan.acts]
        command += ["--heartbeat", HEARTBEAT_S, "--grace", GRACE_S]
        clients = Generator(stack.enter_context(controlled(command, None)))
        yield Cluster(plan, nodes, engine, store, clients, log, started)


class Faults:
    """Faults in random order: all of them, then all of them in another order."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._random = random.Random(cluster.plan.seed)
        self._waiting: list[str] = []
        self._causes: dict[str, Callable[[], None]] = {
            "kill -9 of a node": self._kill,
            "rolling restart": self._roll,
            "FLUSHALL": self._flush,
            "pause of Redis": self._pause_redis,
            "pause of the store": self._pause_store,
            "slow readers": lambda: cluster.clients.send("slow 0.05 10"),
            "crowd of reconnects": lambda: cluster.clients.send("crowd 0.5"),
        }

    @property
    def names(self) -> list[str]:
        return [*self._causes]

    def next(self) -> str:
        """Choose the next fault."""
        if not self._waiting:
            self._waiting = self._random.sample(self.names, len(self.names))
        return self._waiting.pop()

    def cause(self, name: str) -> None:
        """Cause a fault. Call this in the main thread: nodes end with the thread that started them."""
        self._causes[name]()

    def _kill(self) -> None:
        node = self._random.choice(self._cluster.nodes[1:])
        node.kill()
        node.await_ready()

    def _roll(self) -> None:
        for node in self._cluster.nodes[1:]:
            node.restart()

    def _flush(self) -> None:
        with redis.Redis(port=self._cluster.redis.port, socket_timeout=10) as link:
            link.flushall()

    def _pause_redis(self) -> None:
        self._cluster.redis.stop()
        try:
            time.sleep(self._cluster.plan.pause_s)
        finally:
            self._cluster.redis.cont()

    def _pause_store(self) -> None:
        with self._cluster.store.paused():
            time.sleep(self._cluster.plan.pause_s)


def is_back(report: dict[str, int]) -> bool:
    return report["ready"] >= report["awake"] * BACK


def await_back(cluster: Cluster, within_s: float) -> float | None:
    """Wait until almost all clients are connected; return the seconds, or None if they are not back in time."""
    started = time.monotonic()
    while not is_back(cluster.clients.report()):
        if time.monotonic() - started > within_s:
            return None
        time.sleep(0.25)
    return time.monotonic() - started


def check_alive(cluster: Cluster) -> None:
    """Raise Trouble if a node has ended by itself."""
    for number, node in enumerate(cluster.nodes, 1):
        if node.server.process.poll() is not None:
            raise Trouble(f"Node {number} has ended by itself; its last output:\n{node.server.last_words()}")
