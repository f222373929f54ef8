"""What webhooks cost those who send messages: 50 senders, with a hook and without, in turns; SQLite and PostgreSQL.

    python bench/webhooks.py [ROUNDS] [SECONDS]

The app that is told takes everything at once. Beside the rate: what a message costs the server in CPU, all told, which
a busy machine changes less; how many events the app was told meanwhile, and how many seconds after the senders it had
all of them.
"""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import run
from records_measure import SENDERS, RecordsBench
from server import Server

SECRET = "the secret of a webhook in a benchmark"
DRAIN_S = 120.0


class App:
    """Takes webhooks and counts their events, by the least that HTTP asks for, in a thread of this process."""

    def __init__(self) -> None:
        self.events = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._listening.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        file = connection.makefile("rb")
        while line := file.readline():
            length = 0
            while line.strip():
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
                line = file.readline()
            self.events += file.read(length).count(b'"type":"room.message"')
            connection.sendall(b"HTTP/1.1 204 X\r\n\r\n")


def hooked(app: App) -> dict[str, str]:
    return {
        "GREENDOT_WEBHOOKS_URL": f"http://127.0.0.1:{app.port}/",
        "GREENDOT_WEBHOOKS_SECRET": SECRET,
        "GREENDOT_WEBHOOKS_ALLOW_PRIVATE": "127.0.0.0/8",
        "GREENDOT_WEBHOOKS_EVENTS": "room.message",
    }


@contextmanager
def store(bench: RecordsBench, name: str) -> Iterator[dict[str, str]]:
    if name == "SQLite":
        yield {}
    else:
        with bench._postgres() as postgres:
            yield {"store": postgres.url}


def measured(bench: RecordsBench, server: Server, seconds: float, *flags: str) -> tuple[float, float]:
    """Messages per second, and the server's CPU for each, in microseconds."""
    for number in range(SENDERS):
        server.request("PUT", f"/v1/rooms/bench{number}", {"open": True})
    timing = ("--warmup", 1, "--seconds", seconds)
    got = bench.load("send", *bench.on(server), "--connections", SENDERS, *timing, *flags)
    return got["messages_per_s"], got["server_cpu"] / got["messages_per_s"] * 1e6


def compare(bench: RecordsBench, name: str, rounds: int, seconds: float, *flags: str) -> None:
    found: dict[str, list[tuple[float, float]]] = {"without": [], "with": []}
    told: list[float] = []
    for number in range(rounds):
        for kind in ("without", "with") if number % 2 else ("with", "without"):
            app = App()
            with (
                store(bench, name) as place,
                bench.greendot(**place, **(hooked(app) if kind == "with" else {})) as server,
            ):
                found[kind].append(measured(bench, server, seconds, *flags))
                if kind == "with":
                    told.append(app.events / (seconds + 1))
                    began, seen = time.monotonic(), -1
                    while app.events != seen and time.monotonic() - began < DRAIN_S:
                        seen = app.events
                        time.sleep(1.0)
                    late = time.monotonic() - began - 1
                    print(
                        f"  {name} {' '.join(flags)}: {app.events:,} events told, the last {late:.0f} s after",
                        flush=True,
                    )
    (off, off_us), (on, on_us) = (
        [statistics.median(each) for each in zip(*found[kind], strict=True)] for kind in ("without", "with")
    )
    print(
        f"{name} {' '.join(flags)}: {off:,.0f} messages/s and {off_us:.0f} us of CPU each without, {on:,.0f} and "
        f"{on_us:.0f} with a hook ({on / off - 1:+.0%}, {on_us / off_us - 1:+.0%}), "
        f"{statistics.median(told):,.0f} events/s told meanwhile",
        flush=True,
    )


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 4.0
    run.BUILD.mkdir(exist_ok=True)
    run._compile()
    cores = run._cores()
    if cores[1] is not None:
        os.sched_setaffinity(0, {cores[1]})
    with tempfile.TemporaryDirectory(prefix="greendot-bench-") as folder:
        bench = RecordsBench(run._greendot_command(), run.BUILD, Path(folder), cores)
        bench.mint_tokens(SENDERS)
        for name in ("SQLite", "PostgreSQL"):
            for flags in ((), ("--apart",)):
                compare(bench, name, rounds, seconds, *flags)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"webhooks: {error}")
