"""API keys on two real nodes: created, rotated and revoked by the CLI directly in the store."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cluster.nodes import eventually, meanwhile, redis_url, serving
from e2e.processes import Process, greendot
from postgres_server import migrated_schema
from redis_servers import RedisProcess

HASTY = {
    "FORKED_FIRST": str(Path(__file__).parent / "hasty.py")
}  # tests/unit/store/test_read_cache.py tests the ten seconds


async def statuses(nodes: list[Process], key: str, path: str = "/v1/rooms") -> list[int]:
    return [(await node.ask("GET", path, key=key)).status for node in nodes]


async def is_refused(nodes: list[Process], key: str) -> bool:
    return {*await statuses(nodes, key)} == {401}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_key_is_rotated_and_revoked_on_all_nodes_without_a_refusal_in_between(
    kind: str, tmp_path: Path, redis: RedisProcess, postgres: str
) -> None:
    async with migrated_schema(postgres) as place:
        here = {"GREENDOT_STORE_URL": place, "GREENDOT_STORE_MIGRATE": "true"} if kind == "postgres" else {}

        async def keys(*arguments: str) -> str:
            ended = await greendot(tmp_path, "keys", *arguments, "--tenant", "acme", **here)
            assert ended.code == 0, ended.err
            return ended.out.strip()

        async with serving(tmp_path, *[redis_url(redis.port)] * 2, **here, **HASTY) as nodes:
            first = await keys("create", "backend", "--scope", "rooms:read")
            current, refused = [first], []

            async def ask() -> None:
                found = await statuses(nodes, key := current[0])
                if found != [200, 200]:
                    refused.append((key, found))
                await asyncio.sleep(0.05)

            async with meanwhile(ask):
                second = await keys("rotate", "backend", "--overlap", "3s")
                assert await statuses(nodes, first) == [200, 200]
                current[0] = second
                await eventually(lambda: is_refused(nodes, first), "the first key is refused")
            assert refused == []
            assert await statuses(nodes, second, "/v1/users/ann/presence") == [403, 403]
            await keys("revoke", "backend")
            await eventually(lambda: is_refused(nodes, second), "the second key is refused")
            logged = await asyncio.gather(*(stopped(node) for node in nodes))
            for key in (first, second):
                assert key.split("_")[2] not in "".join(logged)


async def stopped(node: Process) -> str:
    """Stop the node and return its output."""
    await node.kill()
    ended = await node.ended()
    return ended.out + ended.err
