"""What counting costs: deliveries for each second of the server's CPU time, with everything counted and with that taken
out (`unmetered.py`), in turns within one run.

    python bench/metered.py            two minutes
    python bench/metered.py --rounds 4

Ten listeners, so that what is counted for a message is not lost among what its deliveries cost; through Redis, so that
what is measured on the bus and of commands is in it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from measure import Bench, Rounds
from redisd import running_redis
from report import Row, table, verdict
from run import BUILD, _compile, _cores, _greendot_command
from serverd import Trouble

KEPT = 0.98  # of the deliveries for a second of CPU time, at least
LISTENERS, IN_FLIGHT = 10, 16
SECONDS, WARMUP_S = 1.0, 0.2


def metered(bench: Bench, rounds: int) -> tuple[Rounds, Rounds]:
    """With the counting, and without it."""
    on, off = Rounds(), Rounds()
    command = [sys.executable, str(Path(__file__).with_name("unmetered.py")), "serve"]
    unmetered = Bench(command, bench.build, *_place(bench))
    unmetered.access, unmetered._tokens = bench.access, bench._tokens
    with ExitStack() as stack:
        servers = []
        for of, kept in ((bench, on), (unmetered, off)):
            redis = stack.enter_context(running_redis(bench.new_folder(), bench.load_core))
            servers.append((kept, stack.enter_context(of.greendot(engine=redis.url))))
        for number in range(-1, rounds):  # the first is to warm up
            for kept, server in servers if number % 2 else reversed(servers):
                got = bench.load(
                    "broadcast", *bench.on(server), "--connections", LISTENERS, "--in-flight", IN_FLIGHT,
                    "--warmup", WARMUP_S, "--seconds", SECONDS,
                )  # fmt: skip
                if number >= 0:
                    kept.add(got["deliveries_per_s"], got["server_cpu"])
    return on, off


def _place(bench: Bench) -> tuple[Path, tuple[int | None, int | None]]:
    folder = bench.folder / "unmetered"
    folder.mkdir()
    return folder, (bench.server_core, bench.load_core)


def row(on: Rounds, off: Rounds) -> Row:
    kept, whole = ([rate / cpu for rate, cpu in zip(of.values, of.server_cpu, strict=True)] for of in (on, off))
    ratios = sorted(a / b for a, b in zip(kept, whole, strict=True))
    middle = median(ratios)
    return Row(
        f"broadcast to {LISTENERS} by Redis, counted ÷ not counted, by the server's CPU time",
        f"{middle:.3f}",
        f"{ratios[0]:.3f}–{ratios[-1]:.3f}",
        f"{median(on.server_cpu):.0%}",
        f"≥ {KEPT}",
        verdict(middle >= KEPT),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="What counting costs of the hot path.")
    parser.add_argument("--rounds", type=int, default=40, help="turns of both servers")
    rounds = parser.parse_args().rounds
    BUILD.mkdir(exist_ok=True)
    cores = _cores()
    if cores[1] is not None:
        os.sched_setaffinity(0, {cores[1]})
    try:
        _compile()
        with tempfile.TemporaryDirectory(prefix="greendot-metered-") as folder:
            bench = Bench(_greendot_command(), BUILD, Path(folder), cores)
            bench.mint_tokens(LISTENERS + 1)
            print(table([row(*metered(bench, rounds))]))
    except Trouble as trouble:
        print(f"bench: {trouble}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
