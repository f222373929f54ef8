"""Quickstart of the README, against a server that was started by any command."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue

from release.artefacts import Failed, run

ADDRESS = re.compile(r"Open  (http://127\.0\.0\.1:\d+)/")
START_S = 240.0  # uvx and pipx install Greendot first
ANSWER_S = 30.0
PAGES = ("/", "/app.js", "/greendot.js", "/admin", "/openapi.json")


class Lines:
    """Output of a process, line by line, with a time limit for each wait."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._queue: Queue[str | None] = Queue()
        self._seen: list[str] = []
        self._reader = threading.Thread(target=self._read, args=(process,), daemon=True)
        self._reader.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self._queue.put(line)
        self._queue.put(None)

    def close(self) -> None:
        """Wait until all output of an ended process has been read."""
        self._reader.join(timeout=10)

    def rest(self) -> str:
        """Return all output of an ended process."""
        self.close()
        while not self._queue.empty():
            self._seen.append(self._queue.get() or "")
        return "".join(self._seen)

    def until(self, pattern: re.Pattern[str], within_s: float) -> re.Match[str]:
        """Return the first match. Raise Failed with the output if the process ends, or is silent for too long."""
        while True:
            try:
                line = self._queue.get(timeout=within_s)
            except Empty:
                line = None
            if line is None:
                raise Failed(f"{pattern.pattern!r} was not printed, but:\n{''.join(self._seen)}")
            self._seen.append(line)
            if found := pattern.search(line):
                return found


@contextmanager
def running(*command: str | Path, cwd: Path, **environment: str) -> Iterator[Lines]:
    """Run a program, and end it with its children: uvx and pipx start the server as a child."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("GREENDOT_", "PYTHONPATH"))}
    process = subprocess.Popen(
        [str(part) for part in command],
        cwd=cwd,
        env=clean | {"PYTHONUNBUFFERED": "1"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    lines = Lines(process)
    try:
        yield lines
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        lines.close()


@contextmanager
def serving(*greendot: str | Path, cwd: Path, **environment: str) -> Iterator[str]:
    """Start `serve --dev` with this command for `greendot`, on a free port. Yield the server's address."""
    cwd.mkdir(parents=True, exist_ok=True)
    with running(*greendot, "serve", "--dev", "--port", "0", cwd=cwd, **environment) as lines:
        yield lines.until(ADDRESS, START_S)[1]


def fetch(url: str) -> bytes:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=ANSWER_S) as answer:
        content: bytes = answer.read()
        return content


def readme_programs(python: Path, address: str, cwd: Path) -> list[str]:
    """Return the programs of the README that is installed with this Python's package, for a server."""
    command = "from importlib.metadata import metadata; print(metadata('greendot').get_payload())"
    text = run(python, "-X", "utf8", "-c", command, cwd=cwd, PYTHONPATH="")
    programs: list[str] = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    if len(programs) != 2:
        raise Failed(f"the installed README has {len(programs)} programs in Python, not one of a client and a backend")
    return [program.replace("127.0.0.1:8000", address.removeprefix("http://")) for program in programs]


def run_readme(python: Path, address: str, cwd: Path) -> None:
    """Run the programs of the installed README with this Python, for a server with its data in `cwd`.

    The client runs as two users, and the first must receive the message of the second. The backend must notify.
    """
    client, backend = readme_programs(python, address, cwd)
    own = re.compile(r"room\.message \{'text': 'hello'\}")
    with running(python, "-c", client, cwd=cwd) as carol:
        carol.until(own, ANSWER_S)
        with running(python, "-c", client.replace("carol", "dave"), cwd=cwd) as dave:
            dave.until(own, ANSWER_S)
            carol.until(own, ANSWER_S)
    shown = "print(token.count('.'), [entry.body for entry in server.inbox('alice').notifications])\n"
    with running(python, "-c", backend + shown, cwd=cwd) as lines:
        lines.until(re.compile(r"2 \[\{'order': 17\}\]"), ANSWER_S)


def try_server(python: Path, address: str, cwd: Path) -> None:
    """Fetch the pages of a server that was started in `cwd`, and run the installed README."""
    for page in PAGES:
        if not fetch(address + page):
            raise Failed(f"{page} of {address} is empty")
    run_readme(python, address, cwd)
