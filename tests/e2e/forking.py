"""Start of `greendot` by forking a process that has loaded it, in a tenth of the processor time."""

from __future__ import annotations

import asyncio
import atexit
import functools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple, Self

from forked import request

# These variables change the interpreter itself, so the process is not forked.
OF_THE_INTERPRETER = ("LD_PRELOAD", "PYTHONPATH", "PYTHONPROFILEIMPORTTIME")


_spent: list[float] = []


def processor_s() -> float:
    """Return the processor time of all forked processes that have ended."""
    return sum(_spent)


def _end_of(answer: bytes) -> int:
    """Record the processor time of an ended process and return its exit code."""
    code, seconds = (answer or b"-9 0").split()  # no answer: the fork server was killed
    _spent.append(float(seconds))
    return int(code)


class Output(NamedTuple):
    """Reading end of a pipe."""

    reader: asyncio.StreamReader
    transport: asyncio.BaseTransport

    @classmethod
    async def of(cls, file: int) -> Self:
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(file, "rb", 0)
        )
        return cls(reader, transport)


class Forked:
    """Forked process with the methods of asyncio.subprocess.Process."""

    def __init__(self, pid: int, out: Output, err: Output, answers: Output) -> None:
        self.pid = pid
        self.stdout, self.stderr = out.reader, err.reader
        self.returncode: int | None = None
        self._outputs = (out, err)
        self._ending = asyncio.get_running_loop().create_task(self._end(answers))

    async def wait(self) -> int:
        return await asyncio.shield(self._ending)

    async def communicate(self) -> tuple[bytes, bytes]:
        out, err, _ = await asyncio.gather(self.stdout.read(), self.stderr.read(), self.wait())
        for output in self._outputs:
            output.transport.close()
        return out, err

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):  # the process has ended, but the exit code was not read yet
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    async def _end(self, answers: Output) -> int:
        self.returncode = _end_of(await answers.reader.readline())
        answers.transport.close()
        return self.returncode


async def fork(folder: Path, environment: dict[str, str], *arguments: str) -> Forked:
    """Start `greendot ARGUMENT…` in the folder, with pipes for its output."""
    out, to_out = os.pipe()
    err, to_err = os.pipe()
    try:
        link = _asked(folder, environment, arguments, to_out, to_err)
    finally:
        for file in (to_out, to_err):
            os.close(file)
    answers = await Output.of(link.detach())
    return Forked(int(await answers.reader.readline()), await Output.of(out), await Output.of(err), answers)


class Blocking:
    """Forked process with the methods of subprocess.Popen, for tests without an event loop."""

    def __init__(self, folder: Path, environment: dict[str, str], *arguments: str, log: IO[str] | None = None) -> None:
        """Start the process. `stdout` has its output, and standard error too unless there is a `log`."""
        out, to_out = os.pipe()
        try:
            self._link = _asked(folder, environment, arguments, to_out, log.fileno() if log else to_out)
        finally:
            os.close(to_out)
        self.stdout = os.fdopen(out)
        self._answers = self._link.makefile("rb")
        self.pid = int(self._answers.readline())
        self.returncode: int | None = None

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):  # the process has ended, but the exit code was not read yet
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """Wait for the end and return the rest of the output. Raise TimeoutError if the process does not end."""
        said: list[str] = []
        reading = threading.Thread(target=lambda: said.append(self.stdout.read()), daemon=True)
        reading.start()
        self._link.settimeout(timeout)
        self.returncode = _end_of(self._answers.readline())
        reading.join(timeout)
        self.stdout.close()
        self._answers.close()
        self._link.close()
        return "".join(said), None


def _asked(folder: Path, environment: dict[str, str], arguments: tuple[str, ...], out: int, err: int) -> socket.socket:
    """Request a fork. The returned socket receives the process id and later the exit code."""
    link = socket.socket(socket.AF_UNIX)
    link.connect(server())
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        request(link, (nothing, out, err), str(folder), environment, list(arguments))
    finally:
        os.close(nothing)
    return link


@functools.cache
def server() -> str:
    """Return the socket of the fork server, which is started once per test process."""
    folder = tempfile.mkdtemp(prefix="forked")
    path = os.path.join(folder, "socket")
    program = Path(__file__).parents[1] / "forked.py"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GREENDOT_")}
    command = [sys.executable, str(program), "serve", path]
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )

    def end() -> None:
        process.communicate()  # closes its standard input
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    assert process.stdout is not None
    assert process.stdout.readline() == "loaded\n"
    return path
