"""Keys stay in one slot per verb and spread evenly over the servers of a cluster."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greendot.engine.base import Topic
from greendot.engine.redis.keys import TAGS, channel, nodes_key, partition_of, slot, typing_key, user_keys

ids = st.from_regex(r"\A[A-Za-z0-9_][A-Za-z0-9_.@=+-]{0,20}\Z")


@pytest.mark.parametrize("servers", [3, 6, 12])
def test_partitions_spread_evenly_over_equal_ranges_of_slots(servers: int) -> None:
    counts = [0] * servers
    for tag in TAGS:
        counts[slot(f"presence:{{{tag}}}:00".encode()) * servers // 16384] += 1
    assert max(counts) - min(counts) <= 1


def test_tags_are_all_different() -> None:
    assert len(set(TAGS)) == len(TAGS) == 128


def test_the_slot_is_redis_own() -> None:
    assert slot(b"123456789") == 0x31C3 % 16384
    assert slot(b"{user1000}.following") == slot(b"user1000")
    assert slot(b"foo{}{bar}") == slot(b"foo{}{bar}x"[:-1])


@given(tenant=ids, name=ids)
def test_everything_a_verb_touches_is_in_one_slot(tenant: str, name: str) -> None:
    where = user_keys("p:", tenant, name)
    slots = {slot(key.encode()) for key in (where.presence, where.seen, where.nodes, where.channel)}
    assert len(slots) == 1
    assert where.channel == channel("p:", Topic("watch", tenant, name))
    assert where.nodes == nodes_key("p:", partition_of(tenant, name))
    room = {slot(typing_key("p:", tenant, name).encode()), slot(channel("p:", Topic("room", tenant, name)).encode())}
    assert len(room) == 1
