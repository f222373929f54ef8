"""Erasure of a connected user on servers that share a Redis."""

from __future__ import annotations

from pathlib import Path

from cluster.nodes import Clients, redis_url, serving
from e2e.processes import greendot, until
from redis_servers import RedisProcess


async def test_an_erased_user_is_sent_away_and_was_never_there(tmp_path: Path, redis: RedisProcess) -> None:
    url = redis_url(redis.port)
    async with serving(tmp_path, url, url) as nodes, Clients() as clients:
        assert (await nodes[0].ask("PUT", "/v1/rooms/lobby", {"open": True})).status in (200, 201)
        ann, bob = await clients.join(nodes[0], "ann"), await clients.join(nodes[1], "bob")
        for person in (ann, bob):
            await person.request(type="room.join", room="lobby")
        await ann.request(type="room.send", room="lobby", body="a secret")
        await bob.watch("ann")
        ended = await greendot(tmp_path, "user", "erase", "ann", "--yes", "--engine", url)
        assert ended.code == 0, ended
        assert ended.out.startswith("Erased ann: 1 record.")
        await until(lambda: ann.closed is not None)
        assert ann.closed is not None
        assert (ann.closed.code, bob.closed) == (4501, None)
        await bob.sees("ann", "offline")
        page = (await bob.request(type="room.history", room="lobby", limit=10))["messages"]
        shown = [(m["seq"], m["user"], m["name"], m["body"], m["op"]) for m in page]
        assert shown == [(1, "", None, None, "erased")]
        (entry,) = (await bob.request(type="presence.get", users=["ann"]))["presence"]
        assert (entry["state"], entry["last_seen"], entry["name"]) in {("offline", None, None), ("offline", None, "")}
        fields = [field for key in redis.command("KEYS", "seen:*") for field in redis.command("HKEYS", key)]
        assert b"default/ann" not in fields
