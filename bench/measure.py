"""The measurements. Each starts what it needs, prints a line per step and returns plain numbers."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt

from server import Access, Cores, Server, Trouble, end, greendot, rawcast, spawn

SETTLE_S = 2  # after the last connection: what connecting left to do must not count as idling


@dataclass(frozen=True)
class Plan:
    """How long and how often. Whole runs are bounded by `limit_s`."""

    rounds: int = 5
    warmup_s: float = 1
    seconds: float = 4
    subscribers: int = 1_000
    in_flight: tuple[int, ...] = (1, 16)
    connect_rounds: int = 3
    idle_connections: int = 15_000
    heartbeat_s: float = 30
    idle_s: float = 60
    # With Redis:
    stored_users: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    quiet_connections: int = 18_000
    cycles: int = 1_000_000
    cycling_users: int = 10_000
    read_rounds: int = 400
    flood_messages: int = 1_000_000
    delivery_s: float = 10
    reaped: tuple[int, int] = (100_000, 1_000_000)  # sessions of the dead node, users in all
    restored_connections: int = 12_000
    worker_rounds: int = 3
    # Records:
    record_rounds: int = 3
    limit_s: int = 1_800

    @property
    def most_connections(self) -> int:
        return max(self.idle_connections, self.quiet_connections, self.restored_connections)


FULL = Plan()
# A third of the connections beating three times as often: as many heartbeats per second as in the full run.
QUICK = Plan(
    rounds=2, warmup_s=0.5, seconds=1.5, connect_rounds=1,
    idle_connections=5_000, heartbeat_s=10, idle_s=10,
    stored_users=(10_000, 100_000), quiet_connections=5_000, cycles=50_000, cycling_users=2_000, read_rounds=100,
    flood_messages=300_000, delivery_s=4, reaped=(10_000, 100_000), restored_connections=4_000, worker_rounds=1,
    record_rounds=1,
    limit_s=300,
)  # fmt: skip


@dataclass
class Rounds:
    """One figure over several rounds, and the share of its core the server used meanwhile."""

    values: list[float] = field(default_factory=list)
    server_cpu: list[float] = field(default_factory=list)

    def add(self, value: float, server_cpu: float) -> None:
        self.values.append(value)
        self.server_cpu.append(server_cpu)


@dataclass(frozen=True)
class Idle:
    connections: int
    heartbeats_per_s: float
    bytes_per_connection: float
    cpu: float  # share of a core


class Bench:
    """What all measurements of a run share: programs, cores, tokens, a folder to work in."""

    def __init__(self, command: list[str], build: Path, folder: Path, cores: tuple[int | None, int | None]) -> None:
        self._command = command
        self._build = build
        self._folder = folder
        self._server_core, self._load_core = cores
        self._access = Access()
        self._tokens = folder / "tokens"
        self._servers = 0

    def mint_tokens(self, users: int) -> None:
        claims = {"exp": int(time.time()) + 3600}
        secret = self._access.auth_secret
        lines = (jwt.encode(claims | {"sub": f"u{n}"}, secret, algorithm="HS256") for n in range(users))
        self._tokens.write_text("\n".join(lines) + "\n")

    def broadcast(self, plan: Plan) -> dict[tuple[str, int], Rounds]:
        """Deliveries per second by (`greendot` or `raw`, messages in flight), alternating: machines are noisy."""
        results = {(who, k): Rounds() for k in plan.in_flight for who in ("greendot", "raw")}
        with self._greendot() as server:
            probe = self._load("broadcast", *self._on(server), "--connections", 10, "--warmup", 0, "--seconds", 0.5)
            frame_bytes = probe["frame_bytes"]
            say(f"broadcast: a signal with a body of 128 bytes is a frame of {frame_bytes} bytes")
            with rawcast(self._build / "rawcast", frame_bytes, self._server_core) as (raw_port, raw_pid):
                raw = ("--port", raw_port, "--pid", raw_pid, "--raw", "--frame-bytes", frame_bytes)
                for number in range(plan.rounds):
                    order = list(results) if number % 2 == 0 else list(reversed(results))
                    for who, k in order:
                        target = raw if who == "raw" else self._on(server)
                        got = self._load(
                            "broadcast", *target, "--connections", plan.subscribers, "--in-flight", k,
                            "--warmup", plan.warmup_s, "--seconds", plan.seconds,
                        )  # fmt: skip
                        results[who, k].add(got["deliveries_per_s"], got["server_cpu"])
                        say(
                            f"broadcast {number + 1}/{plan.rounds}: {who}, {k} in flight: "
                            f"{got['deliveries_per_s']:,.0f} deliveries/s{_busy(got)}"
                        )
        return results

    def connect(self, plan: Plan) -> Rounds:
        """Connect, hello, welcome, bye per second."""
        rounds = Rounds()
        with self._greendot() as server:
            for number in range(plan.connect_rounds):
                got = self._load(
                    "connect", *self._on(server), "--warmup", plan.warmup_s, "--seconds", max(3, plan.seconds)
                )
                rounds.add(got["connects_per_s"], got["server_cpu"])
                say(f"connect {number + 1}/{plan.connect_rounds}: {got['connects_per_s']:,.0f}/s{_busy(got)}")
        return rounds

    def idle(self, plan: Plan) -> Idle:
        """What connections cost that only send heartbeats."""
        n = plan.idle_connections
        with self._greendot() as server:
            before = server.rss_bytes()
            say(f"idle: connecting {n:,} (the server has {before / 1e6:,.1f} MB resident)")
            options = ("--connections", n, "--heartbeat", plan.heartbeat_s, "--seconds", plan.idle_s, "--control")
            with self._controlled("idle", *self._on(server), *options) as load:
                line(load)  # "ready"
                time.sleep(SETTLE_S)
                connected = server.rss_bytes()
                say(f"idle: connected, {connected / 1e6:,.1f} MB; heartbeats for {plan.idle_s:g} s")
                cpu_s, start = server.cpu_s(), time.monotonic()
                tell(load)
                got = json.loads(line(load))
                cpu = (server.cpu_s() - cpu_s) / (time.monotonic() - start)
                after = server.rss_bytes()
        say(
            f"idle: {got['heartbeats']:,} heartbeats, {got['acks']:,} answered, {got['lost']} connections lost; "
            f"{after / 1e6:,.1f} MB, {cpu:.1%} of a core"
        )
        if got["lost"] or got["acks"] < got["heartbeats"]:
            raise Trouble("Idle connections were lost or heartbeats not answered: these figures would mean nothing.")
        return Idle(n, got["heartbeats"] / got["seconds"], (after - before) / n, cpu)

    def _greendot(self, **how: Any) -> AbstractContextManager[Server]:
        core = how.pop("core", self._server_core)
        return greendot(self._command, self._access, self._new_folder(), core, **how)

    def _new_folder(self) -> Path:
        self._servers += 1
        return self._folder / f"server{self._servers}"

    def _on(self, server: Server) -> tuple[object, ...]:
        return ("--port", server.port, "--pid", server.pid, "--tokens", self._tokens)

    def _load(self, *arguments: object) -> dict[str, Any]:
        with self._controlled(*arguments) as load:
            got: dict[str, Any] = json.loads(line(load))
        return got

    def _controlled(self, *arguments: object) -> AbstractContextManager[subprocess.Popen[str]]:
        """The load generator with pipes to it."""
        return controlled([self._build / "load", *arguments], self._load_core)


@contextmanager
def controlled(command: Sequence[object], core: Cores) -> Iterator[subprocess.Popen[str]]:
    """A program with pipes to it. It leaves by itself once its stdin ends and it has tidied up."""
    pipe = subprocess.PIPE
    program = spawn(command, core, stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        yield program
        program.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        raise Trouble(f"{Path(str(command[0])).name} did not come to an end.") from None
    finally:
        end(program)


def say(line: str) -> None:
    print(f"  {line}", flush=True)


def line(program: subprocess.Popen[str]) -> str:
    """The next line it prints. The programs give up by themselves when something stalls, so this needs no clock."""
    assert program.stdout is not None
    assert program.stderr is not None
    said = program.stdout.readline()
    if not said:
        last = program.stderr.read().strip()
        raise Trouble(f"{Path(str(program.args[0])).name} gave up: {last[-2000:]}")  # type: ignore[index]
    return said


def tell(program: subprocess.Popen[str], what: str = "go") -> None:
    assert program.stdin is not None
    program.stdin.write(f"{what}\n")
    program.stdin.flush()


def _busy(got: dict[str, Any]) -> str:
    return f" (server {got['server_cpu']:.0%} of its core, generator {got['generator_cpu']:.0%})"
