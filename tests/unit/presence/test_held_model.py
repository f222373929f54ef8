"""Confirmation of changes while lost sessions are restored."""

from __future__ import annotations

import pytest

from greendot.presence.held_model import Seen, is_certain, is_confirmed, is_possible
from greendot.presence.model import Change, VisibleState
from greendot.protocol.events import State


@pytest.mark.parametrize(
    ("state", "confirming"),
    [
        ("online", {(Seen.ACTIVE, True), (Seen.ACTIVE, False)}),
        ("busy", {(seen, complete) for seen in (Seen.IDLE, Seen.ACTIVE) for complete in (True, False)}),
        ("idle", {(Seen.IDLE, True)}),
        ("offline", {(Seen.NOTHING, True)}),
    ],
)
def test_a_state_is_confirmed_by_sessions_and_an_absence_only_by_all_nodes(
    state: State, confirming: set[tuple[Seen, bool]]
) -> None:
    found = {(seen, full) for seen in Seen for full in (True, False) if is_confirmed(state, seen, complete=full)}
    assert found == confirming


@pytest.mark.parametrize(
    ("state", "most"), [("online", Seen.ACTIVE), ("busy", Seen.ACTIVE), ("idle", Seen.IDLE), ("offline", Seen.NOTHING)]
)
def test_a_state_is_possible_up_to_the_activity_that_contradicts_it(state: State, most: Seen) -> None:
    assert [seen for seen in Seen if is_possible(state, seen)] == [seen for seen in Seen if seen <= most]


def test_only_an_invisible_user_is_certain() -> None:
    hidden, shown = VisibleState("online", status="invisible"), VisibleState("online", status="busy")
    assert is_certain(Change(VisibleState(), hidden, None, [], True, True))
    assert not is_certain(Change(VisibleState(), shown, None, [], True, True))
