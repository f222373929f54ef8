"""Cost of webhooks for senders: 50 senders, with and without a webhook in alternating rounds, on SQLite and PostgreSQL.

The receiving app accepts every request at once. Besides the rate, the bench reports the CPU time of the server per
message, which a busy machine changes less. It also reports the events delivered per second while the senders ran, and
the seconds until the app had all events.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median

from measure import Plan, Rounds, say
from records_measure import SENDERS, RecordsBench
from report import Row, rate
from serverd import Server, Trouble

SECRET = "the secret of a webhook in a benchmark"
DRAIN_S = 60.0
STORES = ("SQLite", "PostgreSQL")


class App:
    """Minimal HTTP server that receives webhooks and counts their events, in threads of this process."""

    def __init__(self) -> None:
        self.events = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as file:
            while line := file.readline():
                length = 0
                while line.strip():
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                    line = file.readline()
                self.events += file.read(length).count(b'"type":"room.message"')
                connection.sendall(b"HTTP/1.1 204 X\r\n\r\n")


@dataclass
class Cost:
    """Messages per second and CPU time per message, without and with a webhook."""

    off: Rounds = field(default_factory=Rounds)
    on: Rounds = field(default_factory=Rounds)
    told: list[float] = field(default_factory=list)  # events per second while the senders ran
    late_s: list[float] = field(default_factory=list)  # seconds until the app had all events


@dataclass
class Hooked:
    """Costs by store, and by whether all senders share a room."""

    costs: dict[str, Cost] = field(default_factory=dict)


def hooked(bench: RecordsBench, plan: Plan) -> Hooked:
    found = Hooked()
    for number in range(plan.record_rounds):
        for store in STORES:
            for where, flags in (("in one room", ()), ("in rooms of their own", ("--apart",))):
                cost = found.costs.setdefault(f"messages of {SENDERS} senders {where}, {store}", Cost())
                # Alternating order, because a shared machine is noisy.
                for with_hook in (True, False) if number % 2 else (False, True):
                    _round(bench, plan, cost, store, with_hook, flags)
                off, on = cost.off.values[-1], cost.on.values[-1]
                say(f"hooked {number + 1}/{plan.record_rounds}: {store} {where}: {on:,.0f}/s, {off:,.0f}/s without")
    return found


def _round(bench: RecordsBench, plan: Plan, cost: Cost, store: str, with_hook: bool, flags: tuple[str, ...]) -> None:
    app = App()
    try:
        with _store(bench, store) as place, bench.greendot(**place, **(_hook(app) if with_hook else {})) as server:
            got = _sent(bench, server, plan, *flags)
            (cost.on if with_hook else cost.off).add(got["messages_per_s"], got["server_cpu"])
            if with_hook:
                cost.told.append(app.events / (plan.record_s + plan.warmup_s))
                cost.late_s.append(_drained(app))
    finally:
        app.close()


def _hook(app: App) -> dict[str, str]:
    return {
        "GREENDOT_WEBHOOKS_URL": f"http://127.0.0.1:{app.port}/",
        "GREENDOT_WEBHOOKS_SECRET": SECRET,
        "GREENDOT_WEBHOOKS_ALLOW_PRIVATE": "127.0.0.0/8",
        "GREENDOT_WEBHOOKS_EVENTS": "room.message",
    }


@contextmanager
def _store(bench: RecordsBench, name: str) -> Iterator[dict[str, str]]:
    if name == "SQLite":
        yield {}
    else:
        with bench._postgres() as postgres:
            yield {"store": postgres.url}


def _sent(bench: RecordsBench, server: Server, plan: Plan, *flags: str) -> dict[str, float]:
    for number in range(SENDERS):
        server.request("PUT", f"/v1/rooms/bench{number}", {"open": True})
    timing = ("--warmup", plan.warmup_s, "--seconds", plan.record_s)
    return bench.load("send", *bench.on(server), "--connections", SENDERS, *timing, *flags)


def _drained(app: App) -> float:
    """Return the seconds until no more events arrive."""
    began, seen, last = time.monotonic(), -1, time.monotonic()
    while time.monotonic() - last < 1.0:
        if time.monotonic() - began > DRAIN_S:
            raise Trouble(f"The app still received events {DRAIN_S:.0f} s after the senders had ended.")
        if app.events != seen:
            seen, last = app.events, time.monotonic()
        time.sleep(0.05)
    return last - began


def rows(found: Hooked) -> list[Row]:
    made = []
    for what, cost in found.costs.items():
        off_us, on_us = _micros(cost.off), _micros(cost.on)
        more = [a / b - 1 for a, b in zip(on_us, off_us, strict=True)]
        made += [
            rate(f"{what}, without a webhook", cost.off, "/s"),
            rate(f"{what}, with one", cost.on, "/s"),
            Row(f"{what}: CPU of each, without", f"{median(off_us):.0f} µs", f"{min(off_us):.0f}–{max(off_us):.0f}"),
            Row(f"{what}: CPU of each, with", f"{median(on_us):.0f} µs", f"{median(more):+.0%}"),
            Row(f"{what}: told meanwhile", f"{median(cost.told):,.0f}/s", f"the last after {max(cost.late_s):.1f} s"),
        ]
    return made


def _micros(rounds: Rounds) -> list[float]:
    return [used / value * 1e6 for value, used in zip(rounds.values, rounds.server_cpu, strict=True)]
