"""Moderation on one node, listeners on another: rooms deleted, archived and created again, and the end of a node."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.nodes import Clients, eventually, redis_url, serving
from postgres_server import migrated_schema
from redis_servers import RedisProcess


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_room_deleted_on_one_node_is_gone_on_all_and_can_be_created_again(
    kind: str, tmp_path: Path, redis: RedisProcess, postgres: str
) -> None:
    async with migrated_schema(postgres) as place:
        store = {"GREENDOT_STORE_URL": place, "GREENDOT_STORE_MIGRATE": "true"} if kind == "postgres" else {}
        store |= {"GREENDOT_JOBS_LEASE_S": "3"}
        nodes = [redis_url(redis.port)] * 2
        async with serving(tmp_path, *nodes, **store) as (here, there), Clients() as clients:
            await here.ask("PUT", "/v1/rooms/den", {"open": True})
            ann, bob = await clients.join(here, "ann"), await clients.join(there, "bob")
            for client in (ann, bob):
                await client.request(type="room.join", room="den")
            for number in range(3):
                await ann.request(type="room.send", room="den", body=number)
            deleted = (await here.ask("DELETE", "/v1/rooms/den/messages/2")).json()
            heard = await bob.hears("room.message", seq=deleted["seq"])
            assert (heard["op"], heard["ref"]) == ("delete", 2)
            third = await clients.join(there, "cid")
            joined = await third.request(type="room.join", room="den", after=0)
            assert [message["body"] for message in joined["messages"]] == [0, None, 2, None]
            await here.ask("PUT", "/v1/rooms/den", {"archived": True})
            await bob.hears("room.changed", archived=True)
            refused = await bob.answer(type="room.send", room="den", body="late")
            assert refused["code"] == "forbidden"
            assert (await there.ask("DELETE", "/v1/rooms/den")).status == 202
            for client in (ann, bob, third):
                changed = await client.hears("room.changed", removed=True)
                assert changed["reason"] == "room deleted"
            assert (await ann.answer(type="room.join", room="den"))["code"] == "not_a_member"
            # The job of another node continues if the node that runs it ends.
            await there.kill()

            async def created() -> bool:
                return (await here.ask("PUT", "/v1/rooms/den", {"open": True})).status == 200

            await eventually(created, "the room is created again", 60)
            joined = await ann.request(type="room.join", room="den", after=3)
            assert (joined["head"], joined["truncated"], joined["archived"]) == (0, True, False)
            assert (await ann.request(type="room.send", room="den", body="new"))["seq"] == 1
            await ann.hears("room.message", seq=1, body="new")
