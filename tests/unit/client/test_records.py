from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greendot.client.codec import Truncated
from greendot.client.records import INBOX, MOST_EARLY, MOST_FETCHED, Cursors, Records

from .wire import a_message, a_notification

LOBBY = "room:lobby"


def following(last: int = 0) -> Records:
    records = Records()
    records.follow(LOBBY, last)
    return records


def fetch(records: Records, upto: int, head: int) -> list[int]:
    """Fetch records up to `upto` at once and return the numbers that were delivered."""
    line = records.line(LOBBY)
    assert line is not None
    told = [seq for seq in range(line.last + 1, upto + 1) if line.fetched(a_message(seq))]
    line.skip(line.target(head))
    while (record := line.next()) is not None:
        told.append(record.seq)
    line.settle()
    return told


def test_a_message_is_accepted_once() -> None:
    records = following(3)
    assert [seq for seq in (3, 4, 4, 5, 2, 6) if records.accept(a_message(seq))] == [4, 5, 6]
    assert records.rooms == {"lobby": 6}


def test_what_comes_before_its_turn_waits_for_what_is_missing() -> None:
    records = following(3)
    assert not records.accept(a_message(6))
    assert not records.accept(a_message(7))
    assert records.behind() == LOBBY
    assert records.rooms == {"lobby": 3}
    assert fetch(records, 6, 6) == [4, 5, 6, 7]
    assert records.behind() is None
    assert records.accept(a_message(8))


def test_numbers_that_cannot_be_fetched_are_of_records_that_are_gone() -> None:
    records = following(3)
    records.accept(a_message(9))
    assert fetch(records, 5, 5) == [4, 5, 9]
    assert records.behind() is None


def test_what_does_not_fit_while_something_is_fetched_is_fetched_next() -> None:
    records = following()
    more = MOST_EARLY + 10
    assert not any(records.accept(a_message(seq)) for seq in range(2, more + 1))
    assert fetch(records, 1, 1) == [*range(1, MOST_EARLY + 2)]
    assert records.behind() == LOBBY
    assert fetch(records, more, more) == [*range(MOST_EARLY + 2, more + 1)]
    assert records.behind() is None


def test_a_resync_while_something_is_fetched_is_fetched_next() -> None:
    records = following()
    assert records.missed(LOBBY)
    assert records.missed(LOBBY)
    fetch(records, 5, 5)
    assert records.behind() == LOBBY
    fetch(records, 9, 9)
    assert records.behind() is None
    assert not records.missed("room:elsewhere")


@given(st.lists(st.tuples(st.integers(1, 40), st.sampled_from(["live", "fetch", "resync", "lost"]))))
def test_records_in_any_order_are_delivered_once_in_order_and_without_gaps(steps: list[tuple[int, str]]) -> None:
    records, told, head = following(), [], 0
    for seq, step in steps:
        match step:
            case "live":
                head = max(head, seq)
                told += [seq] if records.accept(a_message(seq)) else []
            case "fetch" if records.behind():
                told += fetch(records, head, head)
            case "resync":
                records.missed(LOBBY)
            case "lost":
                records.restart()
                records.reach(LOBBY, head)
    while records.behind():
        told += fetch(records, head, head)
    assert told == [*range(1, head + 1)]


@pytest.mark.parametrize(
    ("head", "skipped"),
    [
        (10, None),
        (10 + MOST_FETCHED, None),
        (11 + MOST_FETCHED, Truncated(LOBBY, 10, 11 + MOST_FETCHED)),
        (4, Truncated(LOBBY, 10, 4)),  # the server lost records and restarted its numbers
    ],
)
def test_a_head_too_far_away_is_where_the_room_goes_on(head: int, skipped: Truncated | None) -> None:
    records = following(10)
    assert records.reach(LOBBY, head) == skipped
    assert records.rooms == {"lobby": head if skipped else 10}
    assert records.behind() == (None if skipped or head == 10 else LOBBY)


def test_the_inbox_is_followed_from_the_first_notification_or_from_where_it_stands() -> None:
    records = Records()
    assert records.inbox is None
    assert records.accept(a_notification(7))
    assert records.inbox == 7
    assert not records.accept(a_notification(7, ack=True))
    assert records.reach(INBOX, 7) is None
    assert records.behind() is None
    other = Records()
    assert other.reach(INBOX, 3) is None
    assert (other.inbox, other.behind()) == (3, None)


def test_an_unacknowledged_notification_is_passed_once_to_a_program_that_has_not_received_it() -> None:
    records = Records()
    records.reach(INBOX, 20)
    assert records.remind(a_notification(5, ack=True))
    assert not records.remind(a_notification(5, ack=True))
    assert not records.remind(a_notification(6))
    assert records.accept(a_notification(21, ack=True))
    assert not records.remind(a_notification(21, ack=True))
    assert records.reach(INBOX, 9000) is not None
    assert records.remind(a_notification(8000, ack=True))
    assert records.inbox == 9000


def test_a_reminder_does_not_set_the_inbox_cursor_before_it_is_known() -> None:
    records = Records()
    assert records.remind(a_notification(5, ack=True))
    assert records.inbox is None
    records.reach(INBOX, 20)
    assert (records.inbox, records.behind()) == (20, None)
    assert not records.remind(a_notification(5, ack=True))


def test_a_notification_that_is_not_kept_has_no_place() -> None:
    records = Records()
    assert records.accept(a_notification(0))
    assert records.accept(a_notification(0))
    assert records.inbox is None


def test_messages_of_rooms_that_are_not_followed_pass() -> None:
    assert Records().accept(a_message(7))


def test_cursors_are_plain_and_lead_back_to_where_they_were_taken() -> None:
    records = following(3)
    records.follow(INBOX, 9)
    kept = records.cursors([])
    assert kept == Cursors(rooms={"lobby": 3}, inbox=9)
    assert Records(json.loads(json.dumps(kept))).cursors([]) == kept


def test_cursors_stay_before_what_waits_and_forget_rooms_that_were_left() -> None:
    records = following(9)
    records.follow("room:hall", 4)
    records.leave("room:hall")
    assert records.cursors([{LOBBY: 6}, {LOBBY: 7, "room:hall": 1}]) == {"rooms": {"lobby": 6}, "inbox": None}
