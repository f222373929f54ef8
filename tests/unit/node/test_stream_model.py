"""Sequencer of one stream: records that arrive in any order leave in order, each once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from greendot.node.stream_model import MOST_HELD, Sequencer


@given(st.integers(0, 5), st.data())
def test_records_that_come_in_any_order_and_twice_go_out_in_order_and_once(start: int, data: st.DataObject) -> None:
    numbers = [*range(start + 1, start + 15)]
    coming = data.draw(st.permutations(numbers + data.draw(st.lists(st.sampled_from(numbers), max_size=10))))
    line: Sequencer[int] = Sequencer(start)
    out = [record for seq in coming for record in line.offer(seq, seq)]
    assert out == numbers
    assert not line.gap


def test_what_was_there_before_is_dropped() -> None:
    line: Sequencer[str] = Sequencer(5)
    assert line.offer(5, "five") == line.offer(1, "one") == []
    assert not line.gap


def test_a_gap_holds_what_follows_until_it_is_filled() -> None:
    line: Sequencer[str] = Sequencer(1)
    assert line.offer(3, "three") == []
    assert line.gap
    assert line.offer(2, "two") == ["two", "three"]
    assert (line.cursor, line.gap) == (3, False)


def test_giving_up_a_gap_lets_out_what_was_held_behind_it() -> None:
    line: Sequencer[str] = Sequencer(1)
    for seq, record in ((4, "four"), (5, "five"), (3, "three"), (9, "nine")):
        line.offer(seq, record)
    assert line.skip_to(3) == ["four", "five"]
    assert (line.cursor, line.gap) == (5, True)
    assert line.skip_to(4) == []  # the cursor never moves back
    assert line.cursor == 5
    assert line.skip_to(20) == []
    assert (line.cursor, line.gap) == (20, False)


def test_a_line_with_nothing_held_skips_and_goes_on_behind_it() -> None:
    line: Sequencer[str] = Sequencer()
    assert line.offer(1, "one") == ["one"]
    assert line.skip_to(5) == []
    assert line.offer(5, "five") == []
    assert line.offer(6, "six") == ["six"]


def test_what_is_skipped_is_not_held_any_longer() -> None:
    line: Sequencer[str] = Sequencer(0)
    line.offer(3, "three")
    assert line.skip_to(3) == []
    assert not line.gap


def test_no_more_is_held_than_may_be() -> None:
    line: Sequencer[int] = Sequencer(0)
    for seq in range(2, 2 * MOST_HELD):
        line.offer(seq, seq)
    assert line.overflown
    assert len(line.offer(1, 1)) == MOST_HELD + 1
