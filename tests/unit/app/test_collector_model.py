"""Decision to collect all memory: only growth that the load does not explain counts."""

from __future__ import annotations

import pytest

from greendot.app.collector_model import (
    CONNECTION_BYTES,
    GROWTH,
    SPARE_BYTES,
    STEP,
    TOPIC_BYTES,
    MemoryGrowth,
    NodeLoad,
)

MB = 1_000_000
NOBODY = NodeLoad(0, 0)


def limit(explained: int) -> int:
    return int(explained * GROWTH + SPARE_BYTES)


def test_the_load_explains_memory_of_connections_and_topics() -> None:
    assert NodeLoad(3, 5).bytes == 3 * CONNECTION_BYTES + 5 * TOPIC_BYTES


def test_growth_beyond_the_limit_is_unexplained() -> None:
    growth = MemoryGrowth(100 * MB, NOBODY)
    assert not growth.is_unexplained(limit(100 * MB), NOBODY)
    assert growth.is_unexplained(limit(100 * MB) + 1, NOBODY)


@pytest.mark.parametrize("load", [NodeLoad(1_000, 0), NodeLoad(0, 32_000)])
def test_growth_with_the_load_is_explained(load: NodeLoad) -> None:
    growth = MemoryGrowth(100 * MB, NodeLoad(10, 20))
    explained = 100 * MB + load.bytes - NodeLoad(10, 20).bytes
    assert not growth.is_unexplained(limit(explained), load)
    assert growth.is_unexplained(limit(explained) + 1, load)


def test_a_smaller_load_does_not_lower_the_limit() -> None:
    growth = MemoryGrowth(100 * MB, NodeLoad(500, 0))
    assert not growth.is_unexplained(limit(100 * MB), NOBODY)


def test_memory_that_the_load_does_not_need_is_no_reserve_for_a_leak() -> None:
    growth, load = MemoryGrowth(100 * MB, NOBODY), NodeLoad(10_000, 0)  # explains 655 MB more
    assert not growth.is_unexplained(200 * MB, load)
    assert not growth.is_unexplained(limit(200 * MB), load)
    assert growth.is_unexplained(limit(200 * MB) + 1, load)


def test_a_slow_leak_does_not_move_the_start() -> None:
    growth = MemoryGrowth(100 * MB, NOBODY)
    found = [growth.is_unexplained(memory * MB, NOBODY) for memory in range(100, 220)]
    assert found.index(True) == (limit(100 * MB) // MB) + 1 - 100


def test_a_small_growth_of_the_load_does_not_move_the_start() -> None:
    growth = MemoryGrowth(100 * MB, NOBODY)
    load = NodeLoad(0, int((STEP - 1) * 100 * MB) // TOPIC_BYTES)
    assert not growth.is_unexplained(90 * MB, load)
    assert not growth.is_unexplained(limit(100 * MB), NOBODY)
