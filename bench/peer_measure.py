"""Measurements of Greendot and its peers, in alternating rounds."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from measure import SETTLE_S, Bench, Plan, line, say, tell
from peer_install import Home
from peer_servers import Peer, running
from redisd import running_redis
from serverd import Server, Trouble, rawcast

KEEP_ALIVE_S = 30  # interval of keep-alives, by the server or the client
LEAST_ROUNDS = 2
WITH_REDIS = "greendot-redis"  # name of Greendot with the Redis engine, which only the part `connect` measures
Values = dict[int, float]  # by round, without failed rounds


@dataclass(frozen=True)
class Idle:
    connections: int
    bytes_each: float
    cpu: float | None  # share of a core for all connections; None: shorter than one keep-alive period

    def cpu_per_10_000(self, unit: float = 1) -> float | None:
        return None if self.cpu is None else self.cpu / self.connections * 10_000 * unit


@dataclass(frozen=True)
class Most:
    """Maximum number of connections, and the reason for the limit."""

    held: int
    why: str

    @property
    def all_asked(self) -> bool:
        return self.why == "as many as were asked for"


@dataclass
class Figures:
    """Results of one contender."""

    name: str
    label: str
    frame_bytes: int = 0  # size of one delivery on the wire
    rates: dict[int, Values] = field(default_factory=dict)  # by messages in flight: deliveries per second
    busy: dict[int, Values] = field(default_factory=dict)  # share of its core that the server used
    latency: dict[int, dict[str, float]] = field(default_factory=dict)  # by round
    connects: Values = field(default_factory=dict)  # per second
    connect_busy: Values = field(default_factory=dict)
    idle: Idle | None = None
    most: Most | None = None
    troubles: list[str] = field(default_factory=list)
    left_out: set[int] = field(default_factory=set)  # numbers of messages in flight for which the server is too slow

    def too_slow_for(self, in_flight: int) -> bool:
        return bool(self.left_out) and in_flight >= min(self.left_out)

    def fail(self, what: str, trouble: object) -> None:
        self.troubles.append(f"{what}: {trouble}")
        say(f"{self.label}, {what}: {trouble}")


class Held(NamedTuple):
    """Server with idle connections, their generator, and its memory before them."""

    server: Server
    load: subprocess.Popen[str]
    connections: int
    before: int


@dataclass(frozen=True)
class Contender:
    name: str
    label: str
    dialect: str
    start: Callable[[], AbstractContextManager[Server]]


class PeersBench:
    """Measurements of all installed contenders. Greendot is the first."""

    def __init__(self, bench: Bench, peers: Sequence[Peer], home: Home) -> None:
        self._bench = bench
        self._contenders = [Contender("greendot", "Greendot", "greendot", bench.greendot)]
        self._contenders += [self._contender(peer, home) for peer in peers]
        self.figures = {one.name: Figures(one.name, one.label) for one in self._contenders}
        self._held: dict[str, Held] = {}
        self._frame_bytes = 0

    def _contender(self, peer: Peer, home: Home) -> Contender:
        bench = self._bench

        def start() -> AbstractContextManager[Server]:
            return running(peer, home, bench.new_folder(), bench.access, bench.server_core)

        return Contender(peer.name, peer.label, peer.dialect, start)

    # --- deliveries per second, and their latency ---

    def broadcast(self, plan: Plan) -> None:
        with ExitStack() as stack:
            servers = self._all_started(stack)
            raw = self._raw(plan, servers["greendot"])
            self.figures["raw"] = Figures("raw", "raw C")
            servers["raw"] = stack.enter_context(raw.start())
            contenders = [*self._contenders, raw]
            start = time.monotonic()
            for number in range(plan.rounds):
                each_s = (time.monotonic() - start) / max(1, number)
                if number >= LEAST_ROUNDS and time.monotonic() - start + each_s > plan.rounds_s:
                    say(f"broadcast: {number} rounds, because a round takes {each_s:.0f} s")
                    break
                for one in contenders if number % 2 == 0 else reversed(contenders):
                    if one.name in servers:
                        self._broadcast_round(one, servers[one.name], plan, number)

    def _raw(self, plan: Plan, greendot: Server) -> Contender:
        """Return the raw broadcaster, with frames of the size that Greendot delivers."""
        probe = self._bench.load(
            "broadcast", *self._bench.on(greendot), "--connections", plan.subscribers, "--seconds", 0.3
        )
        self._frame_bytes = probe["frame_bytes"]
        bench = self._bench
        start = lambda: rawcast(bench.build / "rawcast", self._frame_bytes, bench.folder, bench.server_core)  # noqa: E731
        return Contender("raw", "raw C", "raw", start)

    def _broadcast_round(self, one: Contender, server: Server, plan: Plan, number: int) -> None:
        found, what = self.figures[one.name], f"broadcast {number + 1}/{plan.rounds}"
        flags: list[object] = ["--in-flight", ",".join(map(str, plan.in_flight)), "--connections", plan.subscribers]
        flags += ["--warmup", plan.warmup_s, "--seconds", plan.seconds, "--latency", plan.latency_s]
        flags += ["--patience", plan.patience_s, *(["--frame-bytes", self._frame_bytes] if one.name == "raw" else [])]
        lines, trouble = self._bench.load_lines("broadcast", *self._on(one, server), *flags)
        for got in lines:
            if got["mode"] == "broadcast":
                found.frame_bytes = got["frame_bytes"]
                found.rates.setdefault(got["in_flight"], {})[number] = got["deliveries_per_s"]
                found.busy.setdefault(got["in_flight"], {})[number] = got["server_cpu"]
            elif got["mode"] == "latency":
                found.latency[number] = got
            else:
                found.left_out.add(got["in_flight"])
        if trouble:
            found.fail(what, trouble)
        say(f"{what}: {one.label}: {_summary(lines)}")

    # --- connects per second ---

    def connect(self, plan: Plan) -> None:
        with ExitStack() as stack:
            servers = self._all_started(stack)
            contenders = [*self._contenders]
            try:
                servers[WITH_REDIS] = stack.enter_context(self._with_redis())
                contenders.append(Contender(WITH_REDIS, "Greendot with Redis", "greendot", self._with_redis))
                self.figures[WITH_REDIS] = Figures(WITH_REDIS, "Greendot with Redis")
            except Trouble as trouble:
                self.figures["greendot"].fail("start with Redis", trouble)
            for number in range(plan.connect_rounds):
                for one in contenders if number % 2 == 0 else reversed(contenders):
                    if one.name in servers:
                        self._connect_round(one, servers[one.name], plan, number)

    def _connect_round(self, one: Contender, server: Server, plan: Plan, number: int) -> None:
        found, what = self.figures[one.name], f"connect {number + 1}/{plan.connect_rounds}"
        flags = ("--warmup", plan.warmup_s, "--seconds", plan.connect_s)
        lines, trouble = self._bench.load_lines("connect", *self._on(one, server), *flags)
        for got in lines:
            found.connects[number] = got["connects_per_s"]
            found.connect_busy[number] = got["server_cpu"]
            say(f"{what}: {one.label}: {got['connects_per_s']:,.0f}/s (server {got['server_cpu']:.0%})")
        if trouble:
            found.fail(what, trouble)

    @contextmanager
    def _with_redis(self) -> Iterator[Server]:
        """Start Greendot with the Redis engine. Redis shares the core of the generator."""
        bench = self._bench
        with running_redis(bench.new_folder(), bench.load_core) as redis, bench.greendot(engine=redis.url) as server:
            yield server

    # --- idle connections ---

    def idle(self, plan: Plan) -> None:
        """Connect to all servers one after the other, then measure them idle at the same time.

        Idle servers cost so little that they do not disturb each other, and each needs one keep-alive period.
        """
        with ExitStack() as stack:
            held = [one for one in self._contenders if self._idle_opened(one, plan, stack)]
            say(f"idle: all connected, {plan.idle_s:g} s of keep-alives")
            cpu = {one.name: self._held[one.name].server.cpu_s() for one in held}
            for one in held:
                tell(self._held[one.name].load)
            for one in held:
                self._idle_window(one, plan, cpu[one.name])
            for one in held if plan.most_connections > plan.idle_connections else ():
                self._idle_most(one)

    def _idle_opened(self, one: Contender, plan: Plan, stack: ExitStack) -> bool:
        try:
            server = stack.enter_context(one.start())
            before, start = server.rss_bytes(), time.monotonic()
            flags = ("--connections", plan.idle_connections, "--most", plan.most_connections, "--control")
            timing = ("--heartbeat", plan.heartbeat_s, "--seconds", plan.idle_s, "--within", plan.fill_s)
            load = stack.enter_context(self._bench.controlled("idle", *self._on(one, server), *flags, *timing))
            n = int(line(load).split()[1])  # "ready N"
        except Trouble as trouble:
            self.figures[one.name].fail("idle", trouble)
            return False
        took = time.monotonic() - start
        time.sleep(SETTLE_S / 4)
        say(f"idle: {one.label}: {n:,} in {took:.1f} s, {server.rss_bytes() / 1e6:,.0f} MB")
        if n < plan.idle_connections:
            self.figures[one.name].fail(
                "idle", f"the server accepted only {n:,} connections in {took:.0f} s; its figures are for these"
            )
        self._held[one.name] = Held(server, load, n, before)
        return True

    def _idle_window(self, one: Contender, plan: Plan, cpu_before: float) -> None:
        server, load, n, before = self._held[one.name]
        found = self.figures[one.name]
        try:
            got: dict[str, Any] = json.loads(line(load))
        except Trouble as trouble:
            found.fail("idle", trouble)
            return
        cpu = (server.cpu_s() - cpu_before) / got["seconds"]
        found.idle = Idle(n, (server.rss_bytes() - before) / n, cpu if plan.idle_s >= KEEP_ALIVE_S else None)
        say(f"idle: {one.label}: {found.idle.bytes_each / 1000:.1f} KB each, {cpu:.1%} of a core")
        if got["lost"]:
            found.fail("idle", f"{got['lost']:,} of {n:,} connections were lost")
        if one.name == "greendot" and got["acks"] < got["heartbeats"]:
            found.fail("idle", f"{got['acks']:,} of {got['heartbeats']:,} heartbeats were answered")

    def _idle_most(self, one: Contender) -> None:
        load = self._held[one.name].load
        try:
            tell(load, "more")
            got = json.loads(line(load))
        except (Trouble, OSError) as trouble:
            self.figures[one.name].fail("most connections", trouble)
            return
        self.figures[one.name].most = Most(got["held"], got["why"])
        say(f"most: {one.label}: {got['held']:,} ({got['why']})")

    # ---

    def _all_started(self, stack: ExitStack) -> dict[str, Server]:
        servers = {}
        for one in self._contenders:
            try:
                servers[one.name] = stack.enter_context(one.start())
            except Trouble as trouble:
                if one.name == "greendot":
                    raise
                self.figures[one.name].fail("start", trouble)
        return servers

    def _on(self, one: Contender, server: Server) -> tuple[object, ...]:
        return (*self._bench.on(server), "--dialect", one.dialect)


def _summary(lines: list[dict[str, Any]]) -> str:
    words = [f"{got['deliveries_per_s']:,.0f}" for got in lines if got["mode"] == "broadcast"]
    words += [f"p99 {got['p99_ms']:.1f} ms at {got['rate']:.0f}/s" for got in lines if got["mode"] == "latency"]
    return ", ".join(words) or "nothing"
