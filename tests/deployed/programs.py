"""External programs of this machine. Without one the test is skipped; in CI it fails."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from redis_servers.process import program as needed

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def program(name: str) -> str:
    """Return the path of a program; folders of administrators are searched as well."""
    return needed(name, shutil.which(name, path=os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])))


def said(*command: str | Path, cwd: Path | None = None, **environment: str) -> str:
    """Run a program and return its output; fail the test if the program fails."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr
