"""Division of send slots among tenants: a tenant whose sends hang leaves slots for others."""

from __future__ import annotations

from greendot.push.policy_model import divide


def test_a_tenant_takes_no_more_than_remain_free() -> None:
    assert divide({"a": 3_000}, 500, {}) == {"a": 250}
    assert divide({"a": 3_000}, 250, {"a": 250}) == {}
    assert divide({"a": 3_000, "b": 5}, 250, {"a": 250}) == {"b": 5}
    assert divide({"b": 3_000}, 250, {"a": 250}) == {"b": 125}


def test_every_hanging_tenant_leaves_room_for_the_next() -> None:
    held: dict[str, int] = {}
    for tenant in "abcdefgh":
        held |= divide({tenant: 10_000}, 500 - sum(held.values()), held)
    assert divide({"next": 1}, 500 - sum(held.values()), held) == {"next": 1}
    due = dict.fromkeys((f"t{number}" for number in range(4)), 1_000)
    assert divide(due, 500, {}) == dict.fromkeys(due, 100)


def test_the_tenant_with_the_fewest_is_served_first() -> None:
    assert divide({"a": 9, "b": 9, "c": 1}, 5, {"a": 3, "c": 3}) == {"b": 3}
    assert divide({"a": 9, "b": 9}, 4) == {"a": 2, "b": 2}
    assert divide({"a": 9, "b": 1}, 4) == {"a": 3, "b": 1}


def test_without_held_slots_nothing_is_kept_free() -> None:
    assert divide({"a": 9}, 4) == {"a": 4}
    assert divide({"a": 2}, 4) == {"a": 2}
    assert divide({"a": 2}, 0) == divide({}, 4) == divide({"a": 0}, 4) == {}


def test_one_slot_is_given_away() -> None:
    assert divide({"a": 9}, 1, {}) == {"a": 1}
    assert divide({"a": 9, "b": 9}, 1, {"a": 1}) == {"b": 1}


def test_no_tenant_takes_more_than_is_due() -> None:
    assert divide({"a": 1, "b": 2}, 100, {}) == {"a": 1, "b": 2}
    assert divide({"a": -1}, 4) == {}
    assert divide({"a": 1}, -1) == {}
