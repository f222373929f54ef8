"""Machine with only Python, make and a C compiler: missing tools are reported, and the demo is served.

`make fresh` measures the time with all installations.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deployed.programs import ROOT, program, said

WANTED = [
    "chromium-without-windows|chromium",
    "redis-server",
    "nginx=/usr/sbin/nginx-that-is-not-there",
    "postgresql=/usr/lib/postgresql-that-is-not-there",
    "sh",
    "sh-that-is-not-there|sh",
]


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """Return a PATH without apt and with few other programs."""
    for name in ("sh", "id"):
        (tmp_path / name).symlink_to(program(name))
    return tmp_path


def ensured(path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [str(path / "sh"), str(ROOT / "scripts" / "ensure-debs"), *WANTED]
    return subprocess.run(
        command, env={"PATH": str(path)} | environment, capture_output=True, text=True, timeout=20, check=False
    )


def test_a_program_that_cannot_be_installed_is_reported_and_skipped(bare: Path) -> None:
    done = ensured(bare)
    assert (done.returncode, done.stderr) == (0, "")
    words = "is missing and cannot be installed here: everything that needs it is skipped"
    assert done.stdout.splitlines() == [
        f"→ {name} {words}" for name in ("chromium", "redis-server", "nginx", "postgresql")
    ]


def test_in_ci_it_is_a_failure(bare: Path) -> None:
    done = ensured(bare, CI="true")
    assert done.returncode == 1
    assert "chromium is required in CI" in done.stderr


@pytest.mark.parametrize("ci", ["", "true"])
def test_a_skip_is_one_line_with_its_reason_and_in_ci_a_failure(ci: str) -> None:
    tests = [sys.executable, "-m", "pytest", "tests/unit/cli/test_completion.py", "-k", "bash_completes_commands"]
    environment = {"PATH": "", "CI": ci}
    done = subprocess.run(tests, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=50)
    (reason,) = [line for line in done.stdout.splitlines() if "bash is not installed on this machine" in line]
    if ci:
        assert (done.returncode, "1 failed" in done.stdout) == (1, True)
        assert "skipped, but CI allows no skips" in reason
    else:
        assert (done.returncode, "1 skipped" in done.stdout) == (0, True)
        assert reason.startswith("SKIPPED [1]")


def test_make_serve_in_a_fresh_clone_needs_nothing_else(tmp_path: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this folder is not a git clone")
    program("git")
    # Installation is skipped: the clone uses the environment of this test.
    told = said(
        sys.executable, ROOT / "scripts" / "fresh-clone", "--within", "40", "--venv", sys.prefix, TMPDIR=str(tmp_path)
    )
    assert "/, /app.js, /admin, /openapi.json answered" in told
    assert not os.listdir(tmp_path)  # nothing is left behind
