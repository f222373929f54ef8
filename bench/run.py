"""Benchmark of Greendot and its peers on this machine, with targets.

Run `make bench` (at most 15 minutes, writes bench/RESULTS.md and bench/plots) or `make bench-quick` (2 minutes, only
prints). The load generator and the raw baselines are in C (load/ and wire/, flood.c, rawcast.c, hget.c). RESULTS.md
describes the method.
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
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import guarded
import hooked
import peer_report
import plots
import progress
import records_report
import redis_report
import report
import security
from measure import FULL, QUICK, Plan, say, sources
from peer_install import Home, install
from peer_measure import PeersBench
from peer_servers import PEERS, Peer, versions
from records_measure import RecordsBench
from redis_measure import Nodes
from serverd import Trouble

HERE = Path(__file__).resolve().parent
BUILD = HERE / "build"
RESULTS = HERE / "RESULTS.md"
PLOTS = HERE / "plots"
# Parts in order, with their seconds in a full and in a quick run on two cores.
PEER_PARTS = {"broadcast": (270, 30), "connect": (55, 10), "idle": (160, 20)}
REDIS_PARTS = {
    "nodes": (40, 7), "memory": (20, 5), "quiet": (35, 9), "cycles": (20, 8), "read": (6, 2), "dispatcher": (11, 2),
    "delivery": (6, 3), "reap": (7, 3), "restore": (30, 16), "workers": (20, 6),
}  # fmt: skip
RECORD_PARTS = {"notified": (13, 5), "said": (35, 12), "told": (11, 3), "returned": (6, 3)}
SECURITY_PARTS = {"verified": (13, 3), "guarded": (50, 20), "hooked": (90, 30)}
PARTS = PEER_PARTS | REDIS_PARTS | RECORD_PARTS | SECURITY_PARTS
SKIPPED_WHEN_QUICK = {
    "memory",
    "quiet",
    "cycles",
    "read",
    "reap",
    "restore",
    "workers",
    "notified",
    "told",
    "guarded",
    "hooked",
}  # run only if requested
GROUPS = {
    "peers": tuple(PEER_PARTS),
    "redis": tuple(REDIS_PARTS),
    "records": tuple(RECORD_PARTS),
    "security": tuple(SECURITY_PARTS),
}
PROGRAMS = {"load": sources("load")} | {n: [HERE / f"{n}.c"] for n in ("rawcast", "hget", "flood")}
SPARE_FILES = 600  # descriptors that a server does not give to clients; Greendot reserves 512


@dataclass
class Found:
    """Results of a run."""

    peers: PeersBench | None = None
    redis_rows: list[report.Row] = field(default_factory=list)
    record_rows: list[report.Row] = field(default_factory=list)
    security_rows: list[report.Row] = field(default_factory=list)
    nodes: Nodes | None = None
    missing: dict[str, str] = field(default_factory=dict)  # label of a peer → reason why it could not be installed
    failed: dict[str, str] = field(default_factory=dict)  # part → reason
    versions: dict[str, str] = field(default_factory=dict)


def main() -> int:
    options = _options()
    plan = QUICK if options.quick else FULL
    parts = _chosen(options.only, options.quick)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM ends the child processes, like Ctrl-C
    expected = {"install": 1.0} | {part: float(PARTS[part][options.quick]) for part in parts}
    BUILD.mkdir(exist_ok=True)
    shown = progress.shown = progress.Progress(expected, terminal=sys.stdout.isatty(), log=BUILD / "log")
    try:
        found, pinned = _measure(options, plan, parts, shown)
        shown.end()
        _tell(found, pinned, options, shown.elapsed_s())
        return 1 if found.failed else 0
    except Trouble as trouble:
        shown.end()
        print(f"\nbench: {trouble}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        shown.end()
        print("\nbench: interrupted; all started processes were ended.", file=sys.stderr)
        return 130


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Greendot and its peers on this machine.")
    parser.add_argument("--quick", action="store_true", help="shorter and less exact; does not write RESULTS.md")
    parser.add_argument(
        "--only", action="append", choices=[*GROUPS, *PARTS], metavar="PART",
        help=f"one part or group (repeatable); does not write RESULTS.md: {', '.join([*GROUPS, *PARTS])}",
    )  # fmt: skip
    parser.add_argument(
        "--peer", action="append", choices=[peer.name for peer in PEERS] + ["none"], metavar="NAME",
        help=f"only this peer (repeatable), or none; does not write RESULTS.md: {', '.join(one.name for one in PEERS)}",
    )  # fmt: skip
    parser.add_argument("--server", help="command to start instead of `greendot serve`, with the same flags")
    return parser.parse_args()


def _chosen(only: Sequence[str] | None, quick: bool) -> list[str]:
    """Return the requested parts in order."""
    wanted = {part for word in only or GROUPS for part in GROUPS.get(word, (word,))}
    return [part for part in PARTS if part in wanted and (only or not quick or part not in SKIPPED_WHEN_QUICK)]


def _measure(
    options: argparse.Namespace, plan: Plan, parts: Sequence[str], shown: progress.Progress
) -> tuple[Found, bool]:
    found = Found()
    plan = _within_file_limit(plan)
    shown.begin("install")
    compile_programs()
    home = Home(BUILD / "peers")
    peers = _had(options.peer, home, found) if set(parts) & set(PEER_PARTS) else []
    server_core, load_core = cores = choose_cores()
    if load_core is not None:
        os.sched_setaffinity(0, {load_core})  # the driver must not disturb the server
    command = shlex.split(options.server) if options.server else greendot_command()
    with tempfile.TemporaryDirectory(prefix="greendot-bench-") as folder:
        bench = RecordsBench(command, BUILD, Path(folder), cores)
        bench.mint_tokens(plan.users)
        found.peers = PeersBench(bench, peers, home)
        with Bound(plan.limit_s, shown) as bound:
            for part in parts:
                shown.begin(part)
                try:
                    bound.check()
                    _part(part, bench, plan, found)
                except (Trouble, TimeIsUp) as trouble:  # reported; the other parts continue
                    found.failed[part] = str(trouble)
                    shown.warn(f"{part} failed: {trouble}")
    return found, server_core is not None


def _part(part: str, bench: RecordsBench, plan: Plan, found: Found) -> None:
    if part in PEER_PARTS:
        getattr(found.peers, part)(plan)
        return
    if part in SECURITY_PARTS:
        found.security_rows += _security_rows(part, bench, plan)
        return
    got = getattr(bench, part)(plan)
    if isinstance(got, Nodes):
        found.nodes = got
    if part in REDIS_PARTS:
        found.redis_rows += redis_report.rows(got)
    else:
        found.record_rows += records_report.rows(got)


def _security_rows(part: str, bench: RecordsBench, plan: Plan) -> list[report.Row]:
    if part == "guarded":
        return guarded.rows(guarded.guarded(bench, plan))
    if part == "hooked":
        return hooked.rows(hooked.hooked(bench, plan))
    return security.rows(security.verified(plan))


class TimeIsUp(Exception):
    """End of the time limit. Not a Trouble, which would count as an error of a peer."""


class Bound:
    """Time limit of a run. It redraws the progress every second, and ends the current part at the limit."""

    def __init__(self, limit_s: float, shown: progress.Progress) -> None:
        self._deadline = time.monotonic() + limit_s  # without the time of installations
        self._word = f"the time limit of {limit_s / 60:.1f} minutes was reached"
        self._shown = shown
        self._said = False

    def __enter__(self) -> Bound:
        signal.signal(signal.SIGALRM, self._tick)
        signal.setitimer(signal.ITIMER_REAL, 1, 1)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)

    def check(self) -> None:
        if time.monotonic() > self._deadline:
            raise TimeIsUp(self._word)

    def _tick(self, *_: object) -> None:
        self._shown.draw()
        if not self._said and time.monotonic() > self._deadline:
            self._said = True  # only once, so that the interrupted part can end its processes
            raise TimeIsUp(self._word)


def _had(wanted: Sequence[str] | None, home: Home, found: Found) -> list[Peer]:
    """Install the requested peers and return the installed ones."""
    chosen = [peer for peer in PEERS if wanted is None or peer.name in wanted]
    why = install(home, {peer.kind for peer in chosen})
    found.missing = {peer.label: why[peer.kind] for peer in chosen if peer.kind in why}
    for label, reason in found.missing.items():
        say(f"{label} is not measured: {reason}")
    had = [peer for peer in chosen if peer.kind not in why]
    found.versions = versions(home, had)
    return had


def _within_file_limit(plan: Plan) -> Plan:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # inherited by the server
    room = plan.users if most == resource.RLIM_INFINITY else most - SPARE_FILES
    if room < plan.subscribers + 1:
        raise Trouble(
            f"The limit of {most} open files is too low for {plan.subscribers:,} connections: raise it (ulimit -n)."
        )
    wanted = ("idle_connections", "most_connections", "quiet_connections", "restored_connections")
    return replace(plan, **{name: min(room, getattr(plan, name)) for name in wanted})


def choose_cores() -> tuple[int | None, int | None]:
    """Return a core for the server and one for the generator."""
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        say("only one core: server and generator share it, so all figures are too low")
        return None, None
    return usable[0], usable[1]


def compile_programs() -> None:
    for name, files in PROGRAMS.items():
        command = ["cc", "-O2", "-Wall", "-Wextra", "-o", str(BUILD / name), *map(str, files)]
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError:
            raise Trouble("`cc` was not found: install a C compiler for the load generator.") from None
        if done.returncode:
            raise Trouble(f"bench/{name} does not compile:\n{done.stderr}")
    say(f"compiled {', '.join(PROGRAMS)}")


def greendot_command() -> list[str]:
    program = Path(sys.executable).parent / "greendot"
    if not program.exists():
        raise Trouble("`greendot` was not found beside this Python: run `make bench`, which installs it.")
    return [str(program), "serve"]


def _tell(found: Found, pinned: bool, options: argparse.Namespace, took_s: float) -> None:
    figures = found.peers.figures if found.peers else {}
    measured = {name: one for name, one in figures.items() if one.rates or one.connects or one.idle or one.troubles}
    texts = [report.machine(pinned, found.versions)]
    if measured or found.nodes:
        others = [row for row in [*found.redis_rows, *found.record_rows, *found.security_rows] if row.target]
        texts += [f"### Targets\n{peer_report.targets(figures, found.nodes, others)}", *peer_report.tables(measured)]
    remarks = peer_report.remarks(measured, found.missing)
    remarks += [f"- The part `{part}` failed: {why}" for part, why in found.failed.items()]
    texts += ["\n".join(remarks)] if remarks else []
    texts += [f"### With Redis\n{report.table(found.redis_rows)}"] if found.redis_rows else []
    texts += [f"### Records\n{report.table(found.record_rows)}"] if found.record_rows else []
    texts += [f"### Security\n{report.table(found.security_rows)}"] if found.security_rows else []
    texts += [f"The measured server was `{options.server}`, not Greendot."] if options.server else []
    texts += [f"The run took {took_s / 60:.1f} minutes."]
    print("\n" + "\n\n".join(texts), flush=True)
    whole = not (options.quick or options.only or options.peer or options.server)
    _keep(texts, measured, whole and not found.failed)
    if whole and found.failed:
        print("Not written to bench/RESULTS.md: some parts are missing.")


def _keep(texts: list[str], measured: dict, whole: bool) -> None:
    """Write the results of a whole run. The plots of other runs go to the build folder."""
    if measured:
        try:
            made = plots.draw(measured, PLOTS if whole else BUILD / "plots")
            print(f"Plots: {', '.join(str(path.relative_to(HERE.parent)) for path in made)}.")
        except Trouble as trouble:
            print(trouble)
    if whole:
        report.write(RESULTS, "\n\n".join(texts))
        print("Written to bench/RESULTS.md.")


if __name__ == "__main__":
    sys.exit(main())
