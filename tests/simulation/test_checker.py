"""Checks of the simulation itself: seeds replay, failing seeds are shrunk, and planted faults are found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.engine import BusFaults
from simulation.mutants import MUTANTS, planted
from simulation.plans import Plan, Step, draw
from simulation.trial import run, shrink, tell

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
