"""Batched reads during a surge, on an event loop whose time passes only while all tasks wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from greendot.errors import StoreUnavailable
from greendot.node.batching import LONGEST_S, MOST, PAUSE_INTERVALS, PAUSE_S, BatchedReads
from greendot.node.context import NodeContext
from greendot.node.event_recorder import EventRecorder
from greendot.node.event_recorder_model import EventTail
from greendot.node.hub import Hub
from greendot.node.registry import Registry
from greendot.node.surge_detector import RATE, SurgeDetector
from greendot.node.tasks import Tasks
from greendot.node.timers import Timers
from greendot.telemetry.metrics import Metrics
from model.simulated import LoopClock, VirtualLoop

READ_S = 0.02  # duration of a read


def in_passing_time(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(story())


class Asked:
    """A store, and clients that read from it in batches."""

    def __init__(self, read_s: float = READ_S, *, gathers: bool = True) -> None:
        self._read_s = read_s
        clock = LoopClock(asyncio.get_running_loop())
        hub, registry = Hub(Metrics()), Registry()
        self.surge = SurgeDetector(clock)
        shared = NodeContext(
            clock, Timers(clock, driven=False), Tasks(), hub, registry, self.surge, EventRecorder(EventTail(), clock)
        )
        self.batched: BatchedReads[int, int] = BatchedReads(shared, self._read, -1, gathers=gathers)
        self.reads: list[int] = []  # number of keys in each read
        self.waited: list[float] = []
        self.is_away = False

    async def _read(self, keys: Sequence[int]) -> dict[int, int]:
        self.reads.append(len(keys))
        await asyncio.sleep(self._read_s)
        if self.is_away:
            raise StoreUnavailable("away")
        return {key: key * 2 for key in keys}

    async def ask(self, key: int) -> None:
        start = asyncio.get_running_loop().time()
        with self.surge.one():
            assert await self.batched.get(key) == key * 2
        self.waited.append(asyncio.get_running_loop().time() - start)

    async def trickle(self, many: int, over_s: float, keys: int = 0) -> None:
        """Start reads one by one, evenly over `over_s` seconds. With `keys`, only so many keys are read."""
        async with asyncio.TaskGroup() as group:
            for number in range(many):
                group.create_task(self.ask(number % (keys or many)))
                await asyncio.sleep(over_s / many)


@pytest.mark.parametrize(
    ("many", "over_s", "most"), [(1_000, 0.3, 5), (1_000, 0.6, 5), (1_000, 2.5, 9), (5_000, 2.5, 8)]
)
def test_a_crowd_that_trickles_in_is_a_few_reads_however_long_it_takes(many: int, over_s: float, most: int) -> None:
    async def story() -> None:
        asked = Asked()
        await asked.trickle(many, over_s)
        assert len(asked.reads) <= most, asked.reads
        assert sum(asked.reads) == many
        assert max(asked.waited) <= LONGEST_S + PAUSE_S + READ_S

    in_passing_time(story)


def test_a_crowd_that_is_let_in_evenly_reads_together_though_few_are_on_their_way_at_a_time() -> None:
    async def story() -> None:
        asked = Asked(read_s=0.002)
        await asked.trickle(1_000, 1.0)  # about four clients wait for a read or are in one at a time
        assert len(asked.reads) <= 100, asked.reads

    in_passing_time(story)


def test_reads_that_do_not_gather_are_not_delayed_in_a_crowd() -> None:
    async def story() -> None:
        asked = Asked(gathers=False)
        await asked.trickle(1_000, 2.5)
        assert max(asked.waited) <= 2 * READ_S + 1e-6

    in_passing_time(story)


def test_as_many_as_always_come_are_no_crowd_also_after_one() -> None:
    async def story() -> None:
        asked = Asked()
        await asked.trickle(1_000, 0.6)
        await asyncio.sleep(LONGEST_S)
        asked.waited.clear()
        await asked.trickle(300, 300 / (0.9 * RATE))
        assert max(asked.waited) <= 2 * READ_S  # the current read, and their own

    in_passing_time(story)


def test_a_crowd_of_which_all_wait_is_not_kept_waiting_for_more() -> None:
    async def story() -> None:
        asked = Asked()

        async def comes_again_and_again(key: int) -> None:
            for _ in range(50):
                await asked.ask(key)

        async with asyncio.TaskGroup() as group:
            for key in range(64):
                group.create_task(comes_again_and_again(key))
        assert max(asked.waited) <= 2 * (READ_S + PAUSE_S)  # the current read, and their own
        # All came together, so a pause of a few of their intervals is enough.
        intervals_s = PAUSE_INTERVALS * (READ_S + PAUSE_S) / 64
        assert sum(asked.waited[64:]) / len(asked.waited[64:]) <= READ_S + 2 * intervals_s

    in_passing_time(story)


def test_a_client_with_many_rooms_is_no_crowd() -> None:
    async def story() -> None:
        asked = Asked()
        for key in range(100):
            await asked.ask(key)
        assert max(asked.waited) == pytest.approx(READ_S)

    in_passing_time(story)


def test_who_comes_after_a_crowd_does_not_wait_for_it() -> None:
    async def story() -> None:
        asked = Asked()
        await asked.trickle(1_000, 0.6)
        asked.waited.clear()
        await asked.ask(-5)
        assert asked.waited == [pytest.approx(READ_S)]

    in_passing_time(story)


def test_as_many_as_one_read_may_answer_do_not_wait_for_more() -> None:
    async def story() -> None:
        asked = Asked()
        async with asyncio.TaskGroup() as group:
            for key in range(5 * MOST):
                group.create_task(asked.ask(key))
        assert asked.reads == [MOST] * 5
        assert max(asked.waited) == pytest.approx(5 * READ_S)

    in_passing_time(story)


def test_all_who_ask_for_the_same_are_one_key_of_one_read() -> None:
    async def story() -> None:
        asked = Asked()
        async with asyncio.TaskGroup() as group:
            for _ in range(100):
                group.create_task(asked.ask(7))
        assert asked.reads == [1]

    in_passing_time(story)


@pytest.mark.parametrize("keys", [1, 3])
def test_a_crowd_of_a_few_rooms_that_trickles_in_is_a_few_reads(keys: int) -> None:
    async def story() -> None:
        asked = Asked()
        await asked.trickle(1_000, 2.5, keys)
        assert len(asked.reads) <= 9, asked.reads
        assert max(asked.waited) <= LONGEST_S + PAUSE_S + READ_S

    in_passing_time(story)


def test_a_read_that_fails_fails_for_all_who_wait_and_the_next_is_made_all_the_same() -> None:
    async def story() -> None:
        asked = Asked()
        asked.is_away = True
        results = await asyncio.gather(*(asked.ask(key) for key in range(50)), return_exceptions=True)
        assert {type(result) for result in results} == {StoreUnavailable}
        asked.is_away = False
        await asked.ask(3)
        assert asked.reads == [50, 1]

    in_passing_time(story)


def test_who_gives_up_waiting_takes_nothing_from_the_others() -> None:
    async def story() -> None:
        asked = Asked()
        first, second = (asyncio.create_task(asked.batched.get(1)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert await second == 2

    in_passing_time(story)
