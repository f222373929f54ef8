"""Live counts of reactions, in the Python client."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import UNSET, Raw

from greendot.client import Reactions
from greendot.client.reactions import MOST_MESSAGES
from greendot.protocol.events import ReactionCount, RoomMessage


def a_message(seq: int, **more: object) -> RoomMessage:
    return RoomMessage("lobby", seq, f"m{seq}", "app", None, Raw(b"1"), 0, **more)  # type: ignore[arg-type]


def a_reaction(seq: int, user: str, reaction: str = "+", *, on: bool = True, ref: int = 1) -> RoomMessage:
    body = Raw(msgspec.json.encode({"reaction": reaction}))
    return RoomMessage("lobby", seq, f"m{seq}", user, None, body, 0, ref, "react" if on else "unreact")


def a_page(count: int, reacted: int, *, mine: bool = False) -> RoomMessage:
    return a_message(1, reactions=[ReactionCount("+", count, mine)] if count else [], reacted=reacted)


def counts(reactions: Reactions, seq: int = 1) -> list[tuple[str, int, bool]]:
    return [(of.reaction, of.count, bool(of.mine)) for of in reactions.of(seq)]


def test_reactions_are_counted_as_they_come() -> None:
    live = Reactions("ann")
    assert live.apply(a_message(1)) is None
    assert live.apply(a_reaction(2, "ann")) == 1
    assert live.apply(a_reaction(3, "bob")) == 1
    assert live.apply(a_reaction(4, "bob", "!")) == 1
    assert counts(live) == [("+", 2, True), ("!", 1, False)]
    assert live.apply(a_reaction(5, "ann", on=False)) == 1
    assert counts(live) == [("+", 1, False), ("!", 1, False)]
    assert live.apply(a_reaction(6, "bob", on=False)) == 1
    assert counts(live) == [("!", 1, False)]
    assert counts(live, 9) == []


def test_a_record_is_counted_once() -> None:
    live = Reactions()
    for _ in range(2):
        for record in (a_message(1), a_reaction(2, "ann"), a_reaction(3, "bob")):
            live.apply(record)
    assert counts(live) == [("+", 2, False)]


def test_a_page_counts_up_to_its_number() -> None:
    live = Reactions("ann")
    assert live.apply(a_page(4, reacted=7, mine=True)) == 1
    assert live.apply(a_reaction(7, "bob")) is None
    assert live.apply(a_reaction(8, "bob")) == 1
    assert counts(live) == [("+", 5, True)]
    assert live.apply(a_page(4, reacted=7)) is None  # an older page
    assert live.apply(a_page(5, reacted=8)) is None  # nothing new
    assert live.apply(a_page(0, reacted=9)) == 1
    assert counts(live) == []


@pytest.mark.parametrize("place", range(3))
def test_a_reaction_that_overtakes_a_page_that_was_read_before_it_counts(place: int) -> None:
    records = [a_reaction(8, "bob"), a_reaction(9, "cy")]
    records.insert(place, a_page(2, reacted=7))
    live = Reactions()
    for record in records:
        live.apply(record)
    assert counts(live) == [("+", 4, False)]


def test_only_reactions_after_the_number_of_a_page_are_added_to_it() -> None:
    live = Reactions()
    for record in (
        a_reaction(8, "bob"),
        a_reaction(12, "cy"),
        a_reaction(3, "dan"),
    ):  # the last one is of an older page
        live.apply(record)
    live.apply(a_page(2, reacted=10))
    assert counts(live) == [("+", 3, False)]


def test_a_deleted_or_erased_message_has_no_reactions() -> None:
    live = Reactions()
    live.apply(a_page(2, reacted=7))
    assert live.apply(a_message(8, ref=1, op="delete")) == 1
    assert live.apply(a_reaction(9, "bob")) is None
    assert live.apply(a_page(2, reacted=9)) is None
    assert live.apply(a_message(10, op="erased")) is None
    assert live.apply(a_reaction(11, "bob", ref=10)) is None
    assert (counts(live), counts(live, 10)) == ([], [])


def test_edits_and_unknown_operations_change_nothing() -> None:
    live = Reactions()
    live.apply(a_page(2, reacted=7))
    for op in ("edit", "erased", "praise"):
        assert live.apply(a_message(8, ref=1, op=op)) is None
    assert counts(live) == [("+", 2, False)]
    assert live.apply(a_reaction(9, "bob", ref=8)) is None  # which is no message
    assert a_message(1).reactions is UNSET


def test_the_number_of_messages_is_bounded() -> None:
    live = Reactions()
    for seq in range(1, MOST_MESSAGES + 3):
        live.apply(a_message(seq))
    assert live.apply(a_reaction(MOST_MESSAGES + 5, "ann", ref=2)) is None
    assert live.apply(a_reaction(MOST_MESSAGES + 6, "ann", ref=3)) == 3
