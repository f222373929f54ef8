"""Real server in its own process for Hypothesis, and checks after each example."""

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
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "120"))  # `make fuzz` uses many more
MOST_GROWN_KB = 8 * 1024  # for caches and the allocator; one example would exceed it if its data were kept
PATIENCE_S = 20.0
CALM = {
    # Limits and overload are off: this test does not check them.
    "GREENDOT_LIMITS_ENABLED": "false",
    "GREENDOT_OVERLOAD_LAG_S": "10",
    "GREENDOT_OVERLOAD_BUS_LAG_S": "10",
    # Lingering sessions take memory. With a short grace they do not distort the measurement.
    "GREENDOT_PRESENCE_GRACE_S": "1",
    "GREENDOT_PRESENCE_CLEAN_GRACE_S": "1",
}
# Texts from inside the source or the machine.
TELLTALE = re.compile(rb'Traceback|File "|line \d+, in |\.py\b|site-packages|/src/|greendot[./]|object at 0x|msgspec\.')

fuzzing = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def tells_nothing(answer: bytes, asked: bytes) -> None:
    """Check that the answer contains no stack trace, path or internal name, unless the request contained it."""
    found = {match[0] for match in TELLTALE.finditer(answer)}
    assert {text for text in found if text not in asked} == set(), answer[:2_000]


class Live:
    """Server for synchronous tests: Hypothesis calls plain functions, and coroutines run on a loop that stops in
    between.
    """

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
        """Check the memory; call this with each example.

        The baseline is taken after a third of the examples. By then all code was used and, in a long run, the first
        timers have expired.
        """
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
        assert self._least_kb, "memory was never measured; there were too few examples"
