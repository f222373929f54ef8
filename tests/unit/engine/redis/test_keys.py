"""Keys: one slot per verb, spread evenly over the servers of a cluster."""

from __future__ import annotations

from binascii import crc_hqx

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greendot.engine.messages import Topic
from greendot.engine.redis.keys import (
    TAGS,
    beat_channel,
    bucket_names,
    bucket_with,
    buckets,
    channel,
    claim_key,
    leases_key,
    nodes_key,
    number_of,
    partition_of,
    present_key,
    slot,
    typing_key,
    user_keys,
    watch_channels,
)

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
    assert slot(b"foo{{bar}}zap") == slot(b"{bar")
    assert slot(b"foo{bar}{zap}") == slot(b"bar")


@given(st.binary(max_size=20).filter(lambda key: b"{" not in key))
def test_a_key_without_a_tag_is_in_the_slot_of_its_checksum(key: bytes) -> None:
    assert slot(key) == crc_hqx(key, 0) % 16384


@pytest.mark.parametrize("key", [b"foo{}{bar}", b"{}x}", b"foo{bar", b"ab}c", b"}{", b"{"])
def test_a_tag_that_is_empty_or_open_is_none(key: bytes) -> None:
    assert slot(key) == crc_hqx(key, 0) % 16384


@pytest.mark.parametrize("key", [b"{a}", b"{a}b", b"b{a}", b"}{a}b", b"}}{a}"])
def test_a_tag_may_be_one_character_anywhere_in_a_key(key: bytes) -> None:
    assert slot(key) == crc_hqx(b"a", 0) % 16384


@given(tenant=ids, name=ids)
def test_everything_a_verb_touches_is_in_one_slot(tenant: str, name: str) -> None:
    where = user_keys("p:", tenant, name)
    slots = {slot(key.encode()) for key in (*where.buckets(128), *where.buckets(3), where.nodes, where.channel)}
    assert len(slots) == 1
    assert where.channel == channel("p:", Topic("watch", tenant, name))
    assert where.nodes == nodes_key("p:", partition_of(tenant, name))
    room = {slot(typing_key("p:", tenant, name).encode()), slot(channel("p:", Topic("room", tenant, name)).encode())}
    assert len(room) == 1


# Nodes of other releases read and write the same keys, so the keys are a contract.


def test_a_user_is_in_one_of_128_buckets_of_one_of_128_partitions() -> None:
    assert number_of("acme", "ann") == (4, 51)
    assert number_of("acme", "lobby") == (120, 114)
    assert partition_of("acme", "lobby") == 120


def test_the_keys_of_a_user() -> None:
    where = user_keys("p:", "acme", "ann")
    assert (where.field, where.partition) == ("acme/ann", 4)
    assert where.buckets(128) == ("p:presence:{a2j}:33", "p:seen:{a2j}:33")
    assert where.buckets(4) == ("p:presence:{a2j}:20", "p:seen:{a2j}:20")
    assert where.buckets(1) == ("p:presence:{a2j}:00", "p:seen:{a2j}:00")
    assert where.nodes == "p:nodes:{a2j}"
    assert where.channel == "p:watch:{a2j}:acme/ann"


def test_the_keys_of_a_partition() -> None:
    assert nodes_key("p:", 1) == "p:nodes:{d5m}"
    assert beat_channel("p:", 2, "n1") == "p:beat:{7me}:n1"
    assert watch_channels("p:", 3) == "p:watch:{3xc}:"
    assert buckets("p:", 5, 10) == ("p:presence:{0i4}:0a", "p:seen:{0i4}:0a")


def test_what_is_there_once_is_in_the_first_partition() -> None:
    assert leases_key("p:") == "p:leases:{5n3}"
    assert claim_key("p:", "reap") == "p:claim:{5n3}:reap"


def test_the_keys_of_a_room() -> None:
    assert typing_key("p:", "acme", "lobby") == "p:typing:{312}:acme/lobby"
    assert present_key("p:", "acme", "lobby") == "p:present:{312}:acme/lobby"
    assert channel("p:", Topic("room", "acme", "lobby")) == "p:room:{312}:acme/lobby"


def test_the_channel_of_a_node_names_no_tenant() -> None:
    assert channel("p:", Topic("node", "", "n1")) == "p:node:{221}:n1"


# --- growth of a partition ---


def test_with_all_buckets_each_number_has_its_own() -> None:
    assert bucket_names(128) == (*range(128),)


def test_buckets_are_divided_from_left_to_right() -> None:
    assert [bucket_names(count) for count in (1, 2, 3, 4, 5)] == [
        (0,),
        (0, 64),
        (0, 32, 64),
        (0, 32, 64, 96),
        (0, 16, 32, 64, 96),
    ]


@pytest.mark.parametrize("count", range(1, 128))
def test_one_bucket_more_takes_the_upper_half_of_one_bucket_and_changes_no_other(count: int) -> None:
    (added,) = {*bucket_names(count + 1)} - {*bucket_names(count)}
    assert len(bucket_names(count)) == count
    divided = bucket_with(added, count)
    moved = [number for number in range(128) if bucket_with(number, count) != bucket_with(number, count + 1)]
    assert {bucket_with(number, count) for number in moved} == {divided}
    assert {bucket_with(number, count + 1) for number in moved} == {added}
    assert moved == [number for number in range(128) if bucket_with(number, count) == divided and number >= added]
    assert 2 * len(moved) == sum(bucket_with(number, count) == divided for number in range(128))
