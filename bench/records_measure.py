"""Measurements of records: write rate, delivery latency, and cost of recovery after a reconnect."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measure import Plan, Rounds, controlled, line, say, tell
from postgresd import Postgres, running_postgres
from redis_measure import RedisBench
from serverd import Cores, Server, Trouble

HERE = Path(__file__).resolve().parent
POOL = 8  # default of Greendot's connections to PostgreSQL; pgbench uses the same number
SENDERS = 50
INBOXES = 10_000
RETURNING, BEHIND = 1_000, 50
TELLING_RATE, LISTENERS = 200, 50


@dataclass
class Written:
    """Records written per second, with the commits of pgbench in the same round."""

    rates: Rounds = field(default_factory=Rounds)
    p50_ms: list[float] = field(default_factory=list)  # until the acknowledgement
    p99_ms: list[float] = field(default_factory=list)
    single: list[float] = field(default_factory=list)  # commits per second of pgbench; empty with SQLite


@dataclass
class Notified(Written):
    """Notifications created over HTTP."""


@dataclass
class Said:
    """Messages sent over WebSockets, by store: all senders in one room, or each in its own room."""

    together: dict[str, Written] = field(default_factory=dict)
    apart: dict[str, Written] = field(default_factory=dict)


@dataclass(frozen=True)
class Told:
    """Latency from `room.send` to the sockets of other members."""

    rate: float
    listeners: int
    p50_ms: list[float]
    p99_ms: list[float]


@dataclass
class Returned:
    """Clients that reconnect at the same time."""

    clients: int
    behind: int
    seconds: list[float] = field(default_factory=list)
    reads: list[dict[str, int]] = field(default_factory=list)  # calls of the store by verb


class RecordsBench(RedisBench):
    """Bench of records. PostgreSQL runs on both cores, and its commits reach the disk."""

    def notified(self, plan: Plan) -> Notified:
        """Measure notifications created over HTTP in lists of 100, in PostgreSQL."""
        found = Notified()
        with self._postgres() as postgres, self.greendot(store=postgres.url) as server:
            for number in range(plan.record_rounds):
                cpu, start = server.cpu_s(), time.monotonic()
                command = [sys.executable, HERE / "notify.py", server.port, server.access.api_key, INBOXES]
                with controlled([*command, plan.record_s, plan.warmup_s], self.load_core) as backend:
                    got = json.loads(line(backend))
                busy = (server.cpu_s() - cpu) / (time.monotonic() - start)
                self._add(found, {"messages_per_s": got["per_s"], "server_cpu": busy} | got, postgres, plan)
                say(
                    f"notified {number + 1}/{plan.record_rounds}: {got['per_s']:,.0f}/s, a list of 100 in "
                    f"{got['p50_ms']:.0f} ms (server {busy:.0%}); pgbench {found.single[-1]:,.0f} commits/s"
                )
        return found

    def said(self, plan: Plan) -> Said:
        """Measure messages of 50 WebSocket senders, each acknowledged after its commit."""
        found = Said()
        with self._postgres() as postgres, self.greendot(store=postgres.url) as server:
            self._say_all(found, "PostgreSQL", server, postgres, plan)
        with self.greendot() as server:
            self._say_all(found, "SQLite", server, None, plan)
        return found

    def _say_all(self, found: Said, store: str, server: Server, postgres: Postgres | None, plan: Plan) -> None:
        for number in range(SENDERS):
            server.request("PUT", f"/v1/rooms/bench{number}", {"open": True})
        for written, flags in ((found.together, ()), (found.apart, ("--apart",))):
            rounds = written.setdefault(store, Written())
            for number in range(plan.record_rounds):
                timing = ("--warmup", plan.warmup_s, "--seconds", plan.record_s)
                got = self.load("send", *self.on(server), "--connections", SENDERS, *timing, *flags)
                self._add(rounds, got, postgres, plan)
                rooms = "rooms of their own" if flags else "one room"
                beside = f"; pgbench {rounds.single[-1]:,.0f} commits/s" if postgres else ""
                say(
                    f"said {number + 1}/{plan.record_rounds}: {store}, {SENDERS} senders in {rooms}: "
                    f"{got['messages_per_s']:,.0f}/s, p50 {got['p50_ms']:.1f} ms, p99 {got['p99_ms']:.1f} ms, "
                    f"{got['deliveries_per_s']:,.0f} deliveries/s (server {got['server_cpu']:.0%}){beside}"
                )

    def _add(self, written: Written, got: dict[str, Any], postgres: Postgres | None, plan: Plan) -> None:
        written.rates.add(got["messages_per_s"], got["server_cpu"])
        written.p50_ms.append(got["p50_ms"])
        written.p99_ms.append(got.get("p99_ms", got["p50_ms"]))
        if postgres is not None:
            written.single.append(postgres.single_rows(POOL, plan.record_s, self.load_core))

    def told(self, plan: Plan) -> Told:
        """Measure the age of a message on the sockets of other members, on one node with SQLite."""
        p50, p99 = [], []
        with self.greendot() as server:
            for number in range(plan.record_rounds):
                got = self.load(
                    "told", *self.on(server), "--connections", LISTENERS, "--rate", TELLING_RATE,
                    "--warmup", plan.warmup_s, "--seconds", plan.delivery_s,
                )  # fmt: skip
                p50.append(got["p50_ms"])
                p99.append(got["p99_ms"])
                say(
                    f"told {number + 1}/{plan.record_rounds}: {TELLING_RATE}/s to {LISTENERS}: p50 {got['p50_ms']:.2f} "
                    f"ms, p99 {got['p99_ms']:.2f}, most {got['max_ms']:.1f} (server {got['server_cpu']:.0%})"
                )
        return Told(TELLING_RATE, LISTENERS, p50, p99)

    def returned(self, plan: Plan) -> Returned:
        """Measure 1,000 clients that reconnect at the same time, each 50 messages behind in one room."""
        found = Returned(RETURNING, BEHIND)
        for number in range(plan.record_rounds):
            counts = self.folder / f"counts{number}"
            command, self.command = self.command, [sys.executable, str(HERE / "counted.py"), "serve"]
            try:
                started = self.greendot(STORE_COUNTS=str(counts))
            finally:
                self.command = command
            with started as server:
                for message in range(BEHIND):
                    body = {"user": "app", "body": "x" * 100, "key": f"k{message}"}
                    if server.request("POST", "/v1/rooms/bench/messages", body) != 201:
                        raise Trouble("The messages for the returning clients could not be written.")
                flags = ("--connections", RETURNING, "--behind", BEHIND, "--control")
                with self.controlled("return", *self.on(server), *flags) as load:
                    line(load)  # "ready"
                    before = asked(server, counts)
                    tell(load)
                    got = json.loads(line(load))
                    after = asked(server, counts)
            reads = {verb: after[verb] - before.get(verb, 0) for verb in after}
            found.seconds.append(got["seconds"])
            found.reads.append({verb: times for verb, times in reads.items() if times})
            say(
                f"returned {number + 1}/{plan.record_rounds}: {RETURNING:,} clients had {got['messages']:,} messages "
                f"after {got['seconds']:.2f} s, {sum(found.reads[-1].values())} calls of the store: {found.reads[-1]}"
            )
        return found

    def _postgres(self) -> AbstractContextManager[Postgres]:
        both: Cores = None if self.server_core is None else {self.server_core, self.load_core or 0}
        return running_postgres(self.new_folder(), both)


def asked(server: Server, counts: Path) -> dict[str, int]:
    """Return the number of store calls so far, by verb."""
    counts.unlink(missing_ok=True)
    os.kill(server.pid, signal.SIGUSR1)
    deadline = time.monotonic() + 5
    while not counts.exists():
        if time.monotonic() > deadline:
            raise Trouble("The server did not write the counts of its store calls within 5 s.")
        time.sleep(0.01)
    found: dict[str, int] = json.loads(counts.read_text())
    return found
