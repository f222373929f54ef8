"""Overload tests: all clients reconnect at once, and more signals than a node can send.

    python bench/storms.py [return] [flood] [--quick]      both by default, with a verdict for each promise

`storm/` generates the load and measures the latency of clients. This program starts the server, samples its memory and
metrics, and prints which promises held.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measure import Bench, controlled, line, sources, tell
from progress import say
from records_measure import asked
from serverd import Server, Trouble

HERE = Path(__file__).resolve().parent
MESSAGES = 3  # messages that each returning client has missed
LOOK_S = 0.05  # interval of memory samples
RETURNING, RETURNING_QUICK = (10_000, 500), (2_000, 100)  # connections, rooms
FLOODED, FLOODED_QUICK = (500, 30), (200, 5)  # subscribers, seconds
TOKENS = 10_020
PATIENCE_S = 40.0  # time limit of returning clients
RECOVERY_S = 20.0  # time limit for the recovery of a flooded node


@dataclass
class Storm:
    """Result of one test: figures by name, and whether each promise held."""

    figures: dict[str, Any] = field(default_factory=dict)
    promises: dict[str, bool] = field(default_factory=dict)

    @property
    def held(self) -> bool:
        return all(self.promises.values())


class Memory(threading.Thread):
    """Sampler of the maximum resident memory."""

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._over = threading.Event()
        self.most = server.rss_bytes()

    def run(self) -> None:
        while not self._over.wait(LOOK_S):
            self.most = max(self.most, self._server.rss_bytes())

    def stop(self) -> int:
        self._over.set()
        self.join()
        return self.most


class StormBench(Bench):
    """Both tests, against a server with default limits and the memory engine."""

    def returning(self, connections: int, rooms: int, *flags: object, **settings: str) -> Storm:
        """Disconnect all clients and measure their return. `flags` are further flags of the generator."""
        counts = self.folder / "counts"
        self.command, command = [sys.executable, str(HERE / "counted.py"), "serve"], self.command
        try:
            started = self.greendot(STORE_COUNTS=str(counts), GREENDOT_LIMITS_ENABLED="true", **settings)
        finally:
            self.command = command
        with started as server:
            for room in range(rooms):
                server.request("PUT", f"/v1/rooms/bench{room}", {"open": True})
                for number in range(MESSAGES):
                    body = {"user": "app", "body": "x" * 100, "key": f"k{number}"}
                    if server.request("POST", f"/v1/rooms/bench{room}/messages", body) != 201:
                        raise Trouble("The messages for the returning clients could not be written.")
            more = ("--connections", connections, "--rooms", rooms, "--patience", PATIENCE_S, *flags)
            with self._storm("return", server, *more) as storm:
                line(storm)  # "ready"
                before, reads, waited = server.rss_bytes(), asked(server, counts), server.waited_s()
                say(f"returning: {connections:,} connected, {before / 1e6:,.1f} MB")
                memory = Memory(server)
                memory.start()
                tell(storm)
                got = json.loads(line(storm))
                most, after = memory.stop(), asked(server, counts)
                gauges, waited = metrics(server), server.waited_s() - waited
        reads = {verb: n - reads.get(verb, 0) for verb, n in after.items() if n > reads.get(verb, 0)}
        got |= {"memory_before": before, "memory_most": most, "reads": reads, "waited_s": waited}
        got |= {name: gauges[name] for name in gauges if "lag" in name or "refused" in name}
        return Storm(
            got,
            {
                "99 % back within 30 s": 0 <= got["p99_s"] <= 30,
                "loop lag p99 ≤ 250 ms": got["probe_p99_ms"] <= 250,
                "memory ≤ 1.5 × before": most <= 1.5 * before,
                "watchers saw nothing": got["watchers_told"] == 0 and got["resumed"] == connections,
                "store reads shared": sum(reads.values()) <= connections / 4,
            },
        )

    def flood(self, subscribers: int, seconds: float, *flags: object) -> Storm:
        """Send five times the signals that made the loop late. `flags` are further flags of the generator."""
        with self.greendot() as server:
            server.request("PUT", "/v1/rooms/bench0", {"open": True})
            with self._storm("flood", server, "--connections", subscribers, "--seconds", seconds, *flags) as storm:
                line(storm)  # "ready"
                tell(storm)
                passed = json.loads(line(storm))["passed_at"]
                say(f"flood: a probe took over 100 ms at {passed:,.0f} signals/s to {subscribers:,}; now × 5")
                line(storm)  # "over"
                over = time.monotonic()
                while metrics(server).get("realtime_overload_level") and time.monotonic() < over + RECOVERY_S:
                    time.sleep(0.05)
                calm_s = time.monotonic() - over
                got = json.loads(line(storm))
                gauges = metrics(server)
                log = [text for text in server.log.read_text().splitlines() if "overload" in text]
        got |= {"level_calm_s": round(calm_s, 2), "said": log[-6:]}
        got |= {name: gauges[name] for name in gauges if "shed" in name or "refused" in name or "lag" in name}
        return Storm(
            got,
            {
                "every record arrived, in order": got["accepted"] == got["written"]
                and not got["misordered"]
                and not got["behind"],
                "shed signals are counted": gauges.get("realtime_shed_total", 0) > 0,
                "normal again within 5 s": max(calm_s, got["calm_s"]) <= 5,
            },
        )

    def _storm(self, mode: str, server: Server, *flags: object) -> Any:
        return controlled([self.build / "storm", mode, *self.on(server), *flags], self.load_core)


def compile_storm(folder: Path) -> None:
    subprocess.run(
        ["cc", "-O2", "-Wall", "-Wextra", "-o", str(folder / "storm"), *map(str, sources("storm"))], check=True
    )


def metrics(server: Server) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return {text.partition("{")[0]: float(text.rpartition(" ")[2]) for text in lines if not text.startswith("#")}


def show(name: str, storm: Storm) -> None:
    print(f"\n{name}: {json.dumps(storm.figures)}")
    for promise, held in storm.promises.items():
        print(f"  {'held  ' if held else 'BROKEN'}  {promise}")


def main() -> int:
    words, quick = [word for word in sys.argv[1:] if word != "--quick"], "--quick" in sys.argv
    usable = sorted(os.sched_getaffinity(0))
    cores = (usable[0], usable[1]) if len(usable) > 1 else (None, None)
    build = HERE / "build"
    build.mkdir(exist_ok=True)
    compile_storm(build)
    with tempfile.TemporaryDirectory(prefix="greendot-storms-") as folder:
        bench = StormBench([str(Path(sys.executable).parent / "greendot"), "serve"], build, Path(folder), cores)
        bench.mint_tokens(TOKENS)
        storms = {}
        if "return" in words or not words:
            storms["return"] = bench.returning(*(RETURNING_QUICK if quick else RETURNING))
            show("return", storms["return"])
        if "flood" in words or not words:
            storms["flood"] = bench.flood(*(FLOODED_QUICK if quick else FLOODED))
            show("flood", storms["flood"])
    return 0 if all(storm.held for storm in storms.values()) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Trouble as trouble:
        sys.exit(f"storms: {trouble}")
