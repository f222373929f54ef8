"""Revocation on several real nodes with one real Redis, in real time."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from cluster.nodes import Clients, redis_url, serving
from e2e.processes import Answer, Process, until
from greendot.testing import Closed
from postgres_server import migrated_schema
from redis_servers import RedisProcess
from waited import Lap


async def revoke(node: Process, **body: Any) -> Answer:
    return await node.ask("POST", "/v1/tokens/revoke", body)


@pytest.mark.timeout(90)
@pytest.mark.timing
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_sockets_on_every_node_are_closed_within_a_second_and_do_not_come_back(
    kind: str, tmp_path: Path, redis: RedisProcess, postgres: str
) -> None:
    async with migrated_schema(postgres) as place:
        here = {"GREENDOT_STORE_URL": place, "GREENDOT_STORE_MIGRATE": "true"} if kind == "postgres" else {}
        async with serving(tmp_path, *[redis_url(redis.port)] * 3, **here) as nodes, Clients() as clients:
            alices = [await clients.join(node, "alice") for node in nodes for _ in range(3)]
            bobs = [await clients.join(node, "bob") for node in nodes]
            session = alices[-1].client.welcome["session"]
            answer = await revoke(nodes[0], session=session)
            assert (answer.status, answer.json()["closed"]) == (200, 1)
            await until(lambda: alices[-1].closed is not None)
            await asyncio.sleep(1.1)  # the issue time of tokens has whole seconds
            lap = Lap(*(node.pid for node in nodes))
            answer = await revoke(nodes[1], user="alice")
            assert (answer.status, answer.json()["closed"]) == (200, len(alices) - 1)
            await until(lambda: all(alice.closed is not None for alice in alices))
            assert lap.seconds < 1.0
            assert {alice.closed.code for alice in alices if alice.closed is not None} == {4501}
            assert all(bob.closed is None for bob in bobs)
            await asyncio.sleep(1.1)
            for node in nodes:
                with pytest.raises(Closed) as closed:
                    await node.client("alice", resume={"session": session})
                assert closed.value.code == 4501
                await clients.join(node, "alice")
            await asyncio.sleep(1.1)
            answer = await revoke(nodes[2], all=True)
            assert (answer.status, answer.json()["closed"]) == (200, len(bobs) + len(nodes))
            await until(lambda: all(bob.closed is not None and bob.closed.code == 4501 for bob in bobs), 1.0)


@pytest.mark.timeout(90)
async def test_a_node_that_does_not_answer_is_not_passed_over_and_reads_it_when_it_goes_on(
    tmp_path: Path, redis: RedisProcess
) -> None:
    async with serving(tmp_path, *[redis_url(redis.port)] * 2) as nodes, Clients() as clients:
        alice = await clients.join(nodes[1], "alice")
        await asyncio.sleep(1.1)
        nodes[1].signal(signal.SIGSTOP)
        try:
            answer = await revoke(nodes[0], user="alice")
            assert answer.status == 503
        finally:
            nodes[1].signal(signal.SIGCONT)
        await until(lambda: alice.closed is not None)
        assert alice.closed is not None
        assert alice.closed.code == 4501
        assert (await revoke(nodes[0], user="alice")).status == 200
