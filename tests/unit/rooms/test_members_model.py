"""Announced changes of members, in the order of their revisions."""

from __future__ import annotations

from greendot.rooms.members_model import MemberChanges


def test_changes_are_taken_up_to_the_first_gap() -> None:
    changes = MemberChanges()
    for revision, user in ((5, "eve"), (3, "cid"), (2, "bob"), (7, "fay")):
        changes.announce(revision, user)
    assert changes.take(1) == (3, {"bob", "cid"})
    assert changes.take(3) == (3, set())
    changes.announce(4, "dan")
    assert changes.take(3) == (5, {"dan", "eve"})
    assert changes.take(6) == (7, {"fay"})


def test_changes_up_to_the_applied_revision_are_forgotten() -> None:
    changes = MemberChanges()
    for revision in (2, 3, 4):
        changes.announce(revision, f"u{revision}")
    assert changes.take(3) == (4, {"u4"})
    assert changes.take(1) == (1, set())


def test_a_revision_is_missing_until_it_is_applied() -> None:
    changes = MemberChanges()
    assert not changes.is_missing(0)
    assert not changes.is_missing(-1)
    changes.expect(0)
    assert changes.is_missing(-1)
    assert not changes.is_missing(0)
    changes.announce(3, "ann")
    changes.expect(2)
    assert changes.is_missing(2)
    assert not changes.is_missing(3)


def test_all_is_forgotten_before_all_members_are_read() -> None:
    changes = MemberChanges()
    changes.announce(1, "ann")
    changes.forget()
    assert changes.take(0) == (0, set())
    assert not changes.is_missing(-1)
