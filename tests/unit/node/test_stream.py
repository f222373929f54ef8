"""Gap reads and head comparisons of a stream, on an event loop whose time passes only while all tasks wait."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any

import pytest

from greendot.errors import StoreUnavailable
from greendot.node import stream_model
from greendot.node.context import NodeContext
from greendot.node.event_recorder import EventRecorder
from greendot.node.event_recorder_model import EventTail
from greendot.node.hub import Hub
from greendot.node.registry import Registry
from greendot.node.stream import AGAIN_S, AT_ONCE, GAP_S, LocalStream, StreamFollower, retry_s
from greendot.node.surge_detector import SurgeDetector
from greendot.node.tasks import Tasks
from greendot.node.timers import Timers
from greendot.telemetry.metrics import Metrics
from model.simulated import LoopClock, VirtualLoop

READ_S = 0.02  # duration of a gap read
COMPARE_S = 10.0
SHORTLY_S = 0.015  # precision of timers


def in_passing_time(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(story())


def context() -> NodeContext:
    clock = LoopClock(asyncio.get_running_loop())
    hub, registry, surge = Hub(Metrics()), Registry(), SurgeDetector(clock)
    return NodeContext(clock, Timers(clock), Tasks(), hub, registry, surge, EventRecorder(EventTail(), clock))


class Log:
    """A local copy of a numbered log."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stream: LocalStream[int] = LocalStream()


class Follower(StreamFollower[Log]):
    """Follower of logs whose entries are their numbers. `head` is the newest stored number of each log."""

    def __init__(self) -> None:
        super().__init__(context(), "logs", COMPARE_S)
        self.logs: list[Log] = []
        self.head = 0
        self.is_away = False
        self.forwarded: list[int] = []
        self.reads: list[float] = []  # start times
        self.outcomes: list[set[str]] = []  # outcomes of the reads: done, moved, hinted
        self.failures: list[tuple[str, str]] = []  # logged failures of reads
        self.compared: list[int] = []  # number of logs in each comparison
        self.wait_s: float | None = None  # pause after each read

    def log(self, name: str = "a") -> Log:
        self.logs.append(Log(name))
        self._set_compare_timer()
        return self.logs[-1]

    def receive(self, log: Log, *seqs: int) -> None:
        for seq in seqs:
            self.forwarded += log.stream.offer(seq, seq)
        self._schedule_if_behind(log)

    def hint(self, log: Log, seq: int) -> None:
        log.stream.hint(seq)
        self._schedule_if_behind(log)

    async def fill(self, log: Log) -> None:
        await self._fill(log)

    async def compare(self) -> None:
        await self._compare(self.logs)

    async def _read_gap(self, local: Log) -> None:
        self.reads.append(asyncio.get_running_loop().time())
        head = self.head
        await asyncio.sleep(READ_S)
        if self.is_away:
            raise StoreUnavailable("away")
        for seq in range(local.stream.cursor + 1, head + 1):
            self.forwarded += local.stream.offer(seq, seq)

    def _next_read_s(self, stream: LocalStream[Any], *, done: bool, moved: bool, hinted: bool) -> float | None:
        self.outcomes.append({name for name, holds in (("done", done), ("moved", moved), ("hinted", hinted)) if holds})
        return self.wait_s

    async def _compare_heads(self, some: Sequence[Log]) -> None:
        if self.is_away:
            raise StoreUnavailable("away")
        self.compared.append(len(some))

    async def _followed(self) -> Collection[Log]:
        return self.logs

    def _log_gap(self, local: Log, error: StoreUnavailable) -> None:
        self.failures.append((local.name, str(error)))


def test_a_gap_that_closes_in_time_is_not_read() -> None:
    async def story() -> None:
        follower = Follower()
        log = follower.log()
        follower.receive(log, 2, 3)
        await asyncio.sleep(GAP_S - SHORTLY_S)
        follower.receive(log, 1)
        await asyncio.sleep(1)
        assert follower.forwarded == [1, 2, 3]
        assert follower.reads == []
        assert log.stream.gap_timer is None

    in_passing_time(story)


def test_a_gap_that_stays_is_read_once_and_early_entries_follow() -> None:
    async def story() -> None:
        follower, began = Follower(), asyncio.get_running_loop().time()
        log = follower.log()
        follower.head = 2
        follower.receive(log, 3)
        follower.receive(log, 5)
        await asyncio.sleep(GAP_S + SHORTLY_S + READ_S)
        follower.receive(log, 4)
        await asyncio.sleep(1)
        assert follower.forwarded == [1, 2, 3, 4, 5]
        assert [round(at - began, 2) for at in follower.reads] == [GAP_S]
        assert follower.outcomes == [{"done", "moved"}]

    in_passing_time(story)


def test_a_hinted_entry_is_read_at_once() -> None:
    async def story() -> None:
        follower = Follower()
        log = follower.log()
        follower.head = 1
        follower.hint(log, 1)
        assert (log.stream.is_behind, log.stream.gap) == (True, False)
        await asyncio.sleep(SHORTLY_S)
        assert len(follower.reads) == 1
        await asyncio.sleep(READ_S)
        assert follower.forwarded == [1]
        assert not log.stream.is_behind
        follower.hint(log, 1)
        assert log.stream.gap_timer is None

    in_passing_time(story)


