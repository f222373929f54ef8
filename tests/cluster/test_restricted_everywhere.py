"""Mutes, bans and slow mode on one node, their users on another."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.nodes import Clients, redis_url, serving
from e2e.processes import until
from greendot.testing import WireClient
from postgres_server import migrated_schema
from redis_servers import RedisProcess


@pytest.mark.timeout(90)
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_restrictions_made_on_one_node_hold_on_all(
    kind: str, tmp_path: Path, redis: RedisProcess, postgres: str
) -> None:
    async with migrated_schema(postgres) as place:
        store = {"GREENDOT_STORE_URL": place, "GREENDOT_STORE_MIGRATE": "true"} if kind == "postgres" else {}
        async with serving(tmp_path, *[redis_url(redis.port)] * 2, **store) as (here, there), Clients() as clients:
            await here.ask("PUT", "/v1/rooms/den", {"open": True})
            ann, bob = await clients.join(here, "ann"), await clients.join(there, "bob")
            for client in (ann, bob):
                await client.request(type="room.join", room="den")
            for path in ("rooms/den/mutes/bob", "mutes/bob"):
                assert (await here.ask("PUT", f"/v1/{path}")).status == 200
                await bob.hears("room.changed", muted_until=None)
                refused = await bob.answer(type="room.send", room="den", body="muted")
                assert refused["code"] == "muted", path
                assert (await there.ask("DELETE", f"/v1/{path}")).status == 204
                await bob.hears("room.changed", muted_until=0)
                await bob.request(type="room.send", room="den", body="free")
            await here.ask("PUT", "/v1/rooms/den", {"slow_mode_s": 3_600})
            await bob.hears("room.changed", slow_mode_s=3_600)
            phone = await clients.join(here, "bob")
            await phone.request(type="room.join", room="den")
            await bob.request(type="room.send", room="den", body="one")
            assert (await phone.answer(type="room.send", room="den", body="two"))["code"] == "slow_mode"
            assert (await here.ask("PUT", "/v1/rooms/den/bans/bob")).status == 200
            sent = await ann.request(type="room.send", room="den", body="without bob")
            for client in (bob, phone):
                changed = await client.hears("room.changed", removed=True)
                assert changed["reason"] == "banned by the app"
                assert (await client.answer(type="room.join", room="den"))["code"] == "banned"
            await ann.hears("room.message", seq=sent["seq"])
            assert (await there.ask("DELETE", "/v1/rooms/den/bans/bob")).status == 204
            assert (await bob.request(type="room.join", room="den"))["head"] == sent["seq"]
            assert (await there.ask("PUT", "/v1/bans/bob")).status == 200
            await until(lambda: all(it.closed is not None and it.closed.code == 4501 for it in (bob, phone)))
            for node in (here, there):
                refused = await WireClient.connect(node.port)
                refused.send(type="hello", token=node.token("bob"))
                assert (await refused.receive("error"))["code"] == "banned"
                assert (await refused.closed()).code == 4501
            assert (await here.ask("DELETE", "/v1/bans/bob")).status == 204
            for node in (here, there):
                await clients.join(node, "bob")
