"""Loop time for parsing."""

from __future__ import annotations

import asyncio

from greendot.gateway.parsing import PARSING_S, ParsingTurns


class Work:
    """Parses that take time, by a clock of their own."""

    def __init__(self) -> None:
        self.time_s = 0.0
        self.turns = ParsingTurns(lambda: self.time_s)
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
    assert not work.add(4, 0.0)  # behind those that wait, though a parse of no time
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