def test_an_older_hint_does_not_replace_a_newer_one() -> None:
    stream: LocalStream[int] = LocalStream()
    stream.hint(5)
    stream.hint(3)
    assert stream.hinted == 5


def test_where_too_much_is_held_the_gap_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_model, "MOST_HELD", 3)

    async def story() -> None:
        follower = Follower()
        follower.receive(follower.log(), 2, 3, 4)
        await asyncio.sleep(SHORTLY_S)
        assert len(follower.reads) == 1

    in_passing_time(story)


def test_a_gap_is_read_by_one_and_others_wait_for_it() -> None:
    async def story() -> None:
        follower = Follower()
        log = follower.log()
        follower.head = 3
        await asyncio.gather(*(follower.fill(log) for _ in range(5)), follower.fill_quietly(log))
        assert (follower.forwarded, len(follower.reads)) == ([1, 2, 3], 1)
        assert log.stream.reading is None

    in_passing_time(story)


def test_a_quiet_fill_does_not_wait_for_the_read_under_way() -> None:
    async def story() -> None:
        follower = Follower()
        log = follower.log()
        reading = asyncio.ensure_future(follower.fill(log))
        await asyncio.sleep(0)
        await follower.fill_quietly(log)
        assert log.stream.reading is not None
        await reading

    in_passing_time(story)


def test_one_who_waits_and_is_cancelled_does_not_end_the_read_of_others() -> None:
    async def story() -> None:
        follower = Follower()
        log = follower.log()
        follower.head = 1
        first, second = (asyncio.ensure_future(follower.fill(log)) for _ in range(2))
        await asyncio.sleep(READ_S / 2)
        second.cancel()
        await first
        assert follower.forwarded == [1]

    in_passing_time(story)


def test_a_hint_during_the_read_of_a_gap_is_distinguished_from_older_hints() -> None:
    async def story() -> None:
        follower = Follower()
        log = follower.log()
        follower.head = 1
        log.stream.hint(2)
        for newest in (2, 3):
            reading = asyncio.ensure_future(follower.fill(log))
            await asyncio.sleep(READ_S / 2)
            follower.hint(log, newest)
            assert log.stream.gap_timer is None  # no timer is set during a read
            await reading
        assert follower.outcomes == [{"done", "moved"}, {"done", "hinted"}]

    in_passing_time(story)


def test_a_stream_that_is_still_behind_is_read_again_after_the_delay_of_its_owner() -> None:
    async def story() -> None:
        follower = Follower()
        log = follower.log()
        follower.wait_s = 0.5
        follower.hint(log, 1)
        await asyncio.sleep(0.4)
        assert len(follower.reads) == 1
        follower.head = 1
        await asyncio.sleep(2)
        assert (follower.forwarded, len(follower.reads)) == ([1], 2)

    in_passing_time(story)


def test_a_failed_read_is_logged_unless_a_caller_waits_for_it() -> None:
    async def story() -> None:
        follower = Follower()
        log = follower.log("lobby")
        follower.is_away = True
        await follower.fill_quietly(log)
        with pytest.raises(StoreUnavailable):
            await follower.fill(log)
        assert log.stream.reading is None
        assert follower.outcomes == [set(), set()]
        assert follower.failures == [("lobby", "away")]

    in_passing_time(story)


def test_a_dropped_stream_is_not_read_any_more() -> None:
    async def story() -> None:
        follower = Follower()
        log = follower.log()
        follower.wait_s = 0.0
        follower.hint(log, 1)
        follower.drop(log)
        await asyncio.sleep(1)
        assert follower.reads == []
        follower.hint(log, 2)
        await follower.fill(log)
        await asyncio.sleep(1)
        assert len(follower.reads) == 1

    in_passing_time(story)


def test_all_heads_are_compared_again_and_again_some_in_one_read() -> None:
    async def story() -> None:
        follower = Follower()
        for number in range(AT_ONCE + 1):
            follower.log(str(number))
        await asyncio.sleep(COMPARE_S + 0.1)
        assert follower.compared == [AT_ONCE, 1]
        await asyncio.sleep(COMPARE_S + 0.1)
        assert follower.compared == [AT_ONCE, 1] * 2

    in_passing_time(story)


def test_comparisons_go_on_after_a_failure_and_end_with_the_last_stream(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        follower = Follower()
        log = follower.log()
        follower.is_away = True
        await asyncio.sleep(COMPARE_S + 0.1)
        follower.is_away = False
        assert not follower.compared
        await asyncio.sleep(COMPARE_S)
        assert follower.compared == [1]
        follower.logs.remove(log)
        await asyncio.sleep(3 * COMPARE_S)
        assert follower.compared == [1]
        await follower.compare()
        assert follower.compared == [1]

    with caplog.at_level(logging.DEBUG, "greendot"):
        in_passing_time(story)
    assert "comparing logs: away; retrying later" in [record.getMessage() for record in caplog.records]


def test_retries_come_after_different_times() -> None:
    waits = {retry_s() for _ in range(100)}
    assert len(waits) > 50
    assert min(waits) >= AGAIN_S / 2
    assert max(waits) <= AGAIN_S
