"""Recent records of a room, kept for returning clients: without a gap, and within bounds."""

from __future__ import annotations

import pytest

from greendot.rooms import local_room
from greendot.rooms.local_room import Recent
from greendot.store.rooms import Record


def record(seq: int, size: int = 2) -> Record:
    return Record("lobby", seq, f"m{seq}", "ann", None, b"x" * size, 0)


def seqs(recent: Recent, after: int) -> list[int] | None:
    found = recent.after(after)
    return None if found is None else [record.seq for record in found]


def test_records_after_a_number_are_all_there_or_none_is_given() -> None:
    recent = Recent(10)
    recent.add([record(seq) for seq in (11, 12, 13)])
    assert [seqs(recent, after) for after in (9, 10, 12, 13)] == [None, [11, 12, 13], [13], []]
    assert recent.last == 13


def test_without_records_only_those_who_missed_nothing_have_all_of_them() -> None:
    recent = Recent(10)
    recent.add([])
    assert [seqs(recent, after) for after in (9, 10, 11)] == [None, [], []]


def test_the_oldest_record_gives_way_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_room, "RECOVER", 3)
    recent = Recent(0)
    recent.add([record(seq) for seq in (1, 2, 3)])
    assert seqs(recent, 0) == [1, 2, 3]
    recent.add([record(4), record(5)])
    assert (seqs(recent, 1), seqs(recent, 2)) == (None, [3, 4, 5])


def test_the_oldest_records_give_way_when_bodies_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_room, "RECOVER_BYTES", 10)
    recent = Recent(0)
    recent.add([record(1, 4), record(2, 6)])
    assert seqs(recent, 0) == [1, 2]  # exactly at the limit
    recent.add([record(3, 1)])
    assert (seqs(recent, 0), seqs(recent, 1)) == (None, [2, 3])
    recent.add([record(4, 9)])  # only the removed body makes room
    assert (seqs(recent, 2), seqs(recent, 1)) == ([3, 4], None)


def test_a_record_larger_than_all_that_may_be_kept_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_room, "RECOVER_BYTES", 10)
    recent = Recent(0)
    recent.add([record(1), record(2, 11)])
    assert (seqs(recent, 1), seqs(recent, 2), recent.last) == (None, [], 2)
    recent.add([record(3, 10)])
    assert seqs(recent, 2) == [3]
