"""Table of known facts: listed tenants, single users, and the users who hide from a viewer."""

from __future__ import annotations

import pytest

from greendot.visibility import facts_model
from greendot.visibility.facts_model import FactTable
from greendot.visibility.model import PLAIN, Privacy, VisibilityFacts

T = "t1"
LAST_SEEN = VisibilityFacts(Privacy("hidden", rev=1))


@pytest.fixture(autouse=True, params=[facts_model.SMALL, 1], ids=["few users", "many users"])
def _size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_model, "SMALL", request.param)


def hiding(*users: str) -> VisibilityFacts:
    return VisibilityFacts(Privacy(hide_from=frozenset(users), rev=1))


def test_facts_of_single_users_are_known_or_not() -> None:
    table = FactTable()
    assert (table.get(T, "ann"), table.has(T, "ann"), table.is_listed(T)) == (None, False, False)
    assert not table.put(T, "ann", PLAIN)
    assert (table.get(T, "ann"), table.get(T, "bob"), table.get("t2", "ann")) == (PLAIN, None, None)
    assert (table.has(T, "ann"), table.has("t2", "ann"), [*table.users(T)], table.size) == (True, False, ["ann"], 1)
    assert not table.put(T, "ann", PLAIN)
    assert table.put(T, "ann", LAST_SEEN)
    assert table.size == 1
    table.remove(T, "ann")
    table.remove(T, "ann")
    table.remove("t2", "ann")
    assert (table.get(T, "ann"), [*table.users(T)], [*table.users("t2")], table.size) == (None, [], [], 0)


def test_in_a_listed_tenant_other_users_hide_nothing() -> None:
    table = FactTable()
    assert table.list_all(T, {"ann": LAST_SEEN, "bob": PLAIN}) == set()  # nothing was known before
    assert (table.get(T, "ann"), table.get(T, "bob"), table.is_listed(T)) == (LAST_SEEN, PLAIN, True)
    assert ([*table.users(T)], table.size) == (["ann"], 1)
    assert table.put(T, "cid", LAST_SEEN)
    assert not table.put(T, "dan", PLAIN)
    assert table.has(T, "dan")
    table.unlist(T)
    assert (table.is_listed(T), table.get(T, "dan"), table.get(T, "eve")) == (False, PLAIN, None)


def test_a_new_list_returns_the_users_with_other_facts() -> None:
    table = FactTable()
    table.put(T, "ann", PLAIN)
    table.put(T, "bob", LAST_SEEN)
    table.put(T, "cid", LAST_SEEN)
    assert table.list_all(T, {"ann": LAST_SEEN, "bob": LAST_SEEN, "dan": LAST_SEEN}) == {"ann", "cid"}
    assert table.list_all(T, {"ann": LAST_SEEN, "eve": hiding("x"), "fay": PLAIN}) == {"bob", "dan", "eve"}
    assert table.list_all(T, {"ann": LAST_SEEN, "eve": hiding("y")}) == {"eve"}
    assert table.size == 2


def test_the_users_who_hide_from_a_viewer_are_known() -> None:
    table = FactTable()
    table.put(T, "ann", hiding("bob", "cid"))
    table.put(T, "dan", hiding("bob"))
    assert (table.hiders_from(T, "bob"), table.hiders_from(T, "cid")) == ({"ann", "dan"}, {"ann"})
    assert table.hiders_from("t2", "bob") == table.hiders_from(T, "ann") == frozenset()
    table.put(T, "ann", hiding("cid", "eve"))
    assert (table.hiders_from(T, "bob"), table.hiders_from(T, "eve")) == ({"dan"}, {"ann"})
    table.remove(T, "dan")
    assert table.hiders_from(T, "bob") == frozenset()
    table.list_all(T, {"fay": hiding("bob")})
    assert (table.hiders_from(T, "bob"), table.hiders_from(T, "cid")) == ({"fay"}, frozenset())


def test_a_forgotten_tenant_is_unknown_again() -> None:
    table = FactTable()
    table.list_all(T, {"ann": hiding("bob")})
    table.put("t2", "ann", LAST_SEEN)
    table.forget(T)
    table.forget("t3")
    assert (table.is_listed(T), table.get(T, "ann"), table.hiders_from(T, "bob")) == (False, None, frozenset())
    assert (table.get("t2", "ann"), table.size) == (LAST_SEEN, 1)
    assert (table.has_any(T), table.has_any("t2")) == (False, True)


def test_all_users_are_listed_and_freed_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_model, "SMALL", 1)
    monkeypatch.setattr(facts_model, "FREED", 1)
    table, users = FactTable(), {f"u{number}" for number in range(1_000)}
    for user in users:
        table.put(T, user, LAST_SEEN)
    steps = [*table.steps(T, 100)]
    assert len(steps) > 5
    assert sorted(user for some in steps for user in some) == sorted(users)
    assert table.has_any(T)
    table.forget(T)
    assert (table.has_any(T), table.size, table.get(T, "u1")) == (False, 0, None)
    assert len([*table.free()]) > 5
    assert [*table.free()] == []
