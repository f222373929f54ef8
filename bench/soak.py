"""Soak test: clients that live like people for hours, a fault every 30 s, and figures that must stay flat.

    python bench/soak.py --hours 8                       5,000 clients of 3 nodes, Redis, PostgreSQL
    python bench/soak.py --hours 0.5 --clients 1500      a shorter run; the days of its clients are shorter, too
    python bench/soak.py --hours 2 --write               also write the figures into docs/faults.md, and the plot

Clients live in days of ten minutes. They wake up, watch users, join a room, type, write, set a status, change the
network, sleep for a while and go to bed. A tenth of them are other users every day. The app deletes the rooms of
yesterday, and retention removes other records after a day, so that all figures should be the same every day.

The exit status is 1 if a figure rises by more than its tolerance (soak_verdict.py), if clients saw an event that must
not happen, or if clients did not return. Node 1 is never restarted, so that its memory shows a leak.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from textwrap import fill
from typing import Any

from measure import sources
from progress import say
from report import grid, machine, write
from serverd import Trouble

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "tests"))

from soak_cluster import Cluster, Faults, Plan, await_back, check_alive, running  # noqa: E402
from soak_plot import Panel, draw  # noqa: E402
from soak_sampler import WRONG, App, Sampler, Samples  # noqa: E402
from soak_verdict import HOUR_S, Tolerance, Trend, judge  # noqa: E402

PAGE, PLOT = HERE.parent / "docs" / "faults.md", HERE / "plots" / "soak.svg"
BEGIN, END = "<!-- soak: begin (written by bench/soak.py) -->", "<!-- soak: end -->"
BACK_WITHIN_S = 60.0  # of all clients, after the last fault
LONGEST_DAY_S, SHORTEST_DAY_S, DAYS = 600.0, 20.0, 6  # a short run has six short days
MB = 1e6
TOLERANCES = {
    "node 1: memory": Tolerance(0.10, 8 * MB),
    "node 1: descriptors besides clients": Tolerance(0.10, 10),
    "node 2: descriptors besides clients": Tolerance(0.10, 10),
    "node 3: descriptors besides clients": Tolerance(0.10, 10),
    "redis: keys": Tolerance(0.10, 150),  # FLUSHALL removes the index of users who are offline, which fills again
    "redis: memory": Tolerance(0.10, 2 * MB),
    "redis: connections": Tolerance(0.10, 5),
    "store: bytes": Tolerance(0.10, 8 * MB),
    "rows of ": Tolerance(0.10, 200),
    "rows of job_runs": Tolerance(0.10, 200, ceiling=2_500),  # the last 500 runs of each of five jobs are kept
    "bytes of ": Tolerance(0.15, 2 * MB),
}
# A node keeps up to 5,000 exits from rooms for an hour, with their sessions, and a bounded number of rate limits. In a
# warm-up under an hour, this memory is not full yet.
FILLING_S, FILLING = HOUR_S, {"node 1: memory": Tolerance(0.10, 24 * MB)}


@dataclass
class Run:
    """Samples, faults and problems of a run."""

    plan: Plan
    samples: Samples = field(default_factory=Samples)
    faults: list[tuple[float, str]] = field(default_factory=list)
    healed: dict[str, list[float]] = field(
        default_factory=dict
    )  # seconds from a fault until it had ended and the clients were back
    unhealed: list[str] = field(default_factory=list)  # faults after which the next one came first
    problems: list[str] = field(default_factory=list)
    wrong_events: str = ""  # log of the generator
    interrupted: bool = False

    def trends(self) -> tuple[list[Trend], list[str]]:
        tolerances = TOLERANCES | (FILLING if self.plan.warm_up_s < FILLING_S else {})
        regulars = self.plan.clients - self.plan.guests
        tolerances["rows of status"] = Tolerance(0.10, 200, ceiling=regulars)  # a row of each user who has set one
        return judge(self.samples.series(), tolerances, self.plan.day_s, self.plan.warm_up_s)

    def seen(self) -> dict[str, int]:
        """Return the last counts of wrong events."""
        last = self.samples.rows[-1].values if self.samples.rows else {}
        return {text: int(last.get(name, 0)) for name, text in WRONG.items()}

    def failures(self) -> list[str]:
        trends, _ = self.trends()
        rising = [
            f"{one.name} rises by {one.rise:,.0f} in {one.days} days ({one.per_hour:,.0f} an hour); "
            f"tolerated: {one.allowed:,.0f}"
            for one in trends
            if not one.is_flat
        ]
        return [*rising, *(f"{text}: {count:,}" for text, count in self.seen().items() if count), *self.problems]


def soak(plan: Plan, folder: Path, program: Path) -> Run:
    """Run the test; Ctrl-C ends it early."""
    run = Run(plan)
    with running(plan, folder, program) as cluster:
        workers = [Sampler(cluster, run.samples, lambda: f"{len(run.faults)} faults"), App(cluster)]
        for worker in workers:
            worker.start()
        try:
            _disturb(run, cluster, workers)
        except KeyboardInterrupt:
            run.interrupted = True
        except Trouble as trouble:
            run.problems.append(str(trouble))
        finally:
            for worker in workers:
                worker.stop()
        run.wrong_events = cluster.log.read_text() if cluster.log.exists() else ""
    return run


def _disturb(run: Run, cluster: Cluster, workers: list[Any]) -> None:
    """Cause a fault at every interval until the end, then wait until the clients are back."""
    plan, faults = run.plan, Faults(cluster)
    slot = 1
    while (due := slot * plan.fault_s) < plan.seconds - plan.fault_s:
        while cluster.elapsed_s() < due:
            _check(cluster, workers)
            time.sleep(min(0.5, max(0.0, due - cluster.elapsed_s())))
        name, began = faults.next(), cluster.elapsed_s()
        run.faults.append((round(began, 1), name))
        say(f"{name} …")
        faults.cause(name)
        slot = int(cluster.elapsed_s() / plan.fault_s) + 1  # a fault that takes long delays the next one
        took = await_back(cluster, max(1.0, slot * plan.fault_s - cluster.elapsed_s()))
        if took is None:
            run.unhealed.append(name)
        else:
            run.healed.setdefault(name, []).append(cluster.elapsed_s() - began)
    if await_back(cluster, BACK_WITHIN_S) is None:
        run.problems.append(f"not all clients were back {BACK_WITHIN_S:.0f} s after the last fault")
    while cluster.elapsed_s() < plan.seconds:
        _check(cluster, workers)
        time.sleep(0.5)


def _check(cluster: Cluster, workers: list[Any]) -> None:
    check_alive(cluster)
    for worker in workers:
        worker.check()


# ---- report -------------------------------------------------------------------------------------------------------


def figure(name: str, value: float) -> str:
    """Return a value with the unit of its series."""
    if "memory" in name or "bytes" in name:
        return f"{value / MB:,.1f} MB"
    return f"{value:,.0f}"


def tables(run: Run) -> str:
    """Return the figures as Markdown."""
    trends, unjudged = run.trends()
    big = [one for one in trends if not one.name.startswith("bytes of ") or one.highest > MB]
    rows = [
        (
            one.name,
            figure(one.name, one.first),
            figure(one.name, one.last),
            figure(one.name, one.per_hour),
            figure(one.name, one.rise),
            figure(one.name, one.allowed),
            "flat" if one.is_flat else "**rises**",
        )
        for one in big
    ]
    headings = ("series", "first days", "last days", "trend per hour", "rise", "tolerated", "verdict")
    parts = [grid(headings, rows)]
    if len(big) < len(trends) or unjudged:
        small = len(trends) - len(big)
        parts.append(f"{small} tables smaller than 1 MB are left out here. Too short to judge: {len(unjudged)} series.")
    healed = [
        (
            name,
            str(sum(fault == name for _, fault in run.faults)),
            f"{median(run.healed[name]):.1f} s" if name in run.healed else "",
            f"{max(run.healed[name]):.1f} s" if name in run.healed else "",
            str(run.unhealed.count(name)),
        )
        for name in sorted({fault for _, fault in run.faults})
    ]
    parts.append(grid(("fault", "times", "healed after: median", "longest", "not before the next"), healed))
    parts.append(grid(("wrong event", "number"), [(text, f"{count:,}") for text, count in run.seen().items()]))
    return "\n\n".join(parts)


def totals(run: Run) -> str:
    last = run.samples.rows[-1].values
    names = ("left", "lost", "switched", "resumed", "messages", "typing", "delivered", "changes", "notified", "checked")
    return ", ".join(f"{name} {last.get(f'clients: {name}', 0):,.0f}" for name in names)


def plot(run: Run) -> str:
    """Return the plot of a run."""
    series, plan = run.samples.series(), run.plan
    nodes = range(1, plan.nodes + 1)

    def of_nodes(name: str) -> dict[str, Any]:
        return {f"node {n}": series.get(f"node {n}: {name}", []) for n in nodes}

    def one(name: str) -> dict[str, Any]:
        return {name: series.get(name, [])}

    largest = sorted(
        (name for name in series if name.startswith("rows of ")),
        key=lambda name: -max(value for _, value in series[name]),
    )[:4]
    panels = [
        Panel("Connected clients", {"connected": series.get("clients: ready", [])}),
        Panel("Memory of nodes, MB", of_nodes("memory"), MB),
        Panel("Descriptors besides clients", of_nodes("descriptors besides clients")),
        Panel("Worst loop lag, ms", of_nodes("loop lag, ms")),
        Panel("Redis: keys", one("redis: keys")),
        Panel("Redis: memory, MB", one("redis: memory"), MB),
        Panel("Rows", {name.removeprefix("rows of "): series[name] for name in largest}),
        Panel("Store: MB", one("store: bytes"), MB),
    ]
    seconds = run.samples.rows[-1].at_s if run.samples.rows else plan.seconds
    heading = f"Soak: {plan.clients:,} clients, {plan.nodes} nodes, {seconds / HOUR_S:.2g} h, {len(run.faults)} faults"
    note = f"Days of {plan.day_s:,.0f} s. Dotted lines: faults. Node 1 is never restarted."
    return draw(heading, note, panels, seconds, [at for at, _ in run.faults])


def page(run: Run, command: str) -> str:
    """Return the section of docs/faults.md, without its heading."""
    plan, taken = run.plan, run.samples.rows[-1].at_s
    total = int(sum(run.seen().values()))
    text = (
        f"`{command}` ran for {taken / 60:.0f} minutes: {len(run.faults)} faults, {taken / plan.day_s:.1f} days of "
        f"{plan.day_s:.0f} s. The first {plan.warm_up_s / 60:.1f} minutes are not judged. "
        f"Clients saw {total} wrong events."
    )
    text, sums = (fill(part, 150) for part in (text, f"Counted by clients: {totals(run)}."))
    return "\n\n".join([machine(False, {}), text, "![Figures over time](../bench/plots/soak.svg)", tables(run), sums])


def show(run: Run) -> None:
    if not run.samples.rows:
        print("No sample was taken.")
        return
    print(f"\n{tables(run)}\n\n{totals(run)}\n")
    for failure in run.failures():
        print(f"  FAILED  {failure}")
    if not run.trends()[0]:
        print("  The run was too short for a verdict: it needs two days after the warm-up.")


def keep(run: Run, command: str, path: Path) -> None:
    """Write samples, faults and verdict as JSON."""
    trends, unjudged = run.trends()
    found = {
        "command": command,
        "date": time.strftime("%Y-%m-%d"),
        "plan": asdict(run.plan),
        "failures": run.failures(),
        "trends": [asdict(one) | {"flat": one.is_flat} for one in trends],
        "unjudged": unjudged,
        "faults": run.faults,
        "healed": run.healed,
        "samples": [asdict(row) for row in run.samples.rows],
    }
    path.write_text(json.dumps(found))
    say(f"{path} has all samples")


def compile_soak(folder: Path) -> Path:
    program = folder / "soak"
    subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-o", str(program), *map(str, sources("soak"))], check=True)
    return program


def arguments(words: list[str]) -> tuple[Plan, argparse.Namespace]:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hours", type=float, default=8.0, help="length of the run; fractions are permitted")
    parser.add_argument("--clients", type=int, default=5_000, help="number of clients, at least 50")
    parser.add_argument("--nodes", type=int, default=3, choices=(2, 3), help="number of nodes")
    parser.add_argument("--store", default="postgres", choices=("postgres", "sqlite"))
    parser.add_argument("--seed", type=int, default=1, help="seed of the faults and of the clients' days")
    parser.add_argument("--day", type=float, help="length of a day in seconds (600; less in a run under an hour)")
    parser.add_argument("--write", action="store_true", help="write docs/faults.md and bench/plots/soak.svg")
    options = parser.parse_args(words)
    if not 0 < options.hours <= 1_000:
        parser.error(f"--hours is {options.hours:g} but must be above 0 and at most 1000, for example 0.5")
    if not 50 <= options.clients <= 15_000:
        parser.error(f"--clients is {options.clients} but must be from 50 to 15000: one process has all clients")
    seconds = options.hours * HOUR_S
    day_s = options.day or max(SHORTEST_DAY_S, min(LONGEST_DAY_S, seconds / DAYS))
    if day_s < SHORTEST_DAY_S:
        parser.error(f"--day is {day_s:g} but must be at least {SHORTEST_DAY_S:g}")
    plan = Plan(
        seconds, options.clients, options.nodes, options.store, day_s, max(1.5 * day_s, seconds / 8), options.seed
    )
    return plan, options


def main() -> int:
    plan, options = arguments(sys.argv[1:])
    command = f"python bench/soak.py {' '.join(sys.argv[1:])}"
    build = HERE / "build"
    build.mkdir(exist_ok=True)
    program = compile_soak(build)
    with tempfile.TemporaryDirectory(prefix="greendot-soak-") as folder:
        Path(folder).chmod(0o755)  # PostgreSQL runs as another user
        run = soak(plan, Path(folder), program)
    show(run)
    if run.samples.rows:
        keep(run, command, build / "soak.json")
        (build / "soak-clients.log").write_text(run.wrong_events)
        (PLOT if options.write else build / "soak.svg").write_text(plot(run))
        if options.write:
            write(PAGE, page(run, command), BEGIN, END)
    if run.interrupted:
        return 130
    return 1 if run.failures() or not run.trends()[0] else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Trouble as trouble:
        sys.exit(f"soak: {trouble}")
    except KeyboardInterrupt:
        sys.exit(130)
