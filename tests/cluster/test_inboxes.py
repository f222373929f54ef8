"""Inbox on several nodes: each device receives notifications once and in order, also after an outage of the bus."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from cluster.nodes import PERIODS, Clients, Listener, counted, eventually, redis_url, serving
from e2e.processes import Process, running, until
from greendot.store.sqlite import SqliteStore
from redis_servers import Proxy, RedisProcess

BACK_S = 12.0  # time until a node has reconnected and compared, well before its periodic comparison
CONFIG = '[kinds.alarm]\npromise = "acknowledged"\n[kinds.secret]\nbus = "hint"\n'


@asynccontextmanager
async def counted_right(folder: Path) -> AsyncIterator[None]:
    """Check at the end that the counters equal a recount."""
    yield
    store = SqliteStore(str(folder / "greendot.db"))
    await store.start()
    try:
        assert await store.recount(fix=False) == []
    finally:
        await store.close()


async def notify(node: Process, body: Any, user: str = "ann", kind: str = "news", **fields: Any) -> dict[str, Any]:
    answer = await node.ask("POST", "/v1/notifications", {"user": user, "kind": kind, "body": body, **fields})
    assert answer.status == 201, answer
    made: dict[str, Any] = answer.json()
    return made


def numbers(client: Listener) -> list[int]:
    return [data["seq"] for data in client.of("notification.created")]


async def hears_all(client: Listener, upto: int, within_s: float = 15.0) -> None:
    try:
        await until(lambda: len(numbers(client)) >= upto, within_s)
    except TimeoutError:
        raise AssertionError(f"received {numbers(client)}, expected all up to {upto}") from None
    assert numbers(client) == [*range(1, upto + 1)]


async def last_badge(client: Listener, unread: int, unseen: int) -> None:
    await until(lambda: client.of("inbox.badge")[-1:] == [{"unread": unread, "unseen": unseen}])


async def test_what_any_node_takes_reaches_every_device_in_order_and_marks_the_others(
    tmp_path: Path, redis: RedisProcess
) -> None:
    async with counted_right(tmp_path):
        urls = [redis_url(redis.port)] * 3
        async with serving(tmp_path, *urls) as (a, b, c), Clients() as clients:
            phone, laptop = await clients.join(b, "ann", device="phone"), await clients.join(c, "ann", device="laptop")
            bob = await clients.join(c, "bob")
            made = [await notify(a, number) for number in range(20)]
            for client in (phone, laptop):
                await hears_all(client, 20)
                await last_badge(client, 20, 20)
                assert [data["body"] for data in client.of("notification.created")] == [*range(20)]
            # All nodes write to the same inbox at once and publish in any order.
            await asyncio.gather(*(notify(node, number) for number in range(20) for node in (a, b, c)))
            many = {"notifications": [{"user": user, "kind": "news", "body": 1} for user in ("ann", "bob") * 50]}
            assert (await a.ask("POST", "/v1/notifications", many)).status == 201
            for client in (phone, laptop):
                await hears_all(client, 130)
            await hears_all(bob, 50)

            assert await phone.request(type="inbox.read", through=10) == {"unread": 120, "unseen": 120}
            told = await laptop.hears("notification.updated", state="read")
            assert (told["through"], told["ids"]) == (10, [entry["id"] for entry in made[:10]])
            assert await laptop.request(type="inbox.archive", ids=[made[15]["id"]]) == {"unread": 119, "unseen": 119}
            await phone.hears("notification.updated", state="archived", ids=[made[15]["id"]])
            for client in (phone, laptop):
                await last_badge(client, 119, 119)
            assert len(phone.of("notification.updated")) == len(laptop.of("notification.updated")) == 1

            tablet = await clients.join(a, "ann", device="tablet", resume={"inbox": 125})
            await until(lambda: numbers(tablet) == [126, 127, 128, 129, 130])
            assert tablet.client.welcome["unread"] == 119

            async def is_noted() -> bool:
                shown = (await b.ask("GET", "/v1/users/ann/inbox?after=0&limit=300")).json()["notifications"]
                return all(entry["live_at"] is not None for entry in shown)

            await eventually(is_noted, "the delivery times of all notifications are recorded")


async def test_what_was_new_while_the_bus_was_gone_comes_when_it_is_back(tmp_path: Path, redis: RedisProcess) -> None:
    with Proxy(redis.port) as network:
        async with counted_right(tmp_path):
            urls = redis_url(redis.port), redis_url(network.port), redis_url(network.port)
            async with serving(tmp_path, *urls) as (a, b, c), Clients() as clients:
                phone = await clients.join(b, "ann", device="phone")
                laptop = await clients.join(c, "ann", device="laptop")
                other = await clients.join(a, "ann", device="other")
                for number in range(5):
                    await notify(a, number)
                for client in (phone, laptop):
                    await hears_all(client, 5)
                network.cut()
                for number in range(5):
                    await notify(a, number)
                await notify(b, "taken by a node that is cut off")
                # The node knows its own notification and reads the earlier ones from the store.
                await hears_all(phone, 11)
                network.heal()
                await hears_all(laptop, 11, BACK_S)
                await notify(a, "and on it goes")
                for client in (phone, laptop, other):
                    await hears_all(client, 12, BACK_S)
                    await last_badge(client, 12, 12)


async def test_a_redis_that_was_killed_and_forgot_everything_loses_nothing(tmp_path: Path) -> None:
    with RedisProcess("redis", tmp_path / "redis") as redis:
        nodes = serving(tmp_path, *[redis_url(redis.port)] * 2)
        async with counted_right(tmp_path), nodes as (a, b), Clients() as clients:
            ann = await clients.join(b, "ann")
            await notify(a, 1)
            await hears_all(ann, 1)
            redis.kill()
            for number in range(3):
                await notify(a, number)
            redis.start()
            redis.ready()
            await hears_all(ann, 4, 20.0)
            await notify(a, 5)
            await hears_all(ann, 5, BACK_S)
            await last_badge(ann, 5, 5)


async def test_what_kinds_promise_holds_across_nodes_and_their_deaths(tmp_path: Path, redis: RedisProcess) -> None:
    config = tmp_path / "kinds.toml"
    config.write_text(CONFIG)
    flags = "--host", "127.0.0.1", "--engine", redis_url(redis.port), "--config", str(config)
    one, two = (running(tmp_path, *flags, **PERIODS) for _ in range(2))
    async with counted_right(tmp_path), one as a, two as b, Clients() as clients:
        phone = await clients.join(b, "ann", device="phone")
        laptop = await clients.join(a, "ann", device="laptop")
        await notify(a, {"pin": 1}, kind="secret")
        await hears_all(phone, 1)
        assert await counted(b, "inbox_gaps_total") == 1, "the content must be read from the store"

        first, second = [await notify(a, number, kind="alarm") for number in range(2)]
        await hears_all(phone, 3)
        await laptop.request(type="inbox.ack", ids=[first["id"]])
        await phone.hears("notification.updated", state="acked")
        await until(lambda: numbers(phone).count(3) == 2)
        assert numbers(phone) == [1, 2, 3, 3], "a notification acknowledged on another node was redelivered"

        await b.kill()
        tablet = await clients.join(a, "ann", device="tablet", resume={"inbox": 3})
        again = await tablet.hears("notification.created")
        assert (again["id"], again["ack"]) == (second["id"], True)
