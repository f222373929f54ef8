"""Nodes that hang for a while and continue, and sessions that moved to other nodes meanwhile."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from cluster.nodes import LAPSE_S, Clients, Listener, eventually, lives, redis_url, serving
from e2e.processes import Process
from greendot.engine.redis import keys
from greendot.testing import Closed, WireClient
from redis_servers import RedisProcess


async def everybody_sees_the_end_of(user: Listener, watchers: list[Listener], name: str) -> None:
    """Disconnect a marker user and wait until all watchers have seen it: earlier events have arrived."""
    user.send(type="bye")
    await asyncio.gather(*(watcher.sees(name, "offline") for watcher in watchers))


async def sessions_of(node: Process, user: str) -> list[dict[str, str]]:
    sessions: list[dict[str, str]] = (await node.ask("GET", f"/v1/users/{user}/sessions")).json()["sessions"]
    return sessions


async def is_reaped(redis: RedisProcess, prefix: str, incarnation: str) -> bool:
    return redis.command("HEXISTS", keys.leases_key(prefix), incarnation) == 0


async def test_a_node_that_stood_still_for_too_long_goes_on_under_a_new_name(
    tmp_path: Path, redis: RedisProcess
) -> None:
    async def past_the_grace(prefix: str) -> None:
        env = {"GREENDOT_ENGINE_PREFIX": prefix}
        async with serving(tmp_path, *[redis_url(redis.port)] * 2, **env) as (node, other), Clients() as clients:
            users = [f"user{number}" for number in range(20)]
            crowd = await clients.crowd(node, [*users, "leaves"])
            await clients.join(other, "both", device="phone")
            await clients.join(node, "both", device="laptop")
            marker = await clients.join(other, "marker")
            watchers = await clients.watchers((other,), *users, "leaves", "both", "newcomer", "marker")
            old = crowd["leaves"].client.welcome["node"]

            node.signal(signal.SIGSTOP)
            await asyncio.gather(*(w.sees(user, "offline", within_s=LAPSE_S) for w in watchers for user in users))
            # The first actions of the continued node under its old incarnation: end one session and start one.
            await crowd["leaves"].end()
            newcomer = asyncio.create_task(comes_in(node, "newcomer"))
            node.signal(signal.SIGCONT)

            await asyncio.gather(*(w.sees(user, "offline", "online") for w in watchers for user in users))
            async with await newcomer as client:
                new = (await node.ask("GET", "/readyz")).json()["node"]
                assert new != old
                assert client.welcome["node"] == new
                found = await lives(other)
                assert (found[old], found[new]) == ("dead", "live")
                (session,) = await sessions_of(other, users[0])
                assert session["node"] == new
                await eventually(lambda: is_reaped(redis, prefix, old), "the old incarnation is removed")
                await everybody_sees_the_end_of(marker, watchers, "marker")
                for watcher in watchers:
                    assert all(watcher.states(user) == ["offline", "online"] for user in users), (
                        "the state changed again after the recovery"
                    )
                    assert watcher.states("leaves") == ["offline"]
                    assert watcher.states("newcomer") == ["online"]
                    assert watcher.states("both") == []
                assert session["session"].startswith(old), "the session must keep its id"
                assert (await other.ask("DELETE", f"/v1/sessions/{session['session']}")).status == 204
                await eventually_closed(crowd[users[0]], 4503)

    async def within_the_grace(prefix: str) -> None:
        env = {"GREENDOT_ENGINE_PREFIX": prefix}
        async with serving(tmp_path, *[redis_url(redis.port)] * 2, **env) as (node, other), Clients() as clients:
            users = [f"user{number}" for number in range(20)]
            crowd = await clients.crowd(node, users)
            marker = await clients.join(other, "marker")
            watchers = await clients.watchers((node, other), *users, "marker")
            old = crowd[users[0]].client.welcome["node"]

            async def declared() -> bool:
                return (await lives(other))[old] == "dead"

            node.signal(signal.SIGSTOP)
            await eventually(declared, "the node is declared dead")
            node.signal(signal.SIGCONT)
            await eventually(lambda: is_reaped(redis, prefix, old), "the old incarnation is removed")
            await everybody_sees_the_end_of(marker, watchers, "marker")
            for watcher in watchers:
                assert watcher.changes(*users) == []
                entries = (await watcher.request(type="presence.get", users=users))["presence"]
                assert {entry["state"] for entry in entries} == {"online"}

    async with asyncio.TaskGroup() as group:
        group.create_task(past_the_grace("gd:long:"))
        group.create_task(within_the_grace("gd:short:"))


async def comes_in(node: Process, user: str) -> WireClient:
    """Connect, and retry as clients do when refused."""
    while True:
        try:
            return await node.client(user)
        except (Closed, AssertionError):  # overloaded, then closed
            await asyncio.sleep(0.05)


async def test_a_close_that_is_processed_late_does_not_end_what_goes_on_elsewhere(
    tmp_path: Path, redis: RedisProcess
) -> None:
    async with serving(tmp_path, *[redis_url(redis.port)] * 2) as (slow, other), Clients() as clients:
        users = ("resumes", "anew")
        old = await clients.crowd(slow, users, device="phone")
        marker = await clients.join(other, "marker")
        watchers = await clients.watchers((other,), *users, "marker")

        slow.signal(signal.SIGSTOP)
        for client in old.values():
            await client.end()
        resume = {"session": old["resumes"].client.welcome["session"]}
        resumed = await clients.join(other, "resumes", device="phone", resume=resume)
        await clients.join(other, "anew", device="phone")
        assert resumed.client.welcome["resumed"]
        slow.signal(signal.SIGCONT)

        async def let_go() -> bool:
            return bool((await slow.ask("GET", "/v1/stats")).json()["sessions"] == 0)

        await eventually(let_go, "the node has noticed the closed sockets, and their graces are over")
        await everybody_sees_the_end_of(marker, watchers, "marker")
        for watcher in watchers:
            assert watcher.changes(*users) == []
        for user in users:
            (session,) = await sessions_of(slow, user)
            assert session["node"] == resumed.client.welcome["node"]


async def test_a_session_resumed_on_another_node_closes_its_old_socket_and_watchers_see_no_change(
    tmp_path: Path, redis: RedisProcess
) -> None:
    async with serving(tmp_path, *[redis_url(redis.port)] * 2) as (first, second), Clients() as clients:
        old = await clients.join(first, "ann", device="phone")
        marker = await clients.join(second, "marker")
        watchers = await clients.watchers((first, second), "ann", "marker")
        resume = {"session": old.client.welcome["session"]}

        stranger = await clients.join(second, "stranger", resume=resume)
        assert not stranger.client.welcome["resumed"]
        new = await clients.join(second, "ann", device="phone", resume=resume)
        assert new.client.welcome["resumed"]
        await eventually_closed(old, 4505)
        again = await clients.join(first, "ann", device="phone", resume={"session": new.client.welcome["session"]})
        assert again.client.welcome["resumed"]
        await eventually_closed(new, 4505)

        async def let_go() -> bool:
            return len(await sessions_of(first, "ann")) == len(await sessions_of(second, "ann")) == 1

        await eventually(let_go, "one session is left")
        await everybody_sees_the_end_of(marker, watchers, "marker")
        for watcher in watchers:
            assert watcher.changes("ann") == []
        assert (await sessions_of(second, "ann"))[0]["session"] == again.client.welcome["session"]


async def eventually_closed(client: Listener, code: int) -> None:
    async def closed() -> bool:
        return client.closed is not None

    await eventually(closed, "the old socket is closed")
    assert client.closed is not None
    assert client.closed.code == code
