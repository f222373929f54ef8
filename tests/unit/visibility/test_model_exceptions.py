"""Visibility exceptions of a room, compared with a plain table."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greendot.visibility.model import VisibilityExceptions

USERS = ["ann", "bob", "eve", "zoe"]
users = st.sampled_from(USERS)


@pytest.mark.parametrize("is_open", [True, False])
def test_people_see_themselves(is_open: bool) -> None:
    view_exceptions = VisibilityExceptions(is_open=is_open)
    assert view_exceptions.sees("ann", "ann")
    assert not view_exceptions.note("ann", "ann", sees=False)
    assert view_exceptions.sees("ann", "ann")
    assert view_exceptions.sees("ann", "bob") is is_open


def test_an_open_room_without_hiding_users_keeps_no_exceptions() -> None:
    view_exceptions = VisibilityExceptions(is_open=True)
    view_exceptions.came("ann", [])
    assert not view_exceptions.note("ann", "bob", sees=True)
    assert [*view_exceptions.viewers] == []
    assert view_exceptions.blind("bob", USERS) == []
    assert view_exceptions.count("ann", USERS) == 4


@given(
    st.booleans(),
    st.lists(
        st.tuples(st.just("note"), users, users, st.booleans())
        | st.tuples(st.just("came"), users, st.frozensets(users))
        | st.tuples(st.just("left"), users)
        | st.tuples(st.just("keep"), st.frozensets(users)),
        max_size=30,
    ),
)
def test_it_is_a_table_of_who_sees_whom(is_open: bool, steps: list[tuple[object, ...]]) -> None:
    view_exceptions = VisibilityExceptions(is_open=is_open)
    table = {(viewer, target): is_open for viewer in USERS for target in USERS if viewer != target}
    for name, *arguments in steps:
        match name, arguments:
            case "note", [viewer, target, sees]:
                new = table.get((viewer, target), sees) != sees
                assert view_exceptions.note(viewer, target, sees=sees) is new  # type: ignore[arg-type]
                if viewer != target:
                    table[viewer, target] = sees  # type: ignore[index, assignment]
            case "came", [viewer, exceptions]:
                view_exceptions.came(viewer, exceptions)  # type: ignore[arg-type]
                table |= {(v, t): (t in exceptions) != is_open for v, t in table if v == viewer}  # type: ignore[operator]
            case "left", [target]:
                view_exceptions.left(target)  # type: ignore[arg-type]
                table |= {(v, t): is_open for v, t in table if t == target}
            case "keep", [viewers]:
                view_exceptions.keep(viewers)  # type: ignore[arg-type]
                table |= {(v, t): is_open for v, t in table if v not in viewers}  # type: ignore[operator]
        for viewer in USERS:
            seen = [target for target in USERS if target == viewer or table[viewer, target]]
            assert [target for target in USERS if view_exceptions.sees(viewer, target)] == seen
            assert view_exceptions.count(viewer, USERS) == len(seen)
        for target in USERS:
            assert sorted(view_exceptions.blind(target, USERS)) == [
                v for v in USERS if not view_exceptions.sees(v, target)
            ]


@pytest.mark.parametrize("is_open", [True, False])
def test_who_has_no_exception_any_more_is_none_of_the_viewers_with_some(is_open: bool) -> None:
    view_exceptions = VisibilityExceptions(is_open=is_open)
    assert view_exceptions.note("ann", "bob", sees=not is_open)
    assert [*view_exceptions.viewers] == ["ann"]
    assert view_exceptions.note("ann", "bob", sees=is_open)
    assert [*view_exceptions.viewers] == []


def test_exception_targets_and_the_viewers_that_do_not_see_them_are_known() -> None:
    view_exceptions = VisibilityExceptions(is_open=True)
    view_exceptions.came("ann", ["bob", "eve", "ann"])
    view_exceptions.came("zoe", ["bob"])
    assert view_exceptions.targets == {"bob", "eve"}
    assert sorted(view_exceptions.blind("bob", [])) == ["ann", "zoe"]
    assert ({*view_exceptions.of_viewer("ann")}, {*view_exceptions.of_target("eve")}) == ({"bob", "eve"}, {"ann"})
    view_exceptions.left("bob")
    assert ([*view_exceptions.viewers], [*view_exceptions.targets]) == (["ann"], ["eve"])
    view_exceptions.came("ann", [])
    assert ([*view_exceptions.viewers], [*view_exceptions.targets]) == ([], [])
