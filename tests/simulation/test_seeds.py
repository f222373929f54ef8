"""Simulated clusters under faults keep their promises. `make simulate SEEDS=100000` runs many more seeds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SEEDS = 2_000


@pytest.mark.timeout(900)  # about a minute of processor time, while other tests run
def test_seeds_keep_all_promises() -> None:
    """The order of sets follows from PYTHONHASHSEED, so the seeds run in a process of their own."""
    arguments = ["--seeds", str(SEEDS), "--workers", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "simulation", *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT / "tests"), "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{SEEDS} seeds" in done.stdout
