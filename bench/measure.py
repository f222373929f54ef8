"""The measurements. Each starts what it needs, prints a line per step and returns plain numbers."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt

from server import Access, Server, Trouble, end, greendot, rawcast, spawn

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
    limit_s: int = 360


FULL = Plan()
# A third of the connections beating three times as often: as many heartbeats per second as in the full run.
QUICK = Plan(
    rounds=2, warmup_s=0.5, seconds=1.5, connect_rounds=1,
    idle_connections=5_000, heartbeat_s=10, idle_s=10, limit_s=75,
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
                _line(load)  # "ready"
                time.sleep(SETTLE_S)
                connected = server.rss_bytes()
                say(f"idle: connected, {connected / 1e6:,.1f} MB; heartbeats for {plan.idle_s:g} s")
                cpu_s, start = server.cpu_s(), time.monotonic()
                _tell(load)
                got = json.loads(_line(load))
                cpu = (server.cpu_s() - cpu_s) / (time.monotonic() - start)
                after = server.rss_bytes()
        say(
            f"idle: {got['heartbeats']:,} heartbeats, {got['acks']:,} answered, {got['lost']} connections lost; "
            f"{after / 1e6:,.1f} MB, {cpu:.1%} of a core"
        )
        if got["lost"] or got["acks"] < got["heartbeats"]:
            raise Trouble("Idle connections were lost or heartbeats not answered: these figures would mean nothing.")
        return Idle(n, got["heartbeats"] / got["seconds"], (after - before) / n, cpu)

    def _greendot(self) -> AbstractContextManager[Server]:
        self._servers += 1
        return greendot(self._command, self._access, self._folder / f"server{self._servers}", self._server_core)

    def _on(self, server: Server) -> tuple[object, ...]:
        return ("--port", server.port, "--pid", server.pid, "--tokens", self._tokens)

    def _load(self, *arguments: object) -> dict[str, Any]:
        with self._controlled(*arguments) as load:
            got: dict[str, Any] = json.loads(_line(load))
        return got

    @contextmanager
    def _controlled(self, *arguments: object) -> Iterator[subprocess.Popen[str]]:
        """The load generator with pipes to it. It leaves by itself once its stdin ends and its clients said bye."""
        pipe = subprocess.PIPE
        load = spawn([self._build / "load", *arguments], self._load_core, stdin=pipe, stdout=pipe, stderr=pipe)
        try:
            yield load
            load.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            raise Trouble("The load generator did not come to an end.") from None
        finally:
            end(load)


def say(line: str) -> None:
    print(f"  {line}", flush=True)


def _line(load: subprocess.Popen[str]) -> str:
    """The next line the generator prints. It gives up by itself when the server stalls, so this needs no clock."""
    assert load.stdout is not None
    assert load.stderr is not None
    line = load.stdout.readline()
    if not line:
        raise Trouble(f"The load generator gave up: {load.stderr.read().strip().removeprefix('load: ')}.")
    return line


def _tell(load: subprocess.Popen[str]) -> None:
    assert load.stdin is not None
    load.stdin.write("go\n")
    load.stdin.flush()


def _busy(got: dict[str, Any]) -> str:
    return f" (server {got['server_cpu']:.0%} of its core, generator {got['generator_cpu']:.0%})"
