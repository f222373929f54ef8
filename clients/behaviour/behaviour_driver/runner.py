"""Runner process: a program that drives one client library, with JSON lines on standard input and output."""

from __future__ import annotations

import asyncio
import json
import os
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from typing import Any

LIMIT = 2**22  # bytes of a line
END_S = 10.0


class RunnerError(Exception):
    """Error that the runner answered to a command. `code` is the client's error code."""

    def __init__(self, code: object, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Runner:
    """One runner process. Runs that share it subscribe to the events of their clients."""

    def __init__(self, name: str, command: Sequence[str], environment: dict[str, str] | None = None) -> None:
        self.name = name
        self._listeners: dict[str, Callable[[dict[str, Any]], None]] = {}
        self._command = command
        self._environment = os.environ | (environment or {})
        self._process: Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._last = 0

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=PIPE, stdout=PIPE, env=self._environment, limit=LIMIT
        )
        self._reading = asyncio.create_task(self._read())

    async def stop(self) -> None:
        """Close the runner's input. A runner ends when its input ends; otherwise it is killed."""
        if self._process is None or self._reading is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(END_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await self._reading

    def subscribe(self, suffix: str, listener: Callable[[dict[str, Any]], None]) -> None:
        """Call `listener` with the events of clients whose names end with `suffix`."""
        self._listeners[suffix] = listener

    def unsubscribe(self, suffix: str) -> None:
        self._listeners.pop(suffix, None)

    async def call(self, do: str, **fields: Any) -> dict[str, Any]:
        """Send a command and return the fields of its answer. Raise RunnerError if it failed."""
        self._last += 1
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[self._last] = future
        self.send(id=self._last, do=do, **fields)
        return await future

    def send(self, **line: Any) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(line).encode() + b"\n")

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            self._received(line)
        code = await self._process.wait()
        for future in self._answers.values():
            if not future.done():
                future.set_exception(RunnerError("ended", f"the runner {self.name} ended with exit code {code}"))

    def _received(self, line: bytes) -> None:
        try:
            value = json.loads(line)
            suffix = "." + str(value.get("client", "")).rpartition(".")[2]
        except (ValueError, AttributeError):
            for listener in tuple(self._listeners.values()):
                listener({"event": "unreadable", "line": line.decode(errors="replace")})
            return
        if "event" in value:
            if suffix in self._listeners:
                self._listeners[suffix](value)
            return
        future = self._answers.pop(value.get("id"), None)
        if future is None or future.done():
            return
        if "error" in value:
            future.set_exception(RunnerError(value["error"].get("code"), str(value["error"].get("message"))))
        else:
            future.set_result(value.get("ok") or {})
