"""Processes of a benchmark: pinned to a core and always ended."""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

READY_WITHIN_S = 20
END_WITHIN_S = 5
_libc = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Trouble(Exception):
    """Problem that makes the figures impossible or invalid. The message is a sentence for the user."""


@dataclass(frozen=True)
class Access:
    """Secrets of one run. All servers share them, so that tokens are signed once."""

    auth_secret: str = field(default_factory=lambda: secrets.token_hex(32))
    api_key: str = field(default_factory=lambda: secrets.token_hex(16))


Cores = int | set[int] | None  # cores of a process; None: those of its parent


def spawn(command: Sequence[object], core: Cores, **how: Any) -> subprocess.Popen[str]:
    """Start `command` on `core` in its own session. Ctrl-C reaches only the driver, which ends its children."""

    def settle() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a killed driver cannot end its children
        if core is not None:
            os.sched_setaffinity(0, {core} if isinstance(core, int) else core)

    words = [str(word) for word in command]
    try:
        return subprocess.Popen(words, start_new_session=True, preexec_fn=settle, text=True, **how)
    except OSError as error:
        raise Trouble(f"{words[0]} cannot be started: {error.strerror}.") from None


def end(process: subprocess.Popen[str]) -> None:
    """End `process` and its children: with a request first, then, or after an interrupt, by force."""
    try:
        _signal(process, signal.SIGTERM)
        process.wait(END_WITHIN_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        _signal(process, signal.SIGKILL)
        process.wait(END_WITHIN_S)


def _signal(process: subprocess.Popen[str], number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        pass


@dataclass(frozen=True)
class Server:
    """Running server: Greendot or a peer."""

    process: subprocess.Popen[str]
    port: int
    access: Access
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def request(self, method: str, path: str, body: object = None) -> int:
        """Send an HTTP request and return its status; 0 without an answer."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.access.api_key}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=5) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def rss_bytes(self) -> int:
        pages = (Path(f"/proc/{pid}/statm").read_text().split()[1] for pid in self._pids())
        return sum(int(count) * _PAGE_BYTES for count in pages)

    def waited_s(self) -> float:
        """Return the seconds in which the first thread waited for a processor that other programs used."""
        file = Path(f"/proc/{self.pid}/schedstat")  # not on every kernel
        return int(file.read_text().split()[1]) / 1e9 if file.exists() else 0.0

    def cpu_s(self) -> float:
        """Return the CPU seconds of all threads so far, in user and kernel mode."""
        total = 0
        for pid in self._pids():
            # Parsed after the process name, which may contain spaces.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
        return total / _TICKS_PER_S

    def _pids(self) -> Iterator[int]:
        waiting = [self.pid]
        while waiting:
            pid = waiting.pop()
            yield pid
            waiting += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())

    def last_words(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-15:]
        return "\n".join(f"    {line}" for line in lines) or "    (no output)"


@contextmanager
def greendot(
    command: Sequence[str],
    access: Access,
    folder: Path,
    core: Cores,
    engine: str = "memory",
    workers: int = 1,
    store: str | None = None,
    **more: str,
) -> Iterator[Server]:
    """Start a server with an empty database and the open room `bench`. It is stopped at the end."""
    folder.mkdir()
    port = free_port()
    place = store or f"sqlite:///{folder / 'bench.db'}"
    flags = ["--host", "127.0.0.1", "--port", port, "--engine", engine, "--store", place]
    flags += ["--workers", workers] if workers > 1 else []
    # Settings from the environment or the current folder must not affect the figures.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GREENDOT_")}
    environment |= {
        "GREENDOT_AUTH_SECRET": access.auth_secret,
        "GREENDOT_API_KEY": access.api_key,
        "GREENDOT_DOOR_CONNECTIONS_PER_IP": "0",  # all clients have the same address
        "GREENDOT_LIMITS_ENABLED": "false",
        "GREENDOT_LIMITS_USER_CONNECTIONS": "0",
        "GREENDOT_STORE_MIGRATE": "true",
    } | more
    log = folder / "server.log"
    with log.open("w") as output:
        process = spawn(
            [*command, *flags], core, cwd=folder, env=environment,
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
    server = Server(process, port, access, log)
    try:
        _await_ready(server)
        yield server
    except Trouble as trouble:
        if process.poll() is None:
            raise
        ended = f"The server had ended with exit code {process.returncode}"
        raise Trouble(f"{trouble} {ended}; its last output:\n{server.last_words()}") from None
    finally:
        end(process)


def _await_ready(server: Server) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    while server.request("GET", "/readyz") != 200:
        if server.process.poll() is not None:
            raise Trouble("The server did not start.")
        if time.monotonic() > deadline:
            late = f"The server was not ready within {READY_WITHIN_S} s (GET /readyz)"
            raise Trouble(f"{late}; its last output:\n{server.last_words()}")
        time.sleep(0.1)
    status = server.request("PUT", "/v1/rooms/bench", {"open": True})
    if status not in (200, 201, 204):
        raise Trouble(f"The room could not be created: PUT /v1/rooms/bench returned {status}.")


@contextmanager
def rawcast(program: Path, frame_bytes: int, folder: Path, core: Cores) -> Iterator[Server]:
    """Start the raw C broadcaster."""
    process = spawn([program, frame_bytes], core, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        said = process.stdout.readline().split()
        if len(said) != 2:
            raise Trouble("The raw C broadcaster did not start.")
        yield Server(process, int(said[1]), Access(), folder)
    finally:
        end(process)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
