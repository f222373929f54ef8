"""More hellos than the server admits: which clients wait, which are refused, and that no user goes offline."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from e2e.narrow import upgrade
from e2e.processes import ask, exchange
from greendot.limits.overload_model import Load
from greendot.testing import Closed, Served, WireClient, serving

ONE = {"hellos_per_s": 1, "hellos_at_once": 1, "waiting": 1}


async def say_hello(served: Served, user: str, **hello: Any) -> WireClient:
    """Connect and send hello without waiting for the reply."""
    client = await served.socket()
    client.send(type="hello", token=served.token(user), **hello)
    return client


async def sent_away(client: WireClient) -> float:
    """Return the retry time in seconds of a refused hello."""
    frame = await client.receive("overloaded")
    assert (await client.closed()).code == 4003
    return float(frame["data"]["retry_in_ms"]) / 1000


async def until_waiting(served: Served, count: int) -> None:
    async with asyncio.timeout(10):
        while served.node.hello.waiting != count:  # noqa: ASYNC110  (no hook for tests in the node)
            await asyncio.sleep(0.001)


async def test_a_hello_too_many_waits_and_is_answered_in_its_turn() -> None:
    async with serving(admission=ONE) as served:
        await served.client("ann")
        waiting = await say_hello(served, "bob")
        await until_waiting(served, 1)
        await served.advance(1)
        assert (await waiting.receive("welcome"))["data"]["user"] == "bob"
        assert served.node.hello.strangers == set()


async def test_a_hello_beyond_the_waiting_queue_is_refused_with_a_retry_time() -> None:
    async with serving(admission=ONE) as served:
        await served.client("ann")
        await say_hello(served, "bob")
        await until_waiting(served, 1)
        timers = served.timers
        waits = [await sent_away(await say_hello(served, f"user{number}")) for number in range(5)]
        assert waits == sorted(waits)
        assert len({*waits}) == 5  # all different
        assert waits[0] >= 1
        assert served.node.metrics.realtime_hellos_refused_total == 5
        await served.until_gone(2)
        assert served.timers == timers  # refused clients leave no timers


async def test_who_returns_is_let_in_before_those_who_are_new() -> None:
    async with serving(admission=ONE | {"waiting": 10}) as served:
        ann = await served.client("ann")
        await ann.reset()
        await served.until_gone()
        new = await say_hello(served, "bob")
        await until_waiting(served, 1)
        back = await say_hello(served, "ann", resume={"session": ann.welcome["session"]})
        await until_waiting(served, 2)
        await served.advance(1)
        assert (await back.receive("welcome"))["data"]["resumed"]
        assert served.node.hello.waiting == 1
        await served.advance(1)
        await new.receive("welcome")


async def test_who_goes_while_waiting_is_forgotten() -> None:
    async with serving(admission=ONE) as served:
        ann = await served.client("ann")
        bob = await say_hello(served, "bob")
        await until_waiting(served, 1)
        await bob.reset()
        await served.until_gone(1)
        assert served.node.hello.waiting == 0
        await served.advance(5, [ann])
        assert served.node.registry.users == 1


async def test_no_hello_waits_forever_and_commands_after_it_wait_with_it() -> None:
    async with serving(admission={"hellos_per_s": 1, "hellos_at_once": 1, "waiting": 100}) as served:
        ann = await served.client("ann")
        clients = [await say_hello(served, f"user{number:02}") for number in range(15)]
        for client in clients:
            client.send(type="room.list", id=1)
        await until_waiting(served, 15)
        await served.advance(12, [ann])
        welcomed = refused = 0
        for client in clients:
            first = await client.receive()
            if first["type"] == "welcome":
                welcomed += 1
                assert (await client.receive("reply"))["id"] == 1
            else:
                refused += 1
                assert first["type"] == "overloaded"
                assert (await client.closed()).code == 4003
        assert welcomed + refused == 15
        assert welcomed >= 9
        assert refused >= 4


async def test_no_user_goes_offline_because_a_hello_is_refused() -> None:
    async with serving(admission=ONE, presence={"grace_s": 5}) as served:
        watcher = await served.client("wanda")
        await served.advance(1)
        ann = await served.client("ann")
        await watcher.request(type="watch", users=["ann"])
        await ann.reset()
        await served.until_gone(1)
        await served.advance(4, [watcher])
        # The queue is so long that Ann is refused for longer than the grace of her session.
        for second in (0.0, 10.0, 20.0):
            served.node.overload_monitor.measure(Load(lag_s=9, worked_s=9), second)
        back = await say_hello(served, "ann", resume={"session": ann.welcome["session"]})
        wait_s = await sent_away(back)
        for second in range(30):
            served.node.overload_monitor.measure(Load(), 30.0 + second)
        assert wait_s > 1
        told = await served.advance(wait_s + 3, [watcher])
        assert told == [[]]
        again = await served.client("ann", resume={"session": ann.welcome["session"]})
        assert again.welcome["resumed"]
        assert await watcher.quiet() == []


@pytest.mark.parametrize("token", ["another user's", "no token at all"])
async def test_only_its_own_user_keeps_a_session_alive_by_coming_back(token: str) -> None:
    async with serving(admission=ONE, presence={"grace_s": 5}) as served:
        watcher = await served.client("wanda")
        await served.advance(1)
        ann = await served.client("ann")
        await watcher.request(type="watch", users=["ann"])
        await ann.reset()
        await served.until_gone(1)
        served.node.hello.loaded(served.node.overload_monitor.level.__class__.REFUSING)
        stranger = await served.socket()
        given = served.token("eve") if token == "another user's" else "x"
        stranger.send(type="hello", token=given, resume={"session": ann.welcome["session"]})
        await sent_away(stranger)
        ((frame,),) = await served.advance(6, [watcher])
        assert (frame["data"]["user"], frame["data"]["state"]) == ("ann", "offline")


async def test_with_very_many_silent_sockets_an_upgrade_is_answered_503_with_a_time_to_wait() -> None:
    async with serving(admission={"strangers": 3}) as served:
        silent = [await served.socket() for _ in range(3)]
        refused = await exchange(served.port, upgrade())
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert served.node.metrics.realtime_upgrades_refused_total == 1
        assert (await ask(served.port, "GET", "/readyz")).status == 200
        await silent[0].hello(served.token("ann"))
        await served.client("bob")


async def test_the_time_a_stopping_server_asks_for_is_another_for_each() -> None:
    async with serving(admission={"hellos_per_s": 5}) as served:
        clients = [await served.client(f"user{number}") for number in range(5)]
        await served.advance(1)
        clients += [await served.client(f"user{number}") for number in range(5, 10)]
        stopping = asyncio.get_running_loop().create_task(served.node.drain(1))
        times = [(await client.receive("drain"))["data"]["retry_in_ms"] for client in clients]
        for client in clients:
            with pytest.raises(Closed):
                await client.receive()
        await stopping
        assert all(500 <= time <= 2_000 for time in times)
        assert len({*times}) > 1
