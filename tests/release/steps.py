"""Programs that the steps of a release run, and their failures."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


class Failed(Exception):
    """A step of the release failed. The text has the command and its output."""


def run(*command: str | Path, cwd: Path = ROOT, timeout_s: float = 600, **environment: str) -> str:
    """Run a program and return its output. Raise Failed if it fails."""
    words = [str(part) for part in command]
    # scripts/ensure-node installs Node.js here, if the machine has none.
    path = {"PATH": f"{Path(sys.prefix, 'node')}:{os.environ['PATH']}"}
    try:
        done = subprocess.run(
            words, cwd=cwd, env=os.environ | path | environment, capture_output=True, text=True, timeout=timeout_s
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(f"{' '.join(words)}: {error}") from None
    if done.returncode:
        raise Failed(f"{' '.join(words)} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout
