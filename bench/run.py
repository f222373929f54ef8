"""Measure Greendot on this machine and show the figures beside their targets.

`make bench` (a quarter of an hour, writes bench/RESULTS.md) or `make bench-quick` (some minutes, only prints). Load
generators and floors are C (load.c, flood.c, rawcast.c, hget.c); RESULTS.md says how things are measured.
"""

from __future__ import annotations

import argparse
import os
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import records_report
import redis_report
import report
from measure import FULL, QUICK, Plan, say
from records_measure import RecordsBench
from server import Trouble

HERE = Path(__file__).resolve().parent
BUILD = HERE / "build"
RESULTS = HERE / "RESULTS.md"
PARTS = ("broadcast", "connect", "idle")
REDIS_PARTS = ("memory", "quiet", "cycles", "read", "intake", "delivery", "reap", "restore", "workers")
RECORD_PARTS = ("notified", "said", "told", "returned")
ALL_PARTS = PARTS + REDIS_PARTS + RECORD_PARTS
PROGRAMS = ("load", "rawcast", "hget", "flood")
SPARE_FILES = 500  # descriptors a server needs beside its connections


def main() -> int:
    options = _options()
    plan = QUICK if options.quick else FULL
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ended from outside: end the children as for Ctrl-C
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(plan.limit_s)
    started = time.monotonic()
    try:
        rows, redis_rows, record_rows, pinned = _measure(options, plan)
        signal.alarm(0)
        whole = not (options.quick or options.only or options.server)
        tables = [report.table(rows)] if rows else []
        tables += [f"### With Redis\n{report.table(redis_rows)}"] if redis_rows else []
        tables += [f"### Records\n{report.table(record_rows)}"] if record_rows else []
        figures = "\n\n".join([report.machine(pinned), *tables])
        if options.server:
            figures += f"\n\nNot Greendot: this was `{options.server}`."
        print(f"\n{figures}\n\nTook {time.monotonic() - started:.0f} s.", flush=True)
        if whole:
            report.write(RESULTS, figures)
            print("Written to bench/RESULTS.md.")
    except Trouble as trouble:
        print(f"\nbench: {trouble}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nbench: interrupted; everything it started was ended.", file=sys.stderr)
        return 130
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Greendot on this machine.")
    parser.add_argument("--quick", action="store_true", help="shorter and rougher; does not write RESULTS.md")
    parser.add_argument("--only", action="append", choices=ALL_PARTS, help="one part (may be repeated); does not write")
    parser.add_argument("--server", help="start this command instead of `greendot serve`, with the same flags")
    return parser.parse_args()


def _measure(
    options: argparse.Namespace, plan: Plan
) -> tuple[list[report.Row], list[report.Row], list[report.Row], bool]:
    plan = _within_file_limit(plan)
    server_core, load_core = cores = _cores()
    if load_core is not None:
        os.sched_setaffinity(0, {load_core})  # the driver must not disturb the server either
    _compile()
    command = shlex.split(options.server) if options.server else _greendot_command()
    parts = options.only or ALL_PARTS
    rows: list[report.Row] = []
    redis_rows: list[report.Row] = []
    record_rows: list[report.Row] = []
    with tempfile.TemporaryDirectory(prefix="greendot-bench-") as folder:
        bench = RecordsBench(command, BUILD, Path(folder), cores)
        bench.mint_tokens(plan.most_connections)
        if "broadcast" in parts:
            rows += report.broadcast_rows(bench.broadcast(plan), plan.subscribers)
        if "connect" in parts:
            rows += report.connect_rows(bench.connect(plan))
        if "idle" in parts:
            rows += report.idle_rows(bench.idle(plan))
        for part in REDIS_PARTS:
            if part in parts:
                redis_rows += redis_report.rows(getattr(bench, part)(plan))
        for part in RECORD_PARTS:
            if part in parts:
                record_rows += records_report.rows(getattr(bench, part)(plan))
    return rows, redis_rows, record_rows, server_core is not None


def _within_file_limit(plan: Plan) -> Plan:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # inherited by the server
    room = plan.idle_connections if most == resource.RLIM_INFINITY else most - SPARE_FILES
    if room < plan.subscribers + 1:
        raise Trouble(f"A process may open only {most} files here: too few for {plan.subscribers:,} connections.")
    if room < plan.most_connections:
        say(f"only {room:,} idle connections: a process may open {most:,} files here (ulimit -n)")
        wanted = ("idle_connections", "quiet_connections", "restored_connections")
        return replace(plan, **{name: min(room, getattr(plan, name)) for name in wanted})
    return plan


def _cores() -> tuple[int | None, int | None]:
    """A core for the server and one for the generator."""
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        say("only one core: server and generator share it, so every figure comes out too low")
        return None, None
    return usable[0], usable[1]


def _compile() -> None:
    BUILD.mkdir(exist_ok=True)
    for name in PROGRAMS:
        command = ["cc", "-O2", "-Wall", "-Wextra", "-o", str(BUILD / name), str(HERE / f"{name}.c")]
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError:
            raise Trouble("A C compiler is needed for the load generator, and `cc` was not found.") from None
        if done.returncode:
            raise Trouble(f"bench/{name}.c does not compile:\n{done.stderr}")
    say(f"compiled {', '.join(PROGRAMS)}")


def _greendot_command() -> list[str]:
    program = Path(sys.executable).parent / "greendot"
    if not program.exists():
        raise Trouble("There is no `greendot` beside this Python: run `make bench`, which installs it.")
    return [str(program), "serve"]


def _too_long(*_: object) -> None:
    raise Trouble("The run took longer than it may and was stopped; no figures.")


if __name__ == "__main__":
    sys.exit(main())
