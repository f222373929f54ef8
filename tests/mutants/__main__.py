"""`make mutants`: applies small changes to pure modules and counts those that their unit tests detect."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import random
import signal
import sys
import time
import tomllib
from pathlib import Path
from select import select
from typing import Any, NamedTuple

from .mutations import Mutant, mutants
from .trying import ROOT, Trials, Unusable

HERE = Path(__file__).parent
ENOUGH = 0.95
SEED = "greendot"


class Result(NamedTuple):
    """Outcome of one mutant."""

    mutant: Mutant
    killed: bool


class Tally:
    """Results of one module."""

    def __init__(self, module: str, chosen: list[Mutant], equivalent: set[tuple[str, str, str]]) -> None:
        self.module = module
        self.chosen = chosen
        self.results: list[Result] = []
        self.problem: str | None = None
        self._equivalent = equivalent

    @property
    def killed(self) -> int:
        return sum(one.killed for one in self.results if one.mutant.key not in self._equivalent)

    @property
    def equivalent(self) -> int:
        return sum(one.mutant.key in self._equivalent for one in self.results)

    @property
    def survivors(self) -> list[Mutant]:
        return [one.mutant for one in self.results if not one.killed and one.mutant.key not in self._equivalent]

    @property
    def no_equivalents(self) -> list[Mutant]:
        """Return mutants that are listed as equivalent although a test has killed them."""
        return [one.mutant for one in self.results if one.killed and one.mutant.key in self._equivalent]


def main() -> int:
    asked = arguments()
    listed: dict[str, list[str]] = tomllib.loads((HERE / "modules.toml").read_text())
    equivalent = tomllib.loads((HERE / "equivalent.toml").read_text())
    usage = []
    for module in listed:
        if asked.modules and not any(module.startswith(wanted) for wanted in asked.modules):
            continue
        every = mutants((ROOT / "src" / "greendot" / f"{module}.py").read_text())
        if asked.line is not None:
            every = [one for one in every if one.line == asked.line]
        chosen = every if asked.all else sample(module, every, asked.sample)
        known = {(one["in"], one["line"], change) for one in equivalent.get(module, []) for change in one["changes"]}
        for gone in known - {one.key for one in every} if asked.line is None else ():
            print(f"equivalent.toml: {module} has no mutant {gone}", file=sys.stderr)
            asked.stale = True
        usage.append(Tally(module, chosen, known))
    print(f"→ {sum(len(one.chosen) for one in usage)} mutants of {len(usage)} modules", flush=True)
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.default_int_handler)
    try:
        Runner(usage, listed, asked.jobs).run()
    except KeyboardInterrupt:
        print("\n→ stopped")
        report(usage)
        return 130
    return max(report(usage), int(asked.stale))


def arguments() -> Any:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument(
        "modules", nargs="*", help="modules to mutate, such as presence/model or rooms/ (default: all listed modules)"
    )
    parser.add_argument("--all", action="store_true", help="all mutants, not a sample")
    parser.add_argument("--sample", type=int, default=20, help="mutants per module (%(default)s)")
    parser.add_argument("--line", type=int, help="only mutants of this line")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="modules at a time (%(default)s)")
    parser.set_defaults(stale=False)
    return parser.parse_args()


def sample(module: str, every: list[Mutant], number: int) -> list[Mutant]:
    """Return `number` mutants of a module, always the same for the same source."""
    chosen = random.Random(f"{SEED} {module}").sample(range(len(every)), min(number, len(every)))
    return [every[place] for place in sorted(chosen)]


def tests_of(module: str, more: list[str]) -> list[str]:
    """Return the unit tests of a module: those listed, or else the file in tests/unit that mirrors it."""
    folder, _, name = module.rpartition("/")
    return more or [str(Path("tests/unit") / folder / f"test_{name}.py")]


class Runner:
    """Runner of one process per module, `jobs` at a time. Each process writes one line per result into a pipe."""

    def __init__(self, usage: list[Tally], listed: dict[str, list[str]], jobs: int) -> None:
        self._usage = usage
        self._listed = listed
        self._jobs = jobs
        self._running: dict[int, tuple[int, Tally, bytearray]] = {}  # by pipe
        self._begun = time.monotonic()

    def run(self) -> None:
        load()
        waiting = sorted(self._usage, key=lambda tally: -len(tally.chosen))
        try:
            while waiting or self._running:
                while waiting and len(self._running) < self._jobs:
                    self._start(waiting.pop(0))
                for pipe in select([*self._running], [], [], 1.0)[0]:
                    self._read(pipe)
                self._show()
        finally:
            for child, _, _ in self._running.values():
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)

    def _start(self, tally: Tally) -> None:
        mine, its = os.pipe()
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            os.close(mine)
            work(tally, tests_of(tally.module, self._listed[tally.module]), its)
        os.close(its)
        self._running[mine] = child, tally, bytearray()

    def _read(self, pipe: int) -> None:
        child, tally, line = self._running[pipe]
        data = os.read(pipe, 1 << 16)
        line += data
        *whole, rest = bytes(line).split(b"\n")
        line[:] = rest
        for one in whole:
            said = json.loads(one)
            if "problem" in said:
                tally.problem = said["problem"]
            else:
                tally.results.append(Result(tally.chosen[said["mutant"]], said["killed"]))
        if not data:
            os.close(pipe)
            os.waitpid(child, 0)
            del self._running[pipe]
            if len(tally.results) < len(tally.chosen) and tally.problem is None:
                tally.problem = "the process ended early"
            print(f"{self._clear()}{described(tally)}", flush=True)
            show_survivors(tally)

    def _show(self) -> None:
        if sys.stdout.isatty():
            done, every = (sum(len(getattr(one, of)) for one in self._usage) for of in ("results", "chosen"))
            took = time.monotonic() - self._begun
            print(f"{self._clear()}  {done} of {every} in {took:.0f} s", end="", flush=True)

    @staticmethod
    def _clear() -> str:
        return "\r\x1b[K" if sys.stdout.isatty() else ""


def load() -> None:
    """Import third-party packages that the tests need, so that trials need not. Each trial imports our own modules."""
    sys.path.insert(0, str(ROOT / "tests"))
    mine, its = os.pipe()
    child = os.fork()
    if child == 0:
        __import__("conftest")
        foreign = [name for name, one in sys.modules.items() if "site-packages" in (getattr(one, "__file__", "") or "")]
        with os.fdopen(its, "w") as pipe:
            pipe.write("\n".join(foreign))
        os._exit(0)
    os.close(its)
    with os.fdopen(mine) as names:
        for name in names.read().split():
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    os.waitpid(child, 0)


def work(tally: Tally, tests: list[str], pipe: int) -> None:
    """Try the mutants of one module, in a process of its own."""
    places = {id(mutant): place for place, mutant in enumerate(tally.chosen)}

    def say(**words: object) -> None:
        os.write(pipe, json.dumps(words).encode() + b"\n")

    try:
        silence()
        Trials(tally.module, tests).run(tally.chosen, lambda one, killed: say(mutant=places[id(one)], killed=killed))
    except Unusable as error:
        say(problem=str(error))
    except BaseException as error:
        say(problem=repr(error))
    finally:
        os._exit(0)


def silence() -> None:
    """Restore the default signal handlers and discard all output, in a fork."""
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)


def described(tally: Tally) -> str:
    counted = tally.killed + len(tally.survivors)
    share = f"{100 * tally.killed / counted:5.1f} %" if counted else "    – %"
    words = f"{tally.module:28} {tally.killed:4} killed {len(tally.survivors):3} survived"
    words += f" {tally.equivalent:3} equivalent {share}"
    return words + (f"  {tally.problem}" if tally.problem else "")


def show_survivors(tally: Tally) -> None:
    for mutant in sorted(tally.survivors, key=lambda one: one.line):
        print(f"    src/greendot/{tally.module}.py:{mutant.line} in {mutant.where or 'the module'}")
        print(f"      - {mutant.before}\n      + {mutant.after}")
    for mutant in tally.no_equivalents:
        print(f"    equivalent.toml: {tally.module}.py:{mutant.line}: a test has killed it\n      + {mutant.after}")
    sys.stdout.flush()


def report(usage: list[Tally]) -> int:
    """Print the totals. Return 1 if too many mutants survived."""
    killed, survived = sum(one.killed for one in usage), sum(len(one.survivors) for one in usage)
    share = killed / max(killed + survived, 1)
    equivalent = sum(one.equivalent for one in usage)
    words = f"{killed} killed, {survived} survived, {equivalent} equivalent"
    print(f"\n{words}: {100 * share:.1f} %, {100 * ENOUGH:.0f} % wanted")
    wrong = any(one.problem or one.no_equivalents for one in usage)
    return int(share < ENOUGH or wrong)


if __name__ == "__main__":
    sys.exit(main())
