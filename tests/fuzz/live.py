"""A real server in a process of its own, which Hypothesis has its way with, and what must be true of it afterwards."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import uvloop
from hypothesis import HealthCheck, settings

from e2e.processes import Process, running, serves_a_fresh_client

T = TypeVar("T")
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "120"))  # `make fuzz` asks for many more
MOST_GROWN_KB = 8 * 1024  # what caches and the allocator may take; one example would do if what it sent were kept
PATIENCE_S = 20.0
CALM = {
    # Who floods is refused and closed, and a busy machine sheds, but that is not what is tried here.
    "GREENDOT_LIMITS_ENABLED": "false",
    "GREENDOT_OVERLOAD_LAG_S": "10",
    "GREENDOT_OVERLOAD_BUS_LAG_S": "10",
    # Sessions linger, and take memory as long: hundreds in a second would be measured, not what is kept.
    "GREENDOT_PRESENCE_GRACE_S": "1",
    "GREENDOT_PRESENCE_CLEAN_GRACE_S": "1",
}
# What only somebody who reads our source, or our machine's disk, would know.
TELLTALE = re.compile(rb'Traceback|File "|line \d+, in |\.py\b|site-packages|/src/|greendot[./]|object at 0x|msgspec\.')

fuzzing = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def tells_nothing(answer: bytes, asked: bytes) -> None:
    """No stack trace, path or name from inside is in an answer, unless it was in the question."""
    found = {match[0] for match in TELLTALE.finditer(answer)}
    assert {text for text in found if text not in asked} == set(), answer[:2_000]


class Live:
    """The server. Hypothesis calls plain functions: what waits is done on a loop that stands still in between."""

    def __init__(self, folder: Path, *flags: str, **environment: str) -> None:
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._stack = AsyncExitStack()
        self._running = running(folder, *flags, **CALM | environment)
        self._least_kb = 0
        self._rounds = 0

    def __enter__(self) -> Self:
        self._runner.__enter__()
        try:
            self.server: Process = self.do(self._stack.enter_async_context(self._running))
        except BaseException:
            self._runner.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.do(self._is_unharmed())
        finally:
            self.do(self._stack.aclose())
            self._runner.close()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        async def bounded() -> T:
            async with asyncio.timeout(PATIENCE_S):
                return await work

        return self._runner.run(bounded())

    def has_not_grown(self) -> None:
        """To be called with every example. What comes after a third of them is compared with what was taken by then:
        by that time all was used and, in a long run, the timers of the first have run out."""
        self._rounds += 1
        if self._rounds == EXAMPLES // 3:
            self._least_kb = self.server.resident_kb
        elif self._least_kb:
            assert self.server.resident_kb - self._least_kb < MOST_GROWN_KB

    async def _is_unharmed(self) -> None:
        await serves_a_fresh_client(self.server.port, self.server.token("newcomer"))
        self.server.signal(signal.SIGTERM)
        ended = await self.server.ended()
        assert (ended.code, "Traceback" in ended.err) == (0, False), ended.err[-5_000:]
        assert self._least_kb, "memory was never measured"
