"""Visibility rule, as a table and as properties."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greendot.visibility.model import PLAIN, Person, Policy, Privacy, Sight, VisibilityFacts, VisibilityPolicy, may_see

DAY = 86_400_000
NOW = 1_800_000_000_000


def sight(policy: Policy, ann: VisibilityFacts = PLAIN, bob: VisibilityFacts = PLAIN, *, said: bool = False) -> Sight:
    """Return how much Ann sees of Bob."""
    return may_see(VisibilityPolicy(policy, 30 * DAY), Person("ann", ann), Person("bob", bob), NOW, allowed_by_app=said)


def rooms(*names: str) -> VisibilityFacts:
    return VisibilityFacts(rooms=frozenset(names))


def knows(**contacts: int) -> VisibilityFacts:
    return VisibilityFacts(contacts=contacts)


@pytest.mark.parametrize(
    ("policy", "ann", "bob", "seen"),
    [
        ("tenant", PLAIN, PLAIN, True),
        ("shared_rooms", PLAIN, PLAIN, False),
        ("shared_rooms", rooms("a", "b"), rooms("b", "c"), True),
        ("shared_rooms", rooms("a"), rooms("b"), False),
        ("contacts", knows(bob=NOW), knows(ann=NOW), True),
        ("contacts", knows(bob=1), knows(ann=1), True),  # of any age
        ("contacts", knows(bob=NOW), PLAIN, False),
        ("contacts", PLAIN, knows(ann=NOW), False),
        ("contacts", knows(eve=NOW), knows(eve=NOW), False),
        ("recent_contacts", PLAIN, knows(ann=NOW), True),
        ("recent_contacts", PLAIN, knows(ann=NOW - 30 * DAY), True),
        ("recent_contacts", PLAIN, knows(ann=NOW - 30 * DAY - 1), False),
        ("recent_contacts", knows(bob=NOW), PLAIN, False),  # writing to a user does not make that user visible
        ("ask", rooms("a"), rooms("a"), False),
    ],
)
def test_a_policy_decides_which_users_see_which(
    policy: Policy, ann: VisibilityFacts, bob: VisibilityFacts, seen: bool
) -> None:
    assert sight(policy, ann, bob) == ("full" if seen else "hidden")


def test_the_app_may_be_asked_and_its_word_counts_nowhere_else() -> None:
    assert sight("ask", said=True) == "full"
    assert sight("contacts", said=True) == "hidden"


@pytest.mark.parametrize("policy", get_args(Policy))
def test_a_user_hides_from_whom_they_name_whatever_the_policy(policy: Policy) -> None:
    ann = VisibilityFacts(rooms=frozenset({"r"}), contacts={"bob": NOW})
    bob = VisibilityFacts(Privacy("shown", frozenset({"ann"})), frozenset({"r"}), {"ann": NOW})
    assert sight(policy, ann, bob, said=True) == "hidden"
    assert sight(policy, bob=PLAIN, ann=VisibilityFacts(Privacy("hidden", frozenset({"bob"})))) == sight(policy), (
        "hiding must not work in the other direction"
    )


@pytest.mark.parametrize("policy", get_args(Policy))
def test_the_last_seen_is_hidden_from_those_who_see_the_rest(policy: Policy) -> None:
    ann = VisibilityFacts(rooms=frozenset({"r"}), contacts={"bob": NOW})
    bob = VisibilityFacts(Privacy("hidden"), frozenset({"r"}), {"ann": NOW})
    assert sight(policy, ann, bob, said=True) == "without_last_seen"


def test_those_in_one_room_share_it() -> None:
    assert VisibilityPolicy("shared_rooms", 5).in_room == VisibilityPolicy("tenant", 5)
    for policy in ("tenant", "contacts", "recent_contacts", "ask"):
        assert VisibilityPolicy(policy).in_room == VisibilityPolicy(policy)  # type: ignore[arg-type]


users = st.sampled_from(["ann", "bob", "eve"])
facts = st.builds(
    VisibilityFacts,
    st.builds(Privacy, st.sampled_from(["shown", "hidden"]), st.frozensets(users)),
    st.frozensets(st.sampled_from(["r1", "r2"])),
    st.dictionaries(users, st.integers(NOW - 60 * DAY, NOW + DAY)),
)
policies = st.sampled_from(get_args(Policy))


@given(policies, facts)
def test_all_users_see_themselves(policy: Policy, own: VisibilityFacts) -> None:
    assert may_see(VisibilityPolicy(policy), Person("ann", own), Person("ann", own), NOW) == "full"


@given(policies, facts, facts, st.booleans())
def test_nothing_the_viewer_hides_changes_what_they_see(
    policy: Policy, ann: VisibilityFacts, bob: VisibilityFacts, said: bool
) -> None:
    bare = VisibilityFacts(Privacy(), ann.rooms, ann.contacts)
    assert sight(policy, ann, bob, said=said) == sight(policy, bare, bob, said=said)


@given(policies, facts, facts, st.booleans())
def test_hiding_more_never_shows_more(policy: Policy, ann: VisibilityFacts, bob: VisibilityFacts, said: bool) -> None:
    order: list[Any] = ["hidden", "without_last_seen", "full"]
    more = VisibilityFacts(Privacy("hidden", bob.privacy.hide_from | {"ann"}), bob.rooms, bob.contacts)
    discreet = VisibilityFacts(Privacy("hidden", bob.privacy.hide_from), bob.rooms, bob.contacts)
    seen = [order.index(sight(policy, ann, it, said=said)) for it in (more, discreet, bob)]
    assert seen == sorted(seen)
    assert seen[0] == 0


@given(facts, facts)
def test_sharing_a_room_and_being_contacts_is_mutual(ann: VisibilityFacts, bob: VisibilityFacts) -> None:
    ann, bob = VisibilityFacts(Privacy(), ann.rooms, ann.contacts), VisibilityFacts(Privacy(), bob.rooms, bob.contacts)
    for policy in ("shared_rooms", "contacts"):
        one, other = Person("ann", ann), Person("bob", bob)
        rule = VisibilityPolicy(policy)  # type: ignore[arg-type]
        assert may_see(rule, one, other, NOW) == may_see(rule, other, one, NOW)


def test_nothing_is_hidden_unless_something_is_set() -> None:
    assert (Privacy().is_plain, Privacy().rev) == (True, 0)
    assert not Privacy("hidden").is_plain
    assert not Privacy("shown", frozenset({"ann"})).is_plain


def test_which_policies_are_open_in_a_room_and_which_depend_on_the_viewer() -> None:
    assert {policy for policy in get_args(Policy) if VisibilityPolicy(policy).is_open} == {"tenant", "shared_rooms"}
    assert {policy for policy in get_args(Policy) if VisibilityPolicy(policy).is_mutual} == {"shared_rooms", "contacts"}


def test_a_contact_is_recent_for_thirty_days_and_policy_ask_hides_users_without_a_decision() -> None:
    assert VisibilityPolicy() == VisibilityPolicy("tenant", 30 * DAY)
    assert may_see(VisibilityPolicy("ask"), Person("ann", PLAIN), Person("bob", PLAIN), NOW) == "hidden"
