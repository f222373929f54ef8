"""Clients of different versions on different nodes: nodes exchange one version, and each client receives its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cluster.nodes import Clients, Listener, redis_url, serving
from cluster.test_inboxes import hears_all, notify
from e2e.processes import until
from redis_servers import RedisProcess

UPDATED = "notification.updated"


def updates(client: Listener) -> list[tuple[int, dict[str, Any]]]:
    return [(told.frame["v"], told.data) for told in client.told if told.type == UPDATED]


async def test_devices_on_two_nodes_receive_marks_each_in_the_version_it_supports(
    tmp_path: Path, redis: RedisProcess
) -> None:
    async with serving(tmp_path, *[redis_url(redis.port)] * 2) as (a, b), Clients() as clients:
        phone = await clients.join(a, "ann", device="phone", supports={UPDATED: [1, 2]})
        old = await clients.join(b, "ann", device="old")
        newer = await clients.join(b, "ann", device="new", supports={UPDATED: [2], "something.new": [4]})
        blind = await clients.join(b, "ann", device="blind", supports={UPDATED: [3]})
        ids = [(await notify(a, number))["id"] for number in range(3)]
        for client in (phone, old, newer, blind):
            await hears_all(client, 3)
        await phone.request(type="inbox.read", through=2)
        # Marks of two nodes have no order between them: the second is made when the first has arrived.
        await until(lambda: len(updates(newer)) == 1)
        await old.request(type="inbox.archive", ids=[ids[2]])
        for client, count in ((phone, 1), (old, 1), (newer, 2)):
            await until(lambda client=client, count=count: len(updates(client)) >= count)
        assert updates(old) == [(1, {"state": "read", "ids": ids[:2], "through": 2})]
        assert updates(newer) == [(2, {"state": "read", "through": 2}), (2, {"state": "archived", "ids": [ids[2]]})]
        assert updates(phone) == [(2, {"state": "archived", "ids": [ids[2]]})]
        await blind.hears("refresh", of=UPDATED)
        assert updates(blind) == []
        assert not any(client.of("refresh") for client in (phone, old, newer))


async def test_in_a_room_of_two_nodes_clients_receive_supported_messages_or_a_refresh_event(
    tmp_path: Path, redis: RedisProcess
) -> None:
    async with serving(tmp_path, *[redis_url(redis.port)] * 2) as (a, b), Clients() as clients:
        ann, bob = await clients.join(a, "ann"), await clients.join(b, "bob", supports={UPDATED: [2]})
        zoe = await clients.join(b, "zoe", supports={"room.message": [2]})
        await a.ask("PUT", "/v1/rooms/hall", {"open": True})
        for client in (ann, bob, zoe):
            await client.request(type="room.join", room="hall")
        for number in range(10):
            await ann.request(type="room.send", room="hall", body=number)
        for client in (ann, bob):
            await until(lambda client=client: len(client.of("room.message")) >= 10)
            assert [data["seq"] for data in client.of("room.message")] == [*range(1, 11)]
        await zoe.hears("refresh", of="room.message")
        page = await zoe.request(type="room.history", room="hall")
        assert [message["body"] for message in page["messages"]] == [*range(10)]
        assert (zoe.of("room.message"), ann.of("refresh"), bob.of("refresh")) == ([], [], [])
