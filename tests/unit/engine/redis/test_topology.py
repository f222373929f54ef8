"""Location of partitions, as the servers report it."""

from __future__ import annotations

import asyncio
import gc
import re
from collections import Counter
from pathlib import Path

import pytest

from greendot.engine.redis import topology
from greendot.engine.redis.keys import PARTITIONS, TAGS, slot
from greendot.engine.redis.topology import SLOTS, find
from greendot.engine.redis.url import Address, parse
from greendot.errors import EngineUnavailable
from redis_servers import KINDS, RedisProcess, free_port, redis_cluster, redis_sentinel
from waited import Lap

TOLD = Address("10.0.0.9", 7000)


def ranges(servers: int) -> list[list[object]]:
    """Return CLUSTER SLOTS of a cluster that is divided into equal parts."""
    edges = [16384 * number // servers for number in range(servers + 1)]
    return [[edges[n], edges[n + 1] - 1, [b"10.0.0.%d" % n, 6379, b"id", []]] for n in range(servers)]


def test_each_partition_is_in_the_slot_of_its_tag() -> None:
    assert [slot(f"presence:{{{tag}}}:00".encode()) for tag in TAGS] == SLOTS
    assert len(set(SLOTS)) == PARTITIONS


@pytest.mark.parametrize(("servers", "shares"), [(1, {128}), (3, {42, 43}), (6, {21, 22}), (12, {10, 11})])
def test_equal_servers_have_equal_shares_of_the_partitions(servers: int, shares: set[int]) -> None:
    layout = topology._layout(ranges(servers), TOLD)
    counts = Counter(layout)
    assert None not in counts
    assert len(counts) == servers
    assert {*counts.values()} == shares


def test_a_slot_without_a_server_is_a_partition_without_a_server() -> None:
    layout = topology._layout(ranges(3)[:2], TOLD)
    assert [address is None for address in layout] == [number * 3 // 16384 == 2 for number in SLOTS]


def test_a_slot_that_moved_alone_takes_its_partition_along() -> None:
    moved = [SLOTS[5], SLOTS[5], [b"10.0.0.8", 1, b"id", []]]
    before, after = topology._layout(ranges(3), TOLD), topology._layout([*ranges(3), moved], TOLD)
    assert [p for p in range(PARTITIONS) if before[p] != after[p]] == [5]
    assert after[5] == Address("10.0.0.8", 1)


def test_a_server_that_does_not_know_its_own_name_is_the_one_that_was_asked() -> None:
    assert {*topology._layout([[0, 16383, [b"", 7000, b"id", []]]], TOLD)} == {TOLD}


# --- real servers ---


async def test_one_server_has_everything_and_is_not_even_asked() -> None:
    place = parse(f"redis://127.0.0.1:{free_port()}")
    assert await find(place, set()) == [place.hosts[0]] * PARTITIONS


@pytest.mark.parametrize("kind", KINDS)
async def test_a_cluster_is_found_through_any_of_its_servers(kind: str, tmp_path: Path) -> None:
    with redis_cluster(kind, tmp_path) as cluster:
        whole = await find(parse(cluster.url), set())
        assert {*Counter(whole).values()} <= {42, 43, 44}
        seeds = {*whole}
        assert len(seeds) == 3
        nobody = Address("127.0.0.1", free_port())
        for seed in seeds:
            assert await find(parse(f"redis+cluster://{nobody},{seed}"), set()) == whole
        assert await find(parse(f"redis+cluster://{nobody}"), seeds) == whole


async def test_a_cluster_without_a_reachable_server_is_reported_with_the_reason_for_each_address() -> None:
    one, other = (Address("127.0.0.1", free_port()) for _ in range(2))
    with pytest.raises(EngineUnavailable, match="no server of the cluster") as caught:
        await find(parse(f"redis+cluster://{one},{other}"), set())
    for address in (one, other):
        assert re.search(rf"{re.escape(str(address))}: [^;]*(?i:connect)", str(caught.value))


async def test_a_server_that_is_down_is_reported_without_delay() -> None:
    """During a failover the other servers are queried repeatedly."""
    lap = Lap()
    with pytest.raises(EngineUnavailable):
        await find(parse(f"redis+cluster://127.0.0.1:{free_port()}"), set())
    assert lap.seconds < topology.ASK_S / 2


async def test_a_server_that_does_not_answer_is_named_with_that_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topology, "ASK_S", 0.2)
    with RedisProcess("redis", tmp_path) as process:
        process.stop()
        with pytest.raises(EngineUnavailable, match=rf"{process.port}: \S+"):
            await find(parse(f"redis+cluster://127.0.0.1:{process.port}"), set())


async def test_a_server_without_cluster_support_is_reported(tmp_path: Path) -> None:
    with RedisProcess("redis", tmp_path) as process, pytest.raises(EngineUnavailable, match="support disabled"):
        await find(parse(f"redis+cluster://127.0.0.1:{process.port}"), set())


async def test_a_sentinel_returns_the_primary_and_an_unknown_name_is_reported(tmp_path: Path) -> None:
    with redis_sentinel(tmp_path) as sentinel:
        layout = await find(parse(sentinel.url), set())
        assert len({*layout}) == 1
        base = sentinel.url.rpartition("/")[0]
        with pytest.raises(EngineUnavailable, match="no sentinel knows 'other'"):
            await find(parse(f"{base}/other"), set())


async def test_a_question_that_is_given_up_at_any_turn_leaves_no_connection(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    with redis_cluster("redis", tmp_path) as cluster:
        place, turns, is_done = parse(cluster.url), 0, False
        while not is_done:
            asking = loop.create_task(find(place, set()))
            for _ in range(turns):
                await asyncio.sleep(0)
            is_done = asking.done()
            asking.cancel()
            await asyncio.wait([asking])
            await asyncio.sleep(0)
            assert not open_transports(), f"a connection was left open after a cancellation in turn {turns}"
            turns += 1
        assert turns > 5


def open_transports() -> list[object]:
    gc.collect()
    made = [thing for thing in gc.get_objects() if type(thing).__name__ == "TCPTransport"]
    return [transport for transport in made if not transport.is_closing() and "closed=False" in repr(transport)]
