"""Trials of a module's mutants on its unit tests, each in a fork.

Tests are collected once. In a fork, the functions that a mutant changes get their new code in place, and the collected
tests run until one fails. Code that runs at import (constants, defaults, class bodies) cannot be replaced this way.
Then the package is imported again with the mutant, which takes longer. The same applies to mutants of functions that
were called before the tests ran: a test may have called the module for its parameters.
"""

from __future__ import annotations

import asyncio
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import NoReturn

import pytest
from hypothesis import Phase, settings

from .mutations import Mutant

ROOT = Path(__file__).resolve().parents[2]
PASSED, FAILED, BROKEN = 0, 1, 9  # exit codes of a trial
MOST_MEMORY = 4 << 30
ARGUMENTS = "-x -s -o timeout=0 -p no:randomly -p no:xdist -W ignore::pytest.PytestAssertRewriteWarning".split()  # noqa: SIM905

# Examples are the same in each run, so that results can be repeated.
settings.register_profile(
    "mutants",
    deadline=None,
    max_examples=40,
    derandomize=True,
    database=None,
    report_multiple_bugs=False,
    phases=[Phase.explicit, Phase.generate],  # shrinking is of no use here
)


class Unusable(Exception):
    """Tests that fail without any mutant."""


class Trials:
    """Trials of one module. `on_result` is called with each result."""

    def __init__(self, module: str, tests: list[str]) -> None:
        self.name = f"greendot.{module.replace('/', '.')}"
        self.path = ROOT / "src" / "greendot" / f"{module}.py"
        self.tests = tests
        self._limit_s = 60.0  # of processor time

    def run(self, mutants: list[Mutant], on_result: Callable[[Mutant, bool], None]) -> None:
        """Try all mutants. Call `on_result` with each mutant and whether it was killed."""
        self.measured(partial(self._anew, self.path.read_text()))
        for mutant in self._quickly(mutants, on_result):
            on_result(mutant, self.in_fork(partial(self._anew, mutant.source)) != PASSED)

    def measured(self, trial: Callable[[], int]) -> None:
        """Run the tests without a mutant. They must pass, and their duration sets the limit of a trial."""
        before = children_s()
        if self.in_fork(trial) != PASSED:
            raise Unusable(f"{' '.join(self.tests)} fail without any mutant")
        self._limit_s = 1.0 + 5 * (children_s() - before)

    def _quickly(self, mutants: list[Mutant], on_result: Callable[[Mutant, bool], None]) -> list[Mutant]:
        """Try mutants that change functions only, in a process that has collected the tests. Return the other
        mutants."""
        mine, its = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                with os.fdopen(its, "w", buffering=1) as pipe:
                    quick = Quick(self, mutants, lambda place, killed: print(place, int(killed), file=pipe))
                    sys.setprofile(quick.called)
                    pytest.main([*ARGUMENTS, "--noconftest", *self.tests], plugins=[quick])
            finally:
                os._exit(0)
        os.close(its)
        tried = set()
        with os.fdopen(mine) as lines:
            for place, killed in (map(int, line.split()) for line in lines):
                tried.add(place)
                on_result(mutants[place], bool(killed))
        os.waitpid(child, 0)
        return [mutant for place, mutant in enumerate(mutants) if place not in tried]

    def in_fork(self, trial: Callable[[], int]) -> int:
        """Run a trial in a fork and return its exit code. A negative one is the signal that ended it at a limit."""
        child = os.fork()
        if child == 0:
            self._be_tried(trial)
        # A loop is stopped by its processor time, and a deadlock by the wall-clock time.
        deadline = time.monotonic() + 20 + 10 * self._limit_s
        pause = 0.001
        while True:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
            time.sleep(pause)
            pause = min(pause * 1.3, 0.05)

    def _be_tried(self, trial: Callable[[], int]) -> NoReturn:
        ended = BROKEN
        try:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_PROF, self._limit_s)
            resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
            ended = trial()
        finally:
            os._exit(ended)

    def _anew(self, source: str) -> int:
        """Import all modules with another source of this one and run the tests."""
        sys.meta_path.insert(0, Planted(self.name, self.path, source))
        return int(pytest.main([*ARGUMENTS, "--noconftest", *self.tests], plugins=[Light()]))


def children_s() -> float:
    """Return the processor time of ended child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class SameExamples:
    """Plugin that loads the profile after tests/conftest.py and before tests are imported."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        settings.load_profile("mutants")


