"""Checks of the simulation itself: seeds replay, failing seeds are shrunk, and planted faults are found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from simulation.engine import BusFaults
from simulation.mutants import MUTANTS, planted
from simulation.plans import Plan, Step, draw
from simulation.promises import Broken, Promises
from simulation.trial import run, shrink, tell

if TYPE_CHECKING:
    from simulation.clients import Contact
    from simulation.nodes import World

ROOT = Path(__file__).parents[2]
FIND_WITHIN = 60  # seeds for the faults of `QUICK`; `make simulate ARGS="--mutants 5000"` plants all


def _simulation(*arguments: str, hash_seed: str = "0") -> str:
    done = subprocess.run(
        [sys.executable, "-m", "simulation", *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT / "tests"), "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_seed_replays_exactly() -> None:
    for seed in (3, 11, 14):
        plan = draw(seed)
        first, again = run(plan), run(plan)
        assert first.story == again.story
        assert first.digest == again.digest
        assert len(first.story) > 10


def test_a_seed_replays_exactly_in_another_process() -> None:
    """The runner starts itself again with a fixed order of sets, whatever the order is here."""
    code = "from simulation.__main__ import chunk; print(chunk(20, 24)[1])"
    digests = set()
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONPATH": str(ROOT / "tests"), "PYTHONHASHSEED": "0"},
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(done.stdout)
    assert len(digests) == 1
    assert "1 seeds" in _simulation("--first", "5", "--seeds", "1", "--workers", "1", hash_seed="random")


@pytest.mark.timeout(300)
def test_planted_faults_are_found() -> None:
    found = _simulation("--mutants", str(FIND_WITHIN), "--quick")
    assert "NOT FOUND" not in found, found
    assert len(MUTANTS) >= 40


def test_a_failing_seed_is_shrunk_to_a_short_story() -> None:
    steps = (
        Step(0.5, "come", 0, (0,)),
        Step(0.7, "come", 1, (0,)),
        Step(2.0, "flush", 0, ()),
        Step(6.0, "type", 1, (1.0, True)),
        Step(20.0, "drop", 0, (0.0, 10.0)),
        Step(25.0, "stall", 1, (0.5,)),
    )
    plan = Plan(7, 2, (0, 1, 1), BusFaults(twice=0.1), steps, 25.0)
    assert run(plan).broken is None
    with planted("no grace"):
        broken = run(plan).broken
        assert broken is not None
        assert broken.invariant == "no-flicker"
        shorter = shrink(plan, "no-flicker")
        assert [step.verb for step in shorter.steps] == ["come", "come", "drop"]
        assert len(shorter.owners) == 2
        story = tell(shorter, run(shorter))
    assert "loses its socket" in story
    assert "CHECKER" in story


@pytest.mark.parametrize(("came_s", "wrong"), [(1.0, []), (2.0, ["no-flicker"])])
def test_a_change_may_be_on_its_way_after_a_state_without_a_time(came_s: float, wrong: list[str]) -> None:
    now, found = 1_100.0, list[Broken]()
    world = SimpleNamespace(universe=SimpleNamespace(now=now))
    promises = Promises(cast("World", world), ["u0"], found.append)
    contact = SimpleNamespace(
        device=SimpleNamespace(user="u0"), node=None, welcomed_at=now - came_s, ended_at=None, superseded_at=None,
        last_frame_at=now, how="",
    )  # fmt: skip
    promises.contacts.append(cast("Contact", contact))
    entry = {"user": "u0", "state": "offline", "since": None, "last_seen": None, "version": 7}
    promises._offline("u0", entry, "u1/d1 gets it")
    assert [broken.invariant for broken in found] == wrong


def _twice_away(verb: str, gap_s: float, again: str) -> Plan:
    """Return a plan in which a node is away for 22 s, and after `gap_s` for 60 s. A user is on each of two nodes."""
    steps = (
        Step(0.5, "come", 0, (0,)),
        Step(0.7, "come", 1, (1,)),
        Step(27.8, verb, 0, (22.0,)),
        Step(49.8 + gap_s, again, 0, (60.0,)),
    )
    return Plan(7, 2, (0, 1), BusFaults(lag_s=0.02), steps, steps[-1].at)


def test_a_node_that_falls_sick_again_before_it_can_have_restored_its_sessions_was_away_all_the_time() -> None:
    story = run(_twice_away("cut", 0.05, "pause")).story
    assert any("presence.changed u1 offline" in line for line in story)
    assert run(_twice_away("cut", 0.05, "pause")).broken is None
    assert run(_twice_away("cut", 3.0, "pause")).broken is None
    with planted("a new node name is not used"):  # so the sessions are not restored, however long the node is back
        broken = run(_twice_away("cut", 3.0, "pause")).broken
    assert broken is not None
    assert broken.invariant == "no-flicker"


def test_a_node_that_is_cut_off_while_it_gets_a_new_name_gets_one_later() -> None:
    """Each delay of the cut hits another step. With a name that its sessions do not use, its user stays offline."""
    for gap_ms in range(0, 120, 4):
        result = run(_twice_away("pause", gap_ms / 1000, "cut"))
        assert result.broken is None, (gap_ms, result.broken)
