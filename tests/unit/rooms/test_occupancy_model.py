"""Occupancy: a user's first session enters, the last one leaves, and sessions of dead nodes do not count."""

from __future__ import annotations

from greendot.presence.model import NodeLife, SessionEpoch
from greendot.rooms.occupancy_model import Occupants

NODES = {"live": NodeLife(), "dying": NodeLife(900, 2_000)}
PHONE, LAPTOP = SessionEpoch("live-phone", "live", 1), SessionEpoch("dying-laptop", "dying", 1)


def test_the_first_session_enters_and_the_last_one_leaves() -> None:
    room = Occupants()
    assert room.enter("ann", PHONE, 1_000, NODES)
    assert not room.enter("ann", LAPTOP, 1_000, NODES)
    assert not room.exit("ann", PHONE.session, 1_000, NODES)
    assert room.users(1_000, NODES) == ["ann"]
    assert room.exit("ann", LAPTOP.session, 1_000, NODES)
    assert room.empty


def test_a_dead_nodes_sessions_count_until_its_end() -> None:
    room = Occupants()
    room.enter("ann", LAPTOP, 1_000, NODES)
    assert room.users(1_999, NODES) == ["ann"]
    assert room.users(2_000, NODES) == []
    assert room.enter("ann", PHONE, 2_000, NODES), "a session of a dead node must not count"
    assert room.exit("ann", PHONE.session, 2_000, NODES)


def test_a_session_whose_node_is_dead_for_good_or_unknown_does_not_leave() -> None:
    room = Occupants()
    room.enter("ann", LAPTOP, 1_000, NODES)
    assert not room.exit("ann", LAPTOP.session, 2_000, NODES)
    room.enter("bob", PHONE, 1_000, NODES)
    assert room.users(1_000, {}) == []


def test_a_session_goes_on_under_its_nodes_next_name() -> None:
    room = Occupants()
    room.enter("ann", LAPTOP, 1_000, NODES)
    assert not room.enter("ann", LAPTOP._replace(incarnation="live"), 1_000, NODES)
    assert room.users(5_000, NODES) == ["ann"]
    assert room.exit("ann", LAPTOP.session, 5_000, NODES)


def test_an_exit_of_an_absent_user_or_session_has_no_effect() -> None:
    room = Occupants()
    assert not room.exit("ann", PHONE.session, 1_000, NODES)
    room.enter("ann", PHONE, 1_000, NODES)
    assert not room.exit("bob", PHONE.session, 1_000, NODES)
    assert not room.exit("ann", "live-other", 1_000, NODES)
    assert room.users(1_000, NODES) == ["ann"]


def test_sessions_that_count_are_named_and_nodes_whether_they_count_or_not() -> None:
    room = Occupants()
    room.enter("ann", PHONE, 1_000, NODES)
    room.enter("ann", LAPTOP, 1_000, NODES)
    assert room.sessions("ann", 1_000, NODES) == {PHONE.session, LAPTOP.session}
    assert room.sessions("ann", 1_000, {PHONE.incarnation: NODES[PHONE.incarnation]}) == {PHONE.session}
    assert room.sessions("bob", 1_000, NODES) == set()
    assert room.nodes() == {PHONE.incarnation, LAPTOP.incarnation}


def test_a_page_follows_a_user_and_counts_all_who_are_there() -> None:
    room = Occupants()
    assert room.page(None, 9, 1_000, NODES) == ([], 0)
    for user, ref in (("cid", PHONE), ("ann", PHONE), ("bob", LAPTOP), ("ann", LAPTOP)):
        room.enter(user, ref, 1_000, NODES)
    assert room.page(None, 2, 1_000, NODES) == (["ann", "bob"], 3)
    assert room.page("ann", 1, 1_000, NODES) == (["bob"], 3)
    assert room.page("b", 9, 1_000, NODES) == (["bob", "cid"], 3)
    assert room.page("cid", 9, 1_000, NODES) == ([], 3)
    assert room.page(None, 0, 1_000, NODES) == ([], 3)
    assert room.page(None, 9, 2_000, NODES) == (["ann", "cid"], 2)
    assert room.exit("cid", PHONE.session, 1_000, NODES)
    assert room.page(None, 9, 1_000, NODES) == (["ann", "bob"], 2)
