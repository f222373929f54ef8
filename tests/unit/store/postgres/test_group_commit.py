"""Group commit: calls that share a commit, calls that wait, and calls that fail alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from greendot.errors import StoreUnavailable, Unstorable
from greendot.store.postgres import group_commit
from greendot.store.postgres.group_commit import GroupCommit
from greendot.store.postgres.pool import Contended


class Pen:
    """Writer of batches. Works that begin with `bad` are unstorable, and those with `held` are contended."""

    def __init__(self, flights: int = 2, patience_s: float = 5.0) -> None:
        self.batches: list[list[str]] = []
        self.written: list[str] = []
        self.ready = asyncio.Event()
        self.ready.set()
        self.away = 0  # attempts that fail before the write
        self.deaf = 0  # attempts that are written but not answered
        self.together: GroupCommit[str, str] = GroupCommit(self._write, flights, patience_s)
        self.together.open()

    async def _write(self, works: list[str]) -> list[str]:
        self.batches.append(works)
        await self.ready.wait()
        if self.away:
            self.away -= 1
            raise StoreUnavailable("away")
        if any(work.startswith("bad") for work in works):
            raise Unstorable("bad")
        if any(work.startswith("held") for work in works):
            raise Contended("held")
        self.written += [work for work in works if work not in self.written]
        if self.deaf:
            self.deaf -= 1
            raise StoreUnavailable("cut off")
        return [work.upper() for work in works]

    def put(self, work: str, *streams: str, rows: int = 1) -> asyncio.Task[str]:
        names = frozenset(("t", stream) for stream in streams or ("r",))
        return asyncio.ensure_future(self.together.do(work, names, rows))


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def outcomes(calls: Sequence[asyncio.Task[str]]) -> list[str]:
    results = await asyncio.gather(*calls, return_exceptions=True)
    return [type(result).__name__ if isinstance(result, BaseException) else result for result in results]


async def test_calls_of_one_turn_share_a_batch_and_those_that_come_meanwhile_the_next() -> None:
    pen = Pen()
    pen.ready.clear()
    first = [pen.put(f"a{n}") for n in range(3)]
    await turns()
    second = [pen.put(f"b{n}") for n in range(3)]
    await turns()
    pen.ready.set()
    assert await outcomes([*first, *second]) == ["A0", "A1", "A2", "B0", "B1", "B2"]
    assert pen.batches == [["a0", "a1", "a2"], ["b0", "b1", "b2"]]


async def test_another_stream_does_not_wait_and_the_same_one_does() -> None:
    pen = Pen()
    pen.ready.clear()
    calls = [pen.put("a", "x")]
    await turns()
    calls += [pen.put("b", "x"), pen.put("c", "y")]
    await turns()
    assert pen.batches == [["a"], ["c"]]
    calls += [pen.put("d", "z")]
    await turns()
    assert len(pen.batches) == 2  # two batches are under way, which is the limit
    pen.ready.set()
    assert await outcomes(calls) == ["A", "B", "C", "D"]
    assert pen.batches[2:] == [["b", "d"]]


async def test_a_call_stays_behind_an_earlier_one_of_any_of_its_streams() -> None:
    pen = Pen(flights=3)
    pen.ready.clear()
    calls = [pen.put("a", "x")]
    await turns()
    calls += [pen.put("b", "x", "y"), pen.put("c", "y", "z"), pen.put("d", "z"), pen.put("e", "w")]
    await turns()
    assert pen.batches == [["a"], ["e"]]
    pen.ready.set()
    await outcomes(calls)
    assert pen.batches[2] == ["b", "c", "d"]


async def test_a_bad_call_fails_alone() -> None:
    pen = Pen()
    assert await outcomes([pen.put(work) for work in ("a", "bad", "b", "bad", "c")]) == [
        "A",
        "Unstorable",
        "B",
        "Unstorable",
        "C",
    ]
    assert pen.written == ["a", "b", "c"]


async def test_an_unknown_error_fails_only_its_own_call() -> None:
    async def write(works: list[str]) -> list[str]:
        if "odd" in works:
            raise KeyError("odd")
        return works

    together: GroupCommit[str, str] = GroupCommit(write, 1, 5.0)
    together.open()
    calls = [asyncio.ensure_future(together.do(work, frozenset([("t", "r")]))) for work in ("a", "odd", "b")]
    assert await outcomes(calls) == ["a", "KeyError", "b"]


async def test_a_held_stream_holds_up_what_follows_in_it_and_nothing_else() -> None:
    pen = Pen(patience_s=0.2)
    calls = [pen.put("a", "x"), pen.put("held", "y"), pen.put("b", "y"), pen.put("c", "z")]
    await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    later = pen.put("d", "x")
    assert await later == "D"
    assert await outcomes(calls) == ["A", "StoreUnavailable", "StoreUnavailable", "C"]
    assert "b" not in pen.written


async def test_a_batch_that_was_cut_off_is_written_again_as_it_was() -> None:
    pen = Pen()
    pen.away, pen.deaf = 2, 1
    assert await outcomes([pen.put("a"), pen.put("b")]) == ["A", "B"]
    assert pen.batches == [["a", "b"]] * 4
    assert pen.written == ["a", "b"]


async def test_what_cannot_be_written_in_time_fails_and_the_next_is_tried() -> None:
    pen = Pen(patience_s=0.1)
    pen.away = 1_000
    assert await outcomes([pen.put("a"), pen.put("b")]) == ["StoreUnavailable"] * 2
    pen.away = 0
    assert await pen.put("c") == "C"


async def test_a_batch_is_bounded_by_calls_and_by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "MOST_CALLS", 3)
    monkeypatch.setattr(group_commit, "MOST_ROWS", 10)
    pen = Pen(flights=1)
    calls = [pen.put(f"a{n}") for n in range(4)] + [pen.put("b", rows=9), pen.put("c", rows=2), pen.put("d", rows=99)]
    await outcomes(calls)
    assert pen.batches == [["a0", "a1", "a2"], ["a3", "b"], ["c"], ["d"]]


async def test_calls_beyond_the_queue_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "MOST_WAITING", 5)
    pen = Pen()
    pen.ready.clear()
    calls = [pen.put("a")]
    await turns()
    calls += [pen.put("b", rows=4), pen.put("c", rows=2), pen.put("d")]
    await turns()
    pen.ready.set()
    assert await outcomes(calls) == ["A", "B", "StoreUnavailable", "D"]


async def test_a_cancelled_caller_does_not_block_other_writes() -> None:
    pen = Pen()
    pen.ready.clear()
    calls = [pen.put(work) for work in ("a", "b", "c")]
    await turns()
    calls[1].cancel()
    await turns()
    pen.ready.set()
    assert await outcomes(calls) == ["A", "CancelledError", "C"]
    assert await pen.put("d") == "D"
    assert pen.written == ["a", "b", "c", "d"]


async def test_closing_writes_what_waits_and_takes_nothing_more() -> None:
    pen = Pen(flights=1)
    calls = [pen.put(f"a{n}", f"r{n}") for n in range(5)]
    await turns(1)
    await pen.together.close()
    assert pen.written == [f"a{n}" for n in range(5)]
    assert await outcomes([*calls, pen.put("late")]) == ["A0", "A1", "A2", "A3", "A4", "StoreUnavailable"]
