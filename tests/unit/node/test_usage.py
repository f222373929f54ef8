from __future__ import annotations

import pytest

from greendot.node import usage
from greendot.node.usage import UsageByTenant


def test_looking_makes_nothing() -> None:
    counted = UsageByTenant()
    assert counted.shown("acme").sends == 0
    assert [*counted] == []
    counted.of("acme").sends += 2
    assert counted.shown("acme").sends == 2
    assert counted.shown("Acme").sends == 0
    assert [*counted] == ["acme"]


def test_tenants_beyond_the_most_are_counted_together_and_shown_to_none_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(usage, "MOST", 3)
    counted = UsageByTenant()
    for number in range(10):
        counted.of(f"t{number}").connections += 1
    assert [*counted] == ["t0", "t1", "t2"]
    assert [counted.shown(f"t{number}").connections for number in range(10)] == [1] * 3 + [0] * 7
    for number in range(10):
        counted.of(f"t{number}").connections -= 1
    assert counted.of("t9").connections == 0


def test_everything_is_counted_from_nothing() -> None:
    fresh = UsageByTenant().of("acme")
    assert {
        name: getattr(fresh, name) for name in type(fresh).__slots__ if name != "closes" and getattr(fresh, name)
    } == {}
    assert fresh.closes == {}
