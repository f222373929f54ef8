"""Event tail: filters of each reader, and bounds of the queues."""

from __future__ import annotations

import pytest

from greendot.node.event_recorder_model import (
    ALL,
    BODY,
    HOLD_S,
    KINDS,
    MOST,
    EventFilter,
    EventTail,
    RecordedEvent,
    TailKey,
)

ANN = TailKey("n1", "acme")
OPERATOR = TailKey("n1", ALL)


def event(number: int = 1, kind: str = "rooms", tenant: str = "acme") -> RecordedEvent:
    return RecordedEvent(1_000, kind, "message", tenant, "ann", "den", number=number)  # type: ignore[arg-type]


def numbers(tail: EventTail, name: TailKey, now: float = 0.0) -> list[int | None]:
    return [found.number for found in tail.take(name, KINDS, now).events]


def test_no_event_is_kept_while_no_tail_is_open() -> None:
    tail = EventTail()
    tail.record(event())
    assert not tail.open
    assert numbers(tail, ANN) == []


def test_what_happens_between_two_looks_is_taken_once_and_in_order() -> None:
    tail = EventTail()
    tail.take(ANN, KINDS, 0.0)
    assert tail.open
    for number in (1, 2, 3):
        tail.record(event(number))
    assert numbers(tail, ANN) == [1, 2, 3]
    assert numbers(tail, ANN) == []


def test_each_who_looks_gets_what_is_theirs() -> None:
    tail = EventTail()
    for name in (ANN, OPERATOR):
        tail.take(name, KINDS, 0.0)
    tail.record(event(1))
    tail.record(event(2, tenant="rival"))
    assert numbers(tail, ANN) == [1]
    assert numbers(tail, OPERATOR) == [1, 2]


def test_kinds_that_were_not_asked_for_are_not_kept() -> None:
    tail = EventTail()
    tail.take(ANN, ["presence"], 0.0)
    tail.record(event(1, "rooms"))
    tail.record(event(2, "presence"))
    assert numbers(tail, ANN) == [2]


def test_a_line_that_is_full_leaves_out_what_comes_and_counts_it() -> None:
    tail = EventTail()
    tail.take(ANN, KINDS, 0.0)
    for number in range(MOST + 7):
        tail.record(event(number))
    taken = tail.take(ANN, KINDS, 0.5)
    assert [found.number for found in taken.events] == [*range(MOST)]
    assert taken.skipped == 7
    assert tail.take(ANN, KINDS, 0.5).skipped == 0


def test_an_overloaded_node_keeps_no_tail_events_and_counts_the_dropped_ones() -> None:
    tail = EventTail()
    tail.take(ANN, KINDS, 0.0)
    tail.shedding = True
    tail.record(event())
    assert tail.take(ANN, KINDS, 0.0) == ([], 1)


def test_a_tail_line_that_is_not_read_expires_by_itself() -> None:
    tail = EventTail()
    tail.take(ANN, KINDS, 0.0)
    tail.record(event(1))
    tail.expire(HOLD_S)
    assert not tail.open
    assert numbers(tail, ANN, HOLD_S) == []


def test_who_wants_no_kind_ends_it_at_once() -> None:
    tail = EventTail()
    tail.take(ANN, KINDS, 0.0)
    tail.take(ANN, [], 0.1)
    assert not tail.open


def test_what_people_write_is_left_out_unless_it_is_allowed() -> None:
    for bodies, shown in ((False, None), (True, '"hi"')):
        tail = EventTail(bodies=bodies)
        tail.take(ANN, KINDS, 0.0)
        tail.record(event(), b'"hi"')
        assert [found.body for found in tail.take(ANN, KINDS, 0.0).events] == [shown]


@pytest.mark.parametrize("body", [b"x" * 100_000, b"\xff" * 5_000])
def test_a_long_body_is_cut(body: bytes) -> None:
    tail = EventTail(bodies=True)
    tail.take(ANN, KINDS, 0.0)
    tail.record(event(), body)
    (found,) = tail.take(ANN, KINDS, 0.0).events
    assert found.body is not None
    assert len(found.body) == BODY
    assert found.body.endswith("…")


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        (EventFilter(), [1, 2, 3]),
        (EventFilter(user="ann"), [1, 2]),
        (EventFilter(room="den"), [1, 3]),
        (EventFilter("ann", "den"), [1]),
        (EventFilter(user="nobody"), []),
    ],
)
def test_who_wants_some_events_only_is_not_kept_others(only: EventFilter, expected: list[int]) -> None:
    tail = EventTail()
    tail.take(ANN, KINDS, 0.0, only)
    for number, user, room in ((1, "ann", "den"), (2, "ann", "hall"), (3, "bob", "den")):
        tail.record(RecordedEvent(1_000, "rooms", "joined", "acme", user, room, number=number))
    for number in range(MOST):
        tail.record(RecordedEvent(1_000, "rooms", "joined", "acme", "carl", "cellar", number=100 + number))
    taken = tail.take(ANN, KINDS, 0.0, only)
    assert [event.number for event in taken.events][:3] == expected
    assert taken.skipped == (3 if only == EventFilter() else 0)  # filtered events are not counted as skipped


def test_the_first_look_finds_nothing_and_nothing_left_out() -> None:
    assert EventTail().take(ANN, KINDS, 0.0) == ([], 0)


def test_who_wants_no_kind_any_more_gets_nothing() -> None:
    tail = EventTail()
    tail.take(ANN, KINDS, 0.0)
    tail.record(event())
    assert tail.take(ANN, (), 1.0) == ([], 0)
    assert not tail.open


def test_what_was_collected_for_who_stayed_away_too_long_is_forgotten() -> None:
    tail = EventTail()
    tail.take(ANN, KINDS, 0.0)
    tail.record(event())
    assert numbers(tail, ANN, HOLD_S) == []


def test_bodies_are_shown_where_that_is_allowed_and_cut_where_they_are_longer() -> None:
    for tail, sent, shown in (
        (EventTail(), b"secret", None),
        (EventTail(bodies=True), b"." * BODY, "." * BODY),
        (EventTail(bodies=True), b"." * (BODY + 1), "." * (BODY - 1) + "…"),
    ):
        tail.take(ANN, KINDS, 0.0)
        tail.record(event(), sent)
        assert [found.body for found in tail.take(ANN, KINDS, 0.0).events] == [shown]
