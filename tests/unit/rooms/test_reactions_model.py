"""Set semantics of reactions."""

from __future__ import annotations

import pytest

from greendot.errors import NoSuchMessage, Refused
from greendot.rooms.reactions_model import GONE, MARK, MOST, Choice, MessageReactions

ANN, BOB = Choice("ann", "+"), Choice("bob", "+")


def message(counts: dict[str, int] | None = None) -> MessageReactions:
    return MessageReactions("lobby", 7, {} if counts is None else counts)


def test_a_reaction_that_is_not_set_has_to_be_written_and_its_removal_has_not() -> None:
    state = message()
    assert state.decided_by(ANN, on=True) is None
    assert state.decided_by(ANN, on=False) == 7
    assert state.changes() == ([], {})


def test_a_reaction_that_is_set_is_decided_by_its_record_until_it_is_removed() -> None:
    state = message({"+": 1})
    state.load(ANN, 9)
    assert state.decided_by(ANN, on=True) == 9
    assert state.decided_by(ANN, on=False) is None
    state.write(ANN, 12, on=False)
    assert state.decided_by(ANN, on=False) == 7
    assert state.decided_by(ANN, on=True) is None
    assert state.changes() == ([ANN], {})


def test_a_reaction_written_in_this_transaction_counts() -> None:
    state = message()
    state.write(ANN, 8, on=True)
    assert state.decided_by(ANN, on=True) == 8
    assert state.decided_by(BOB, on=True) is None
    assert state.changes() == ([], {ANN: 8})


def test_what_is_set_again_gets_the_new_number() -> None:
    state = message({"+": 2})
    state.load(ANN, 9)
    state.load(BOB, 10)
    state.write(ANN, 12, on=False)
    state.write(ANN, 13, on=True)
    assert state.decided_by(ANN, on=True) == 13
    assert state.changes() == ([ANN], {ANN: 13})


def test_what_is_set_and_removed_leaves_nothing_to_write() -> None:
    state = message()
    state.write(ANN, 8, on=True)
    state.write(ANN, 9, on=False)
    assert state.changes() == ([], {})


@pytest.mark.parametrize("counts", [None, {MARK: GONE}])
def test_a_missing_or_deleted_message_takes_no_reactions(counts: dict[str, int] | None) -> None:
    state = MessageReactions("lobby", 7, counts)
    for on in (True, False):
        with pytest.raises(NoSuchMessage, match="lobby"):
            state.decided_by(ANN, on=on)


def test_a_message_that_is_deleted_loses_its_reactions() -> None:
    state = message({"+": 1})
    state.load(ANN, 9)
    state.write(BOB, 10, on=True)
    state.close()
    assert state.changes() == ([ANN], {})
    with pytest.raises(NoSuchMessage):
        state.decided_by(BOB, on=True)


def test_a_message_that_lost_its_reactions_takes_others() -> None:
    state = message({MARK: 0} | {str(number): 1 for number in range(MOST - 1)})
    assert state.decided_by(ANN, on=True) is None


def test_there_are_at_most_so_many_different_reactions() -> None:
    state = message({str(number): 1 for number in range(MOST - 1)})
    assert state.decided_by(ANN, on=True) is None
    state.write(ANN, 8, on=True)
    with pytest.raises(Refused, match="message 7 has 20 different reactions") as refused:
        state.decided_by(Choice("bob", "-"), on=True)
    assert refused.value.code == "too_many"
    assert state.decided_by(BOB, on=True) is None
    assert state.decided_by(Choice("bob", "-"), on=False) == 7


def test_a_reaction_without_users_leaves_room_for_another() -> None:
    state = message({str(number): 1 for number in range(MOST - 1)})
    state.write(ANN, 8, on=True)
    state.write(BOB, 9, on=True)
    state.write(ANN, 10, on=False)
    with pytest.raises(Refused):
        state.decided_by(Choice("cy", "-"), on=True)
    state.write(BOB, 11, on=False)
    assert state.decided_by(Choice("cy", "-"), on=True) is None
