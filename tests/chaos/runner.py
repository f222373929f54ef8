"""Run of one family: start everything, cause faults until the time is over, compare, and collect the figures."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

from msgspec import Struct

from chaos.checker import GONE_S, INVARIANTS, LEASE_S, PERIODS, Checker, Finding
from chaos.crowd import Crowd, Problem
from chaos.families import EXPECTED_ERRORS, FAMILIES, Fault, impossible
from chaos.story import Story
from chaos.world import World

HEAL_S = LEASE_S + PERIODS.grace_s + GONE_S + 60.0  # bound, on a busy machine
POLL_S = 0.2
PROGRESS_S = 10.0
STALL_S = 1.0  # the machine is too busy if a step of 50 ms takes this long


class Options(Struct, frozen=True):
    """Options of a run."""

    minutes: float
    seed: int
    clients: int = 120
    engine: str = "cluster"
    most_faults: int = 0  # 0: as many as fit into the time
    javascript: bool = True


class Measured(Struct):
    """Figures of one fault."""

    at: float
    kind: str
    text: str
    detected_s: float | None
    detected_by: str
    healed_s: float | None
    seen: dict[str, int]
    longest: dict[str, float]


class Figures(Struct):
    """Figures of a family."""

    family: str
    seed: int
    engine: str
    clients: dict[str, int]  # by kind of client
    minutes: float  # of the faults, without the start of the servers
    faults: list[Measured]
    findings: list[Finding]
    allowed: dict[str, int]
    between: dict[str, int]  # seen between the faults, when everything was in step
    checked: dict[str, int]  # invariant → comparisons
    frames: int
    confirmed: int  # messages and notifications
    seconds: float

    def summary(self) -> dict[str, Any]:
        """Return the row of the table."""
        detected = [fault.detected_s for fault in self.faults if fault.detected_s is not None]
        healed = [fault.healed_s for fault in self.faults if fault.healed_s is not None]
        return {
            "family": self.family,
            "faults": len(self.faults),
            "detected": _spread(detected),
            "healed": _spread(healed),
            "wrong": len(self.findings),
            "allowed": sum(self.allowed.values()),
            "lost": sum(fault.seen.get("connections lost", 0) for fault in self.faults),
            "away": max((fault.longest.get("time without a connection", 0.0) for fault in self.faults), default=0.0),
            "late": max((fault.longest.get("message delay", 0.0) for fault in self.faults), default=0.0),
        }


def _spread(values: list[float]) -> str:
    return f"{median(values):.1f} / {max(values):.1f}" if values else "–"


class Report(Struct):
    """Figures of all families of a run, as build/chaos/figures.json has them."""

    date: str
    commit: str
    machine: str
    command: str
    families: list[Figures]
    incomplete: list[str]  # families that ended because of a mistake of this program


class Run:
    """One family on its own servers."""

    def __init__(self, family: str, options: Options, folder: Path, story: Story) -> None:
        self.family, self.options, self.story = family, options, story
        self.random = random.Random(f"{family} {options.seed}")
        self.checker = Checker(story)
        self.world = World(folder, story, options.engine, clocks=family in ("clock", "mix"))
        self.crowd: Crowd
        self.measured: list[Measured] = []
        self._between: Counter[str] = Counter()
        self._minutes = 0.0
        self._waiting_for = ""

    async def run(self) -> Figures:
        began = time.time()
        options = self.options
        self.story.show("RUN", f"{self.family}, seed {options.seed}: starting the servers")
        async with self.world:
            self.crowd = Crowd(self.world, self.checker, options.seed, options.clients, options.javascript)
            self.story.show("RUN", f"servers are up after {time.time() - began:.0f} s; {options.clients} users come")
            async with self.crowd.living(), asyncio.TaskGroup() as group:
                watch = group.create_task(self._watch())
                await self._in_step("at the start")
                await self._faults()
                await self.crowd.quiet(60.0)
                await self._in_step("at the end")
                await self.crowd.recount()
                watch.cancel()
        for event, error in self.world.errors:
            if event in EXPECTED_ERRORS.get(self.family, ()):
                self.checker.allowed[f"the log names the fault itself: {event}"] += 1
            else:
                self.checker.fail("no-error", error[:2000])
        return self._figures(round(time.time() - began, 1))

    def _figures(self, seconds: float) -> Figures:
        checker, options = self.checker, self.options
        return Figures(
            *(self.family, options.seed, options.engine),
            dict(Counter(device.kind for device in self.crowd.everybody)),
            *(round(self._minutes, 1), self.measured, checker.findings, dict(checker.allowed), dict(self._between)),
            {name: checker.checked[name] for name in INVARIANTS},
            *(checker.frames, len(checker.records.confirmed) + sum(self.crowd.notified.values()), seconds),
        )

    async def _faults(self) -> None:
        """Cause faults until the time is over."""
        began = time.monotonic()
        self.checker.reset()
        while time.monotonic() < began + self.options.minutes * 60 and not self._is_enough():
            await asyncio.sleep(2.0 + self.random.random() * 3)
            await self._fault()
        self._minutes = (time.monotonic() - began) / 60

    def _is_enough(self) -> bool:
        return 0 < self.options.most_faults <= len(self.measured)

    # --- a fault ---

    async def _fault(self) -> None:
        name = self.family if self.family != "mix" else self.random.choice(_mixed(self.options.engine))
        fault = Fault(self.world, self.checker, self.story, self.random)
        self._between.update(self.checker.seen)
        self.checker.reset()
        self.checker.fault_began()
        detecting = asyncio.create_task(self._detect(fault))
        try:
            await FAMILIES[name](fault)
            fault.lifted()
            assert fault.began is not None
            assert fault.lifted_at is not None
            healed_s = await self._healed(fault.lifted_at)
        finally:
            detecting.cancel()
            fault.healed()
            self.checker.fault_ended()
        self.checker.checked.update(("heals", "stays-up", "no-error"))
        found = await asyncio.gather(detecting, return_exceptions=True)
        detected_s, sign = found[0] if isinstance(found[0], tuple) else (None, "nothing was noticed")
        longest = {kind: round(seconds, 2) for kind, seconds in self.checker.longest.items()}
        at = fault.began - self.story.began
        seen = {what: count for what, count in self.checker.seen.items() if count}
        self.measured.append(Measured(at, fault.kind, fault.text, detected_s, sign, healed_s, seen, longest))
        self.checker.reset()
        detected = "" if detected_s is None else f"detected after {detected_s:.2f} s ({sign}), "
        effects = ", ".join(f"{count} {what}" for what, count in sorted(seen.items()))
        healed = "NOT HEALED" if healed_s is None else f"healed {healed_s:.2f} s after its end"
        self.story.show("HEALED", f"{detected}{healed}; {effects or 'nothing to see'}; {longest}")

    async def _detect(self, fault: Fault) -> tuple[float, str]:
        """Wait for the first sign of a fault: a log line, a lost connection, or a node that is not ready."""
        logged = len(self.world.logged)
        while True:
            if fault.began is not None:
                if len(self.world.logged) > logged:
                    at, node, event = self.world.logged[logged]
                    return max(0.0, at - fault.began), f"{node} logs {event}"
                if self.checker.seen["connections lost"]:
                    return time.time() - fault.began, "clients lose connections"
            await asyncio.sleep(0.02)

    async def _healed(self, since: float) -> float | None:
        """Wait until everything is in step; return the seconds since then, or None after the bound."""
        problems: list[Problem] = [("heals", "not compared yet")]
        end = time.monotonic() + HEAL_S
        while True:
            problems = await self.crowd.problems()
            if not problems:
                healed_s = time.time() - since
                problems = await self.crowd.probe()
                if not problems:
                    return round(healed_s, 2)
            if problems and str(problems[0]) != self._waiting_for:
                self._waiting_for = str(problems[0])
                self.story.add("RUN", f"not in step: {len(problems)}, first {problems[0][1]}")
            if time.monotonic() > end:
                for invariant, text in problems[:10]:
                    self.checker.fail(invariant, f"{HEAL_S:.0f} s after the fault: {text}")
                return None
            await asyncio.sleep(POLL_S)

    async def _in_step(self, when: str) -> None:
        took = await self._healed(time.time())
        self.story.show("RUN", f"all in step {when}" if took is not None else f"NOT in step {when}")

    # --- continuous watch ---

    async def _watch(self) -> None:
        """Read logs, notice ended nodes, and print progress."""
        shown = time.monotonic()
        looked, logged = time.time(), 0
        while True:
            self.world.read_logs()
            now = time.time()
            if now - looked > STALL_S or len(self.world.logged) > logged:
                # Without a fault too: other programs may hold the processors.
                self.checker.disturbances.append((looked - STALL_S, now + STALL_S))
            looked, logged = now, len(self.world.logged)
            for node in self.world.nodes:
                if node.is_expected and not node.is_running:
                    node.is_expected = False
                    self.checker.fail("stays-up", f"{node} has ended:\n{node.log.read_text(errors='replace')[-1500:]}")
            for error in self.crowd.failed():
                raise RuntimeError(f"a driver failed: {error}")
            if time.monotonic() - shown > PROGRESS_S:
                shown = time.monotonic()
                ready = sum(device.is_ready for device in self.crowd.everybody)
                text = f"{len(self.measured)} faults, {ready} clients connected, {self.checker.frames} frames checked"
                self.story.show("RUN", f"{text}, {len(self.checker.findings)} findings")
            await asyncio.sleep(0.05)


def _mixed(engine: str) -> list[str]:
    return [family for family in FAMILIES if impossible(family, engine) is None]
