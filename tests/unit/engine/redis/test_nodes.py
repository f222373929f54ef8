"""Deaths of nodes, as one node reads them from the table of all nodes."""

from __future__ import annotations

from typing import cast

from greendot.engine.redis.nodes import Death, LeasePeriods, NodeLeases, NodeTable
from greendot.engine.redis.presence import Verbs
from greendot.testing.clock import ManualClock

NOW = 1_000_000


def table(now: int, **lives: str) -> NodeTable:
    return NodeTable(dict(lives), {}, now)


def dead(renewed: int, ends: int) -> str:
    return f"{renewed:x},{ends:x}"


def test_the_end_of_a_dead_node_is_returned_once() -> None:
    leases = NodeLeases(cast(Verbs, None), ManualClock(), LeasePeriods())
    assert leases.ending(table(NOW, a="live", b=dead(NOW, NOW + 30_000))) == []
    later = table(NOW + 29_500, a="live", b=dead(NOW, NOW + 30_000))
    assert leases.ending(later) == [Death("b", NOW + 30_000)]
    assert leases.ending(later) == []


def test_a_second_death_is_returned_also_if_the_node_was_never_read_as_live_in_between() -> None:
    """Redis has returned with data from before the death, and another node has buried the node again."""
    leases = NodeLeases(cast(Verbs, None), ManualClock(), LeasePeriods())
    leases.ending(table(NOW, b=dead(NOW, NOW)))
    again = table(NOW + 60_000, b=dead(NOW, NOW + 60_000))
    assert leases.ending(again) == [Death("b", NOW + 60_000)]
    assert leases.ending(again) == []
