"""Node.js and the tools of the JavaScript clients, installed when a test first needs them."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

from e2e.forking import server as forks

CLIENTS = Path(__file__).parents[2] / "clients"
OLDEST_NODE = 20


@cache
def installed() -> None:
    """Install node_modules by package-lock.json. Skip the test if that is not possible; fail in CI."""
    found = shutil.which("node") and _said("node", "--version")
    version = re.match(r"v(\d+)", found or "")
    if version is None or int(version[1]) < OLDEST_NODE or not shutil.which("npm"):
        _cannot(f"the JavaScript clients need Node {OLDEST_NODE} or newer and npm; there is {found or 'no Node'}")
    wanted, there = CLIENTS / "package-lock.json", CLIENTS / "node_modules" / ".package-lock.json"
    with wanted.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests in other processes need it as well
        if there.exists() and there.stat().st_mtime >= wanted.stat().st_mtime:
            return
        result = subprocess.run(["npm", "ci"], cwd=CLIENTS, capture_output=True, text=True, timeout=300)
        if result.returncode:
            _cannot(f"npm ci in clients/ failed: {result.stderr.strip()[-500:]}")
        there.touch()


def npm(workspace: str, *arguments: str, timeout_s: float = 400) -> str:
    """Run a workspace's script with this test's Python and return its output. Fail the test if the script fails."""
    installed()
    command = ["npm", "run", "--silent", "--workspace", workspace, *arguments]
    environment = os.environ | {"GREENDOT_PYTHON": sys.executable, "GREENDOT_FORKS": forks(), "NO_COLOR": "1"}
    result = subprocess.run(
        command,
        cwd=CLIENTS,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout_s,
    )
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout[-8000:]}"
    return result.stdout


@cache
def wrong_types(*projects: str | Path) -> dict[str, list[str]]:
    """Return the type errors that clients/check.mjs finds in each package or tsconfig.json, in one process for all."""
    installed()
    command = ["node", "check.mjs", "--json", *map(str, projects)]
    result = subprocess.run(command, cwd=CLIENTS, capture_output=True, text=True, timeout=150)
    assert result.stdout.startswith("{"), result.stderr
    found: dict[str, list[str]] = json.loads(result.stdout)
    return found


def _said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=30).stdout.strip()


def _cannot(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
