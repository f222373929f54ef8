"""A short chaos run with real processes finds nothing, prints its story, and leaves no process behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MARK = "CHAOS_TEST"
LIMIT_S = 300  # on a machine that runs other tests


@pytest.fixture
def home() -> Iterator[Path]:
    """Yield a folder with a short path: a Unix socket's path has at most 107 characters."""
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # PostgreSQL runs as another user
        yield Path(folder)


def started(home: Path, mark: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "chaos", "--clients", "8", "--no-javascript", "--out", str(home / "out"), *arguments],
        env=os.environ
        | {
            "PYTHONPATH": f"{ROOT / 'tests'}{os.pathsep}{ROOT / 'clients' / 'behaviour'}",
            MARK: mark,
            "TMPDIR": str(home),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def left_behind(home: Path, mark: str) -> list[str]:
    """Return the processes of a run, by their environment or their folder. Redis overwrites its environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_marked = f"{MARK}={mark}".encode() in (process / "environ").read_bytes()
            if is_marked or os.readlink(process / "cwd").startswith(str(home)):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue  # it has just ended
    return found


@pytest.mark.timeout(LIMIT_S + 30)
def test_a_short_run_keeps_every_promise_and_leaves_no_process_behind(home: Path) -> None:
    mark = uuid.uuid4().hex
    run = started(home, mark, "--family", "kill", "--faults", "1", "--seed", "1")
    output, _ = run.communicate(timeout=LIMIT_S)
    assert run.returncode == 0, output
    report = json.loads((home / "out" / "figures.json").read_text())
    assert report["incomplete"] == []
    (figures,) = report["families"]
    assert figures["findings"] == []
    (fault,) = figures["faults"]
    assert "kill -9 node" in fault["text"]
    assert fault["healed_s"] is not None
    assert fault["kind"] == "kill"
    assert figures["frames"] > 0
    assert figures["confirmed"] > 0
    # On a fast or a busy machine, perhaps no user goes offline in a run of one fault, or is gone for long enough.
    rare = {"last-seen-true", "no-ghost", "no-flicker", "offline-once", "versions-rise"}
    assert {name for name, count in figures["checked"].items() if not count} <= rare
    assert "kill -9 node" in (home / "out" / "kill.story").read_text()
    assert left_behind(home, mark) == []


@pytest.mark.timeout(LIMIT_S + 30)
def test_an_interrupted_run_leaves_no_process_behind(home: Path) -> None:
    mark = uuid.uuid4().hex
    run = started(home, mark, "--family", "flush")
    end = time.monotonic() + LIMIT_S
    while len(left_behind(home, mark)) < 12:  # the run, proxies, PostgreSQL, its standby, a cluster of six
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < end, left_behind(home, mark)
        time.sleep(0.1)
    run.send_signal(signal.SIGINT)
    output, _ = run.communicate(timeout=LIMIT_S)
    assert run.returncode == 130, output
    end = time.monotonic() + 10
    while left_behind(home, mark):
        assert time.monotonic() < end, left_behind(home, mark)
        time.sleep(0.05)
