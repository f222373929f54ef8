"""Comparison of the work for two requests by counting function calls in all threads of a server.

Equal work takes equal time on any machine. Work inside C functions is not counted: `stopwatch` times a sample of the
same requests.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import greendot
from e2e.stopwatch import Http, Wire
from greendot.testing import Served

PRODUCT = Path(greendot.__file__).parent
WARM_UP, SAMPLES = 3, 6
MOST = 0.1  # allowed difference: calls are a third of the response time, and calls that differ are short


class Compared(NamedTuple):
    """Number of calls for each request, and the functions with different counts."""

    one: int
    other: int
    apart: dict[str, int]  # calls of the first request minus calls of the second

    @property
    def is_even(self) -> bool:
        """Return whether the calls in the store are equal and the total differs by at most 10 %."""
        in_store = any(name.startswith("store/") for name in self.apart)
        return not in_store and abs(self.one - self.other) <= MOST * max(self.one, self.other)


class Steps:
    """Calls since the last reset, by function."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def note(self, frame: FrameType, event: str, called: Any) -> None:
        code = frame.f_code
        if event in {"call", "c_call"} and (where := _module(code.co_filename)):
            name = f"{where} {code.co_name}"
            self.calls[name if event == "call" else f"{name}: {called.__name__}"] += 1


@cache
def _module(file: str) -> str:
    """Return the path within the product, "" elsewhere."""
    path = Path(file)
    within = path.is_relative_to(PRODUCT) and not path.is_relative_to(PRODUCT / "testing")
    return str(path.relative_to(PRODUCT)) if within else ""


@contextmanager
def counting() -> Iterator[Steps]:
    """Count calls in this thread and in threads that start within the block. Start the server inside it."""
    steps = Steps()
    threading.setprofile(steps.note)
    sys.setprofile(steps.note)
    try:
        yield steps
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


async def compared_by_steps(
    served: Served, steps: Steps, one: Any, other: Any, token: str = "", key: str = ""
) -> Compared:
    """Compare two requests, by WebSocket with a token or by HTTP with a key, as `stopwatch` does."""
    turns = [turn if isinstance(turn, list) and isinstance(turn[0], list | dict) else [turn] for turn in (one, other)]
    client: Wire | Http = await asyncio.to_thread(lambda: Wire(served.port, token) if token else Http(served.port, key))
    try:
        found = await _counted(served, steps, client, turns)
    finally:
        client.close()
    # Other samples include unrelated work of the server.
    fewest = [min(samples, key=Counter.total) for samples in found]
    names = fewest[0].keys() | fewest[1].keys()
    apart = {name: fewest[0][name] - fewest[1][name] for name in names}
    return Compared(*(counts.total() for counts in fewest), {name: by for name, by in apart.items() if by})


async def _counted(
    served: Served, steps: Steps, client: Wire | Http, turns: list[list[Any]]
) -> tuple[list[Counter[str]], list[Counter[str]]]:
    requests = [[client.request(asked) for asked in turn] for turn in turns]
    found: tuple[list[Counter[str]], list[Counter[str]]] = [], []
    for number in range(-WARM_UP, SAMPLES):
        for which in (0, 1) if number % 2 else (1, 0):  # some work happens only for every second frame
            *before, counted = requests[which]
            for request in before:
                await asyncio.to_thread(client.took, request)
            await served.settle()
            steps.calls.clear()
            await asyncio.to_thread(client.took, counted)
            await served.settle()
            if number >= 0:
                found[which].append(Counter(steps.calls))
    return found
