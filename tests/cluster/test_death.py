"""Death of nodes: their users go offline once and in time, unless they are connected elsewhere by then."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from cluster.nodes import (
    GRACE_S,
    LAPSE_S,
    LEASE_S,
    RENEW_S,
    Clients,
    counted,
    eventually,
    lives,
    now_ms,
    redis_url,
    serving,
)
from e2e.processes import crowding, until
from greendot.engine.redis import keys
from redis_servers import RedisProcess

SLACK_MS = 300  # a renewal may be this late, and later on a busy machine


async def test_users_of_a_killed_node_go_offline_once_and_those_with_a_device_elsewhere_notice_nothing(
    tmp_path: Path, redis: RedisProcess
) -> None:
    users = [f"u{number:03}" for number in range(200)]
    elsewhere, gone = users[:50], users[50:]
    async with serving(tmp_path, *[redis_url(redis.port)] * 3) as (dying, second, third), Clients() as clients:
        await clients.crowd(dying, users)
        await clients.crowd(second, elsewhere, device="phone")
        bystander = await clients.join(third, "bystander")
        watchers = await clients.watchers((second, third), *users, "bystander")

        killed, killed_ms, slack_ms = time.monotonic(), now_ms(), SLACK_MS * crowding()
        await dying.kill()
        for watcher in watchers:
            await until(lambda watcher=watcher: len(watcher.changes()) >= len(gone), LAPSE_S)
        bystander.send(type="bye")
        for watcher in watchers:
            await watcher.sees("bystander", "offline")
            changes = watcher.changes(*users)
            assert sorted(told.data["user"] for told in changes) == gone, (
                "expected one change for each lost user and none for others"
            )
            assert {told.data["state"] for told in changes} == {"offline"}
            ages = [killed_ms - told.data["last_seen"] for told in changes]
            assert min(ages) > -slack_ms
            assert max(ages) <= RENEW_S * 1000 + slack_ms
            last = max(told.at for told in changes) - killed
            print(f"last offline {last:.2f} s after the kill; last_seen {min(ages)}-{max(ages)} ms before it")
        for watcher in watchers:
            entries = await watcher.request(type="presence.get", users=elsewhere)
            assert {(entry["state"], *entry["devices"]) for entry in entries["presence"]} == {("online", "phone")}
        assert (
            await counted(second, "presence_node_deaths_total") + await counted(third, "presence_node_deaths_total")
            == 1
        )
        swept = [await counted(node, "presence_swept_users_total") for node in (second, third)]
        assert sum(swept) <= len(gone), "the users were swept more than once"


async def test_clients_that_come_back_on_another_node_within_the_grace_were_never_away(
    tmp_path: Path, redis: RedisProcess
) -> None:
    groups = [[f"{kind}{number}" for number in range(10)] for kind in ("resumes", "anew", "resumes-late", "anew-late")]
    users = [user for group in groups for user in group]
    async with serving(tmp_path, *[redis_url(redis.port)] * 3) as (dying, second, third), Clients() as clients:
        old = await clients.crowd(dying, [*users, "canary"], device="phone")
        incarnation = old["canary"].client.welcome["node"]
        watchers = await clients.watchers((second, third), *users, "canary")

        def resume(user: str) -> dict[str, str]:
            return {"session": old[user].client.welcome["session"]}

        await dying.kill()
        resumed = [await clients.join(second, user, device="phone", resume=resume(user)) for user in groups[0]]
        await clients.crowd(third, groups[1], device="phone")

        async def declared() -> bool:
            return (await lives(second))[incarnation] == "dead"

        await eventually(declared, "the node is declared dead")
        resumed += [await clients.join(third, user, device="phone", resume=resume(user)) for user in groups[2]]
        await clients.crowd(second, groups[3], device="phone")
        assert all(client.client.welcome["resumed"] for client in resumed)
        await asyncio.gather(*(watcher.sees("canary", "offline", within_s=LAPSE_S) for watcher in watchers))
        for watcher in watchers:
            assert watcher.changes(*users) == []
            entries = (await watcher.request(type="presence.get", users=users))["presence"]
            assert {(entry["state"], *entry["devices"]) for entry in entries} == {("online", "phone")}


async def test_after_all_nodes_were_killed_only_those_who_return_are_online(
    tmp_path: Path, redis: RedisProcess
) -> None:
    async with Clients() as clients:
        async with serving(tmp_path, *[redis_url(redis.port)] * 2) as nodes:
            first = [await clients.crowd(node, [f"gone{at}", f"back{at}"]) for at, node in enumerate(nodes)]
            old = {client.client.welcome["node"] for crowd in first for client in crowd.values()}
            await asyncio.gather(*(node.kill() for node in nodes))
        async with serving(tmp_path, *[redis_url(redis.port)] * 2) as nodes:
            watchers = await clients.watchers(nodes, "gone0", "gone1", "back0", "back1")
            for at, node in enumerate(nodes):
                await clients.join(node, f"back{at}")

            async def alone() -> bool:
                found = await lives(nodes[0])
                return {found[node] for node in old} == {"dead"} and list(found.values()).count("live") == 2

            await eventually(alone, "the old incarnations have ended")
            for watcher in watchers:
                # On a busy machine lease and grace are over when the nodes start. Then the users were offline at first.
                for user in ("gone0", "gone1"):
                    await until(lambda: watcher.shown()[user] == "offline", LAPSE_S)  # noqa: B023  (awaited within the iteration)
                    assert len(watcher.states(user)) <= 1
                assert {watcher.shown()[user] for user in ("back0", "back1")} == {"online"}
            page = (await nodes[1].ask("GET", "/v1/presence/online")).json()["users"]
            assert page == ["back0", "back1", "watcher0", "watcher1"]

            async def struck_off() -> bool:
                return int(redis.command("HLEN", keys.leases_key(""))) == 2

            await eventually(struck_off, "the old leases are removed")


async def test_no_user_is_online_when_nodes_start_after_a_long_absence_of_all_nodes(
    tmp_path: Path, redis: RedisProcess
) -> None:
    async with Clients() as clients:
        async with serving(tmp_path, *[redis_url(redis.port)] * 2) as nodes:
            crowds = [await clients.crowd(node, [f"user{at}", f"back{at}"]) for at, node in enumerate(nodes)]
            old = {client.client.welcome["node"] for crowd in crowds for client in crowd.values()}
            await asyncio.gather(*(node.kill() for node in nodes))
        killed_s = now_ms() / 1000

        async def is_later() -> bool:
            return int(redis.command("TIME")[0]) > killed_s + LEASE_S + GRACE_S + 1.0

        await eventually(is_later, "the lease and the grace of the dead nodes are over")
        async with serving(tmp_path, *[redis_url(redis.port)] * 2) as nodes:
            for at, node in enumerate(nodes):
                users = [f"user{1 - at}", f"back{1 - at}", f"user{at}"]
                entries = (await node.ask("POST", "/v1/presence/query", {"users": users})).json()["presence"]
                assert {entry["state"] for entry in entries} == {"offline"}
                assert all(killed_s - 2 < entry["last_seen"] / 1000 < killed_s + 1 for entry in entries)
            watchers = await clients.watchers(nodes, "user0", "user1", "back0", "back1")
            assert {(await lives(nodes[0]))[node] for node in old} == {"dead"}
            for at, node in enumerate(nodes):
                await clients.join(node, f"back{at}")
            for watcher in watchers:
                await asyncio.gather(watcher.sees("back0", "online"), watcher.sees("back1", "online"))
                assert watcher.changes("user0", "user1") == []
