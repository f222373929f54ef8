"""Measure Greendot beside its peers on this machine and show the figures beside their targets.

`make bench` (at most a quarter of an hour, writes bench/RESULTS.md and bench/plots) or `make bench-quick` (two minutes,
only prints). Load generator and floors are C (load/ and wire/, flood.c, rawcast.c, hget.c); RESULTS.md says how
things are measured.
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
# In this order, with the seconds each takes in a full and in a quick run on two cores.
PEER_PARTS = {"broadcast": (270, 30), "connect": (55, 10), "idle": (160, 20)}
REDIS_PARTS = {
    "nodes": (40, 7), "memory": (20, 5), "quiet": (35, 9), "cycles": (20, 8), "read": (6, 2), "intake": (11, 2),
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
}  # unless asked for
GROUPS = {
    "peers": tuple(PEER_PARTS),
    "redis": tuple(REDIS_PARTS),
    "records": tuple(RECORD_PARTS),
    "security": tuple(SECURITY_PARTS),
}
PROGRAMS = {"load": sources("load")} | {n: [HERE / f"{n}.c"] for n in ("rawcast", "hget", "flood")}
SPARE_FILES = 100  # descriptors a server needs beside its connections


@dataclass
class Found:
    """Everything a run found out."""

    peers: PeersBench | None = None
    redis_rows: list[report.Row] = field(default_factory=list)
    record_rows: list[report.Row] = field(default_factory=list)
    security_rows: list[report.Row] = field(default_factory=list)
    nodes: Nodes | None = None
    missing: dict[str, str] = field(default_factory=dict)  # by label: why a peer could not be had
    failed: dict[str, str] = field(default_factory=dict)  # by part
    versions: dict[str, str] = field(default_factory=dict)


def main() -> int:
    options = _options()
    plan = QUICK if options.quick else FULL
    parts = _chosen(options.only, options.quick)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ended from outside: end the children as for Ctrl-C
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
        print("\nbench: interrupted; everything it started was ended.", file=sys.stderr)
        return 130


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Greendot beside its peers on this machine.")
    parser.add_argument("--quick", action="store_true", help="shorter and rougher; does not write RESULTS.md")
    parser.add_argument(
        "--only", action="append", choices=[*GROUPS, *PARTS], metavar="PART",
        help=f"one part or group (may be repeated); does not write: {', '.join([*GROUPS, *PARTS])}",
    )  # fmt: skip
    parser.add_argument(
        "--peer", action="append", choices=[peer.name for peer in PEERS] + ["none"], metavar="NAME",
        help=f"only this peer (may be repeated), or none; does not write. {', '.join(peer.name for peer in PEERS)}",
    )  # fmt: skip
    parser.add_argument("--server", help="start this command instead of `greendot serve`, with the same flags")
    return parser.parse_args()


def _chosen(only: Sequence[str] | None, quick: bool) -> list[str]:
    """The parts asked for, in their order."""
    wanted = {part for word in only or GROUPS for part in GROUPS.get(word, (word,))}
    return [part for part in PARTS if part in wanted and (only or not quick or part not in SKIPPED_WHEN_QUICK)]


def _measure(
    options: argparse.Namespace, plan: Plan, parts: Sequence[str], shown: progress.Progress
) -> tuple[Found, bool]:
    found = Found()
    plan = _within_file_limit(plan)
    shown.begin("install")
    _compile()
    home = Home(BUILD / "peers")
    peers = _had(options.peer, home, found) if set(parts) & set(PEER_PARTS) else []
    server_core, load_core = cores = _cores()
    if load_core is not None:
        os.sched_setaffinity(0, {load_core})  # the driver must not disturb the server either
    command = shlex.split(options.server) if options.server else _greendot_command()
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
                except (Trouble, TimeIsUp) as trouble:  # said, and the other parts left alone
                    found.failed[part] = str(trouble)
                    shown.warn(f"{part} gave no figures: {trouble}")
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
    """No Trouble, so that nobody takes it for that of a peer."""


class Bound:
    """Once a second it keeps the line of progress up to date, and ends the part under way when time is up."""

    def __init__(self, limit_s: float, shown: progress.Progress) -> None:
        self._deadline = time.monotonic() + limit_s  # what was to be installed, once, is not in it
        self._word = f"the run had taken its {limit_s / 60:.1f} minutes"
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
            self._said = True  # once: what it interrupted must be able to end what it had started
            raise TimeIsUp(self._word)


def _had(wanted: Sequence[str] | None, home: Home, found: Found) -> list[Peer]:
    """The peers asked for that can be had here."""
    chosen = [peer for peer in PEERS if wanted is None or peer.name in wanted]
    why = install(home, {peer.kind for peer in chosen})
    found.missing = {peer.label: why[peer.kind] for peer in chosen if peer.kind in why}
    for label, reason in found.missing.items():
        say(f"without {label}: {reason}")
    had = [peer for peer in chosen if peer.kind not in why]
    found.versions = versions(home, had)
    return had


def _within_file_limit(plan: Plan) -> Plan:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # inherited by the server
    room = plan.users if most == resource.RLIM_INFINITY else most - SPARE_FILES
    if room < plan.subscribers + 1:
        raise Trouble(f"A process may open only {most} files here: too few for {plan.subscribers:,} connections.")
    wanted = ("idle_connections", "most_connections", "quiet_connections", "restored_connections")
    return replace(plan, **{name: min(room, getattr(plan, name)) for name in wanted})


def _cores() -> tuple[int | None, int | None]:
    """A core for the server and one for the generator."""
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        say("only one core: server and generator share it, so every figure comes out too low")
        return None, None
    return usable[0], usable[1]


def _compile() -> None:
    for name, files in PROGRAMS.items():
        command = ["cc", "-O2", "-Wall", "-Wextra", "-o", str(BUILD / name), *map(str, files)]
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError:
            raise Trouble("A C compiler is needed for the load generator, and `cc` was not found.") from None
        if done.returncode:
            raise Trouble(f"bench/{name} does not compile:\n{done.stderr}")
    say(f"compiled {', '.join(PROGRAMS)}")


def _greendot_command() -> list[str]:
    program = Path(sys.executable).parent / "greendot"
    if not program.exists():
        raise Trouble("There is no `greendot` beside this Python: run `make bench`, which installs it.")
    return [str(program), "serve"]


def _tell(found: Found, pinned: bool, options: argparse.Namespace, took_s: float) -> None:
    figures = found.peers.figures if found.peers else {}
    measured = {name: one for name, one in figures.items() if one.rates or one.connects or one.idle or one.troubles}
    texts = [report.machine(pinned, found.versions)]
    if measured or found.nodes:
        texts += [f"### Targets\n{peer_report.targets(figures, found.nodes)}", *peer_report.tables(measured)]
    remarks = peer_report.remarks(measured, found.missing)
    remarks += [f"- The part `{part}` gave no figures: {why}" for part, why in found.failed.items()]
    texts += ["\n".join(remarks)] if remarks else []
    texts += [f"### With Redis\n{report.table(found.redis_rows)}"] if found.redis_rows else []
    texts += [f"### Records\n{report.table(found.record_rows)}"] if found.record_rows else []
    texts += [f"### Security\n{report.table(found.security_rows)}"] if found.security_rows else []
    texts += [f"Not Greendot: this was `{options.server}`."] if options.server else []
    texts += [f"The run took {took_s / 60:.1f} minutes."]
    print("\n" + "\n\n".join(texts), flush=True)
    whole = not (options.quick or options.only or options.peer or options.server)
    _keep(texts, measured, whole and not found.failed)
    if whole and found.failed:
        print("Not written to bench/RESULTS.md: parts of it are missing.")


def _keep(texts: list[str], measured: dict, whole: bool) -> None:
    """Whole runs are written down; pictures of others go where nothing is kept."""
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