class Light(SameExamples):
    """Plugin that runs coroutine tests in place of tests/conftest.py, which imports the whole package."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool | None:
        if not inspect.iscoroutinefunction(pyfuncitem.obj):
            return None
        wanted = inspect.signature(pyfuncitem.obj).parameters
        asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted}))
        return True


class Quick(Light):
    """Plugin that runs the collected tests for each mutant that changes only functions, and calls `on_result`."""

    def __init__(self, trials: Trials, mutants: list[Mutant], on_result: Callable[[int, bool], object]) -> None:
        self._trials = trials
        self._mutants = mutants
        self._on_result = on_result
        self._path = str(trials.path)
        self._original = compile(trials.path.read_text(), self._path, "exec", dont_inherit=True)
        self._called: set[CodeType] = set()
        self._took_s: dict[str, float] = defaultdict(float)

    def called(self, frame: FrameType, event: str, _: object) -> None:
        """Record called functions of the module. Python calls this for each call (sys.setprofile)."""
        if event == "call" and frame.f_code.co_filename == self._path:
            self._called.add(frame.f_code)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        sys.setprofile(None)
        functions = self._functions()
        gc.freeze()  # forks share the existing objects
        with tempfile.NamedTemporaryFile() as file:
            self._trials.measured(partial(self._timed, session, file.name))
            took = {node: float(time_s) for node, time_s in json.loads(Path(file.name).read_text()).items()}
        session.items.sort(key=lambda item: took.get(item.nodeid, 0.0))  # most mutants need only the quick ones
        for place, mutant in enumerate(self._mutants):
            changed = self._changed(mutant)
            if changed is None or not all(functions.get(old) for old, _ in changed):
                continue
            killed = self._trials.in_fork(partial(self._changed_tests, changed, functions, session)) != PASSED
            if killed or not any(old in self._called for old, _ in changed):
                self._on_result(place, killed)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            os._exit(FAILED)  # the other tests need not run
        self._took_s[report.nodeid] += report.duration

    def _timed(self, session: pytest.Session, file: str) -> int:
        ended = self._tests(session)
        Path(file).write_text(json.dumps(self._took_s))
        return ended

    def _tests(self, session: pytest.Session) -> int:
        for item, following in zip(session.items, [*session.items[1:], None], strict=True):
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        return PASSED

    def _changed_tests(
        self,
        changed: list[tuple[CodeType, CodeType]],
        functions: dict[CodeType, list[FunctionType]],
        session: pytest.Session,
    ) -> int:
        for old, new in changed:
            for function in functions[old]:
                function.__code__ = new
        return self._tests(session)

    def _functions(self) -> dict[CodeType, list[FunctionType]]:
        """Return the imported functions of the module by their code."""
        found = defaultdict(list)
        for one in gc.get_objects():
            if type(one) is FunctionType and one.__code__.co_filename == self._path:
                found[one.__code__].append(one)
        return found

    def _changed(self, mutant: Mutant) -> list[tuple[CodeType, CodeType]] | None:
        """Return the outermost functions that a mutant changes, before and after; None if it changes other code."""
        mutated = compile(mutant.source, self._path, "exec", dont_inherit=True)
        before, after = [*outermost(self._original)], [*outermost(mutated)]
        if [one.co_qualname for one in before] != [one.co_qualname for one in after]:
            return None
        changed = [(old, new) for old, new in zip(before, after, strict=True) if shape(old) != shape(new)]
        if not changed or any(len(old.co_freevars) != len(new.co_freevars) for old, new in changed):
            return None
        if around(self._original) != around(mutated):
            return None
        return changed


def outermost(code: CodeType) -> Iterator[CodeType]:
    """Yield the functions of a module and of its classes."""
    for const in code.co_consts:
        if isinstance(const, CodeType):
            if const.co_flags & 0x02:  # CO_NEWLOCALS: a function, a lambda or a comprehension
                yield const
            else:
                yield from outermost(const)


def shape(code: CodeType) -> tuple[object, ...]:
    """Return the behaviour of a code object, without its position."""
    consts = tuple(shape(one) if isinstance(one, CodeType) else (type(one), one) for one in code.co_consts)
    return code.co_code, consts, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars


def around(code: CodeType) -> tuple[object, ...]:
    """Return the code that runs at import: the module and its classes, without the bodies of functions."""
    consts = tuple(
        (around(one) if not one.co_flags & 0x02 else one.co_qualname) if isinstance(one, CodeType) else (type(one), one)
        for one in code.co_consts
    )
    return code.co_code, consts, code.co_names


class Planted(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finder of one module with a replaced source."""

    def __init__(self, name: str, path: Path, source: str) -> None:
        self._name, self._path, self._source = name, path, source

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name != self._name:
            return None
        return importlib.util.spec_from_loader(name, self, origin=str(self._path))

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = str(self._path)
        exec(compile(self._source, str(self._path), "exec", dont_inherit=True), module.__dict__)
