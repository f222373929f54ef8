"""Start `greendot` by forking a process that has loaded it: a server is ready in a tenth of the processor time."""

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
from pathlib import Path
from typing import NamedTuple, Self

from forked import request

# These change the interpreter itself, so a process with them is not forked.
OF_THE_INTERPRETER = ("LD_PRELOAD", "PYTHONPATH", "PYTHONPROFILEIMPORTTIME")


class Output(NamedTuple):
    """The reading end of a pipe."""

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
    """A forked process, with the methods of asyncio.subprocess.Process."""

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
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    async def _end(self, answers: Output) -> int:
        self.returncode = int(await answers.reader.readline() or b"-9")  # nothing: the server of forks was killed
        answers.transport.close()
        return self.returncode


async def fork(folder: Path, environment: dict[str, str], *arguments: str) -> Forked:
    """Start `greendot ARGUMENT…` there, with pipes for what it prints."""
    link = socket.socket(socket.AF_UNIX)
    link.connect(server())
    out, to_out = os.pipe()
    err, to_err = os.pipe()
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        request(link, (nothing, to_out, to_err), str(folder), environment, list(arguments))
    finally:
        for file in (nothing, to_out, to_err):
            os.close(file)
    answers = await Output.of(link.detach())
    return Forked(int(await answers.reader.readline()), await Output.of(out), await Output.of(err), answers)


@functools.cache
def server() -> str:
    """The socket of a process that forks, started once for all tests of this process."""
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
