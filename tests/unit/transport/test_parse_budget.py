"""Budget of loop time for parsing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from greendot.telemetry.traceparent import Trace, current, enter, leave
from greendot.transport import parse_budget
from greendot.transport.parse_budget import PARSING_S, ParseBudget


class Work:
    """Parses that take time, by a clock of their own."""

    def __init__(self) -> None:
        self.time_s = 0.0
        self.turns = ParseBudget(lambda: self.time_s)
        self.done: list[int] = []

    def add(self, number: int, takes_s: float) -> bool:
        def parse() -> None:
            self.done.append(number)
            self.time_s += takes_s

        return self.turns.run(parse)


async def test_what_exceeds_the_time_of_a_turn_is_parsed_in_later_ones_in_order() -> None:
    work = Work()
    assert [work.add(number, 2 * PARSING_S) for number in range(4)] == [True, False, False, False]
    assert work.done == [0]
    await asyncio.sleep(0)
    assert work.done == [0, 1]
    assert not work.add(4, 0.0)  # queued after waiting parses, although this parse takes no time
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert work.done == [0, 1, 2, 3]
    await asyncio.sleep(0)
    assert work.done == [0, 1, 2, 3, 4]
    await asyncio.sleep(0)
    assert work.add(5, 0.0)


async def test_many_short_parses_share_a_turn() -> None:
    work = Work()
    assert [work.add(number, PARSING_S / 2.5) for number in range(6)] == [True] * 3 + [False] * 3
    await asyncio.sleep(0)
    assert work.done == [*range(6)]


async def test_a_turn_whose_time_is_just_used_up_parses_no_more() -> None:
    work = Work()
    assert [work.add(number, PARSING_S) for number in range(3)] == [True, False, False]
    await asyncio.sleep(0)
    assert work.done == [0, 1]
    await asyncio.sleep(0)
    assert work.done == [0, 1, 2]


async def test_the_time_a_turn_used_is_none_of_the_next_turns() -> None:
    work = Work()
    assert [work.add(number, 2 * PARSING_S) for number in range(2)] == [True, False]
    await asyncio.sleep(0)
    assert work.done == [0, 1]
    await asyncio.sleep(0)
    assert work.add(2, 0.0)


async def test_each_turn_parses_something_however_little_time_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse_budget, "PARSING_S", 0.0)
    work = Work()
    assert [work.add(number, 0.0) for number in range(2)] == [False, False]
    for done in ([0], [0, 1]):
        await asyncio.sleep(0)
        assert work.done == done


async def test_a_parse_that_fails_has_used_its_time_and_those_behind_it_are_parsed() -> None:
    work, failed = Work(), []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context["exception"]))

    def fail() -> None:
        work.time_s += PARSING_S
        raise ValueError("no HTTP")

    with pytest.raises(ValueError, match="no HTTP"):
        work.turns.run(fail)
    assert not work.turns.run(fail)
    assert not work.add(1, 0.0)
    for _ in range(3):
        await asyncio.sleep(0)
    assert work.done == [1]
    assert [str(error) for error in failed] == ["no HTTP"]


@pytest.fixture
def turns_taken(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Return a list that grows by one with each turn."""
    taken: list[None] = []
    monkeypatch.setattr(parse_budget, "enter", taken.append)
    return taken


async def test_where_nothing_waits_the_turns_end(turns_taken: list[None]) -> None:
    work, failed = Work(), []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
    work.add(0, PARSING_S)
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(turns_taken) == 1, "one turn must restore the budget, and no other may follow"
    work.add(1, PARSING_S)
    work.add(2, PARSING_S)
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(turns_taken) == 3
    assert failed == []


async def test_what_a_parse_adds_is_parsed_in_the_turns_there_are(turns_taken: list[None]) -> None:
    work = Work()

    def adding(number: int) -> Callable[[], None]:
        def parse() -> None:
            work.time_s += 2 * PARSING_S
            work.add(number, 2 * PARSING_S)

        return parse

    work.add(0, 2 * PARSING_S)
    for number in (1, 2):
        assert not work.turns.run(adding(number))
    for turn in range(1, 5):
        await asyncio.sleep(0)
        assert len(turns_taken) == turn
    assert work.done == [0, 1, 2]


async def test_what_is_parsed_in_a_later_turn_is_in_the_course_of_no_trace() -> None:
    turns, seen = ParseBudget(iter([0.0, PARSING_S, 1.0, 1.0]).__next__), []
    before = enter(Trace("a" * 32, "b" * 16))
    for _ in range(2):
        turns.run(lambda: seen.append(current()))
    leave(before)
    await asyncio.sleep(0)
    assert seen == [Trace("a" * 32, "b" * 16), None]
