"""Runner of `make simulate`: trials of many seeds on all cores, with progress.

The first failure is shrunk and printed as a story.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from simulation.mutants import MUTANTS, QUICK, find
from simulation.plans import draw
from simulation.trial import run, shrink, tell

CHUNK = 50  # seeds that a process runs before it reports
EVERY_S = 10.0  # between two lines of progress


def chunk(first: int, end: int) -> tuple[int, str, dict[int, str]]:
    """Run the seeds. Return their number, a digest of their logs, and the broken invariant of each failing seed."""
    digests, failed = "", dict[int, str]()
    for seed in range(first, end):
        result = run(draw(seed))
        digests += result.digest
        if result.broken is not None:
            failed[seed] = result.broken.invariant
    return end - first, digests, failed


def chunks(first: int, end: int, workers: int) -> Iterator[tuple[int, str, dict[int, str]]]:
    starts = range(first, end, CHUNK)
    ends = [min(start + CHUNK, end) for start in starts]
    if workers == 1:
        yield from map(chunk, starts, ends)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(chunk, starts, ends)


def explain(seed: int) -> None:
    """Print the shortest story of a failing seed that can be found."""
    plan = draw(seed)
    broken = run(plan).broken
    if broken is None:
        print(f"seed {seed} does not fail")
        return
    shorter = shrink(plan, broken.invariant)
    print(tell(shorter, run(shorter)))
    print(f"repeat it: make simulate FIRST={seed} SEEDS=1")


def simulate(first: int, seeds: int, workers: int) -> int:
    began = reported = time.monotonic()
    done, failed = 0, dict[int, str]()
    try:
        for number, _, wrong in chunks(first, first + seeds, workers):
            done, failed = done + number, failed | wrong
            for seed, invariant in wrong.items():
                print(f"seed {seed} breaks {invariant}", flush=True)
            if (now := time.monotonic()) - reported >= EVERY_S:
                reported = now
                rate = done / (now - began) * 60
                print(f"{done} of {seeds} seeds, {rate:.0f} per minute, {len(failed)} failed", flush=True)
    except KeyboardInterrupt:
        print(f"interrupted after the seeds {first} to {first + done - 1}; failed: {[*failed] or 'none'}")
        return 130
    per_minute = done / (time.monotonic() - began) * 60
    print(f"{done} seeds, {per_minute:.0f} per minute with {workers} processes; failed: {[*failed] or 'none'}")
    if failed:
        explain(min(failed))
    return bool(failed)


def _found(name: str, first: int, seeds: int) -> tuple[str, int | None, str]:
    """Return the name of a planted fault, the number of seeds that find it (None: not found), and the promise."""
    found = find(name, first, seeds)
    return (name, None, "") if found is None else (name, found[0] - first + 1, found[1])


def plant(first: int, seeds: int, workers: int, only: str | None, *, quick: bool) -> int:
    """Search each planted fault. Print a table of the promises that find them, and of the seeds that this takes."""
    names = [name for name in (QUICK if quick else MUTANTS) if only is None or only in name]
    missed = 0
    with ProcessPoolExecutor(workers) as pool:
        for name, taken, invariant in pool.map(_found, names, [first] * len(names), [seeds] * len(names)):
            missed += taken is None
            print(f"| {name} | {'NOT FOUND' if taken is None else f'`{invariant}`'} | {taken or seeds} |", flush=True)
    print(f"{len(names) - missed} of {len(names)} planted faults found")
    return bool(missed)


def main() -> int:
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets of text have an order that follows from it
        again = [sys.executable, "-m", "simulation", *sys.argv[1:]]
        os.execve(sys.executable, again, os.environ | {"PYTHONHASHSEED": "0"})  # noqa: S606  (no shell is wanted)
    parser = argparse.ArgumentParser(prog="make simulate", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1_000, help="number of seeds")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--mutants", type=int, help="plant faults; each must be found within this number of seeds")
    parser.add_argument("--only", help="plant only the faults whose names contain this text")
    parser.add_argument("--quick", action="store_true", help="plant only the faults that few seeds find")
    given = parser.parse_args()
    if given.mutants is not None:
        return plant(given.first, given.mutants, given.workers, given.only, quick=given.quick)
    return simulate(given.first, given.seeds, given.workers)


if __name__ == "__main__":
    sys.exit(main())
