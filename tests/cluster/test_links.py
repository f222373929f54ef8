"""Connections to Redis that die, fall silent or are abused: detected soon, counted, and no data is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from cluster.engines import (
    FOUND_S,
    PREFIX,
    TENANT,
    all_hear,
    come,
    engines,
    findings,
    gaps,
    names_everywhere,
    state,
    until,
    was_lost,
)
from cluster.nodes import Clients, counted, eventually, node, redis_url
from greendot.engine.messages import Deliver, Topic
from greendot.engine.redis import keys
from greendot.engine.redis.bus_codec import BusCodec
from greendot.engine.redis.nodes import LeasePeriods
from hosts import RedisNode
from redis_servers import Proxy, RedisProcess, limited

COMMANDS, PUSHES = b"EVALSHA", b"SUBSCRIBE"  # only one of the two connections sends each of these


def kill_subscriber(redis: RedisProcess, proxy: Proxy) -> None:
    """Kill the newest subscriber, which belongs to the node with the broken connections."""
    clients = redis.command("CLIENT", "LIST", "TYPE", "pubsub").decode().splitlines()
    redis.command("CLIENT", "KILL", "ID", max(int(client.split()[0].removeprefix("id=")) for client in clients))


def freeze_pushes(redis: RedisProcess, proxy: Proxy) -> None:
    proxy.freeze(PUSHES)


def freeze_commands(redis: RedisProcess, proxy: Proxy) -> None:
    proxy.freeze(COMMANDS)


def freeze_both(redis: RedisProcess, proxy: Proxy) -> None:
    proxy.freeze()


Fault = Callable[[RedisProcess, Proxy], None]


async def test_a_dead_or_silent_redis_connection_is_detected_and_all_topics_are_subscribed_again(
    tmp_path: Path,
) -> None:
    async with asyncio.TaskGroup() as group:
        for fault in (kill_subscriber, freeze_pushes, freeze_commands, freeze_both):
            group.create_task(is_found(fault, tmp_path / fault.__name__))


async def is_found(fault: Fault, folder: Path) -> None:
    topics = [Topic("room", TENANT, room) for room in names_everywhere("r")]
    with RedisProcess("redis", folder, **limited("gd:")) as redis, Proxy(redis.port) as proxy:
        urls = redis_url(redis.port), redis_url(proxy.port)
        async with engines(*urls, periods=LeasePeriods()) as (
            healthy,
            broken,
        ):  # long leases: faults are detected earlier
            await broken.engine.subscribe(topics)
            await all_hear(broken, healthy, topics)
            fault(redis, proxy)
            took = await until(lambda: was_lost(broken), "the fault is found", FOUND_S)
            proxy.heal()
            await until(lambda: findings(broken), "the engine is found again")
            print(f"{fault.__name__}: found after {took:.2f} s")
            assert findings(broken) == [True], "the server's data must be intact"
            assert gaps(broken) == 1
            await all_hear(broken, healthy, topics)
            assert not any(what == "reborn" for what, _ in broken.host.told + healthy.host.told)


async def test_a_change_in_the_gap_reaches_the_watcher_after_it(tmp_path: Path, redis: RedisProcess) -> None:
    lease = {"GREENDOT_NODE_LEASE_S": "15", "GREENDOT_NODE_RENEW_S": "5"}  # longer than the detection of a fault takes
    with Proxy(redis.port) as proxy:
        async with (
            node(tmp_path, redis_url(redis.port), **lease) as healthy,
            node(tmp_path, redis_url(proxy.port), **lease) as broken,
            Clients() as clients,
        ):
            ann = await clients.join(healthy, "ann")
            watcher = await clients.join(broken, "watcher")
            await watcher.watch("ann")
            versions = [0]
            for number, fault in enumerate([freeze_pushes, freeze_both, kill_subscriber], 1):
                fault(redis, proxy)
                status = "busy" if number % 2 else "auto"
                await ann.request(type="status.set", status=status, text=f"gap {number}")

                async def found(number: int = number) -> bool:
                    return await counted(broken, "realtime_pubsub_gaps_total") == number

                await eventually(found, "the gap is counted", FOUND_S)
                proxy.heal()
                shown = await watcher.hears("presence.changed", user="ann", status_text=f"gap {number}")
                versions.append(shown["version"])
            assert versions == sorted(set(versions))
            assert [c.data["status_text"] for c in watcher.changes("ann")] == ["gap 1", "gap 2", "gap 3"]

            async def resynced() -> bool:
                return await counted(broken, "realtime_resync_total") == 3

            # A change published after the node has resubscribed arrives before its resync begins.
            await eventually(resynced, "each gap is followed by a resync", FOUND_S)
            assert await counted(healthy, "realtime_pubsub_gaps_total") == 0


async def test_what_strangers_publish_on_any_channel_is_dropped_and_counted(redis: RedisProcess) -> None:
    room, watch = Topic("room", TENANT, "r1"), Topic("watch", TENANT, "ann")
    other_key, ours = BusCodec(b"somebody else's key"), BusCodec(b"a key for tests")
    async with engines(redis_url(redis.port)) as (listener,):
        await listener.engine.subscribe([room, watch])
        own = Topic("node", "", listener.incarnation)
        channels = [keys.channel(PREFIX, topic) for topic in (room, watch, own)]
        (server,) = listener.engine.servers.all.values()
        channels.append(server.beat_channel)
        sent = 0
        for channel in channels:
            good = ours.write(channel, Deliver(b"{}"))
            forged = [
                b"",
                b"m",
                b"\xff\xfe" * 40,
                b"c" + b"0" * 40 + b"o1|o1|A||1|1|",
                b"t" + b"0" * 40 + b"ann|Ann|5000",
                b"9" * 5_000,  # more digits than Python converts to an int
                b"99999999",
                good[:-1],
                good[:20],
                good + b"x",
                other_key.write(channel, Deliver(b"{}")),
                ours.write(channel + "x", Deliver(b"{}")),  # for another channel
            ]
            for message in forged:
                assert redis.command("PUBLISH", channel, message) == 1
            sent += len(forged)
        await until(
            lambda: listener.engine.counts()["realtime_pubsub_invalid_total"] == sent,
            "all forged messages are dropped and counted",
        )
        assert listener.heard == []
        await all_hear(listener, listener, [room])
        assert gaps(listener) == 0
        # Forged beats must not hide the loss of the node's own beats.
        redis.command("CLIENT", "KILL", "TYPE", "pubsub")
        await until(lambda: findings(listener), "the killed connection is replaced")


async def test_a_beat_forged_by_a_stranger_does_not_hide_a_silent_connection(redis: RedisProcess) -> None:
    with Proxy(redis.port) as proxy:
        async with engines(redis_url(proxy.port)) as (listener,):
            (server,) = listener.engine.servers.all.values()
            assert redis.command("PUBLISH", server.beat_channel, b"99999999") == 1
            heard = server.beat_heard
            await until(lambda: server.beat_heard > heard, "the node keeps receiving beats")
            proxy.freeze(PUSHES)
            await until(lambda: was_lost(listener), "the fault is found", FOUND_S)
            proxy.heal()
            await until(lambda: findings(listener), "the engine is found again")


async def test_the_time_up_to_which_messages_have_arrived_follows_the_beats(redis: RedisProcess) -> None:
    with Proxy(redis.port) as proxy:
        async with engines(redis_url(proxy.port)) as (listener,):
            engine, now = listener.engine, listener.engine.watchdog._clock.monotonic
            began = now()
            await until(lambda: engine.heard_at() > began, "a beat comes back")
            proxy.freeze(PUSHES)
            frozen = now()
            await until(lambda: was_lost(listener), "the fault is found", FOUND_S)
            assert engine.heard_at() == float("-inf")
            proxy.heal()
            await until(lambda: engine.heard_at() > frozen, "beats come back on a new connection")
            engine.bus.silenced(3)  # Redis has ended the subscriptions of a partition
            assert engine.heard_at() == float("-inf")
            await until(lambda: engine.heard_at() > frozen, "the partition is subscribed again")


async def test_a_node_that_does_not_keep_up_is_cut_off_and_reads_everything_again(tmp_path: Path) -> None:
    topic = Topic("room", TENANT, "r1")
    with RedisProcess("redis", tmp_path, client_output_buffer_limit="pubsub 64kb 64kb 0") as redis:
        async with engines(redis_url(redis.port)) as (slow,):
            await slow.engine.subscribe([topic])
            channel, flood = keys.channel(PREFIX, topic), b"x" * 60_000
            with redis.connect() as stranger:
                published = 0
                # Meanwhile the event loop of this thread, and so the engine, reads nothing.
                while stranger.call("PUBLISH", channel, flood):
                    published += len(flood)
                    assert published < 100_000_000
            await until(lambda: findings(slow), "the engine is found again")
            assert findings(slow) == [True]
            assert gaps(slow) == 1
            print(f"cut off after {published / 1e6:.1f} MB")
            await all_hear(slow, slow, [topic])


async def test_while_redis_is_away_nodes_try_again_now_and_then_and_not_together(redis: RedisProcess) -> None:
    each = 6  # attempts per node, with pauses of 0.05 s, 0.1 s … 1.6 s or half of that
    async with engines(*[redis_url(redis.port)] * 3) as nodes:
        attempts: list[float] = []

        def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            attempts.append(time.monotonic())
            writer.close()

        redis.kill()
        server = await asyncio.start_server(refuse, "127.0.0.1", redis.port)
        begin = time.monotonic()
        try:
            await until(lambda: len(attempts) >= each * len(nodes), "all nodes retry")
            away_s = time.monotonic() - begin
        finally:
            server.close()
            await server.wait_closed()
        redis.start()
        await until(lambda: all(findings(node) for node in nodes), "all nodes are connected")
        print(f"{each} attempts of each in {away_s:.1f} s")
        assert away_s > 0.7, [f"{at - begin:.2f}" for at in attempts]
        late = attempts[-2 * len(nodes) :]
        assert max(late) - min(late) > 0.1, "the nodes reconnected at the same time"
        assert [findings(node) for node in nodes] == [[False]] * 3


async def test_a_node_struck_from_a_partition_by_hand_registers_there_again_and_restores_its_sessions(
    redis: RedisProcess,
) -> None:
    struck = RedisNode(redis_url(redis.port), PREFIX)  # works only when ticked
    await struck.start()
    try:
        users = names_everywhere("u")
        here = await come(struck, users[1])

        def strike_off(partition: int) -> None:
            assert redis.command("HDEL", keys.nodes_key(PREFIX, partition), struck.incarnation) == 1

        def is_known(partition: int) -> bool:
            return bool(redis.command("HGET", keys.nodes_key(PREFIX, partition), struck.incarnation) == b"live")

        strike_off(1)
        strike_off(99)
        # A write to the partition finds out at once.
        assert (await struck.engine.touch(TENANT, users[1], here, "default", True, None)).status_known
        assert is_known(1)
        # Without a write the periodic check finds out later, in the first partition at once.
        for _ in range(keys.PARTITIONS):
            await struck.tick()
        assert is_known(99)
        strike_off(0)
        await struck.tick()
        assert is_known(0)
        assert findings(struck) == [False] * 3, "each removal must cause a restore of the node's sessions"
        assert not any(what == "reborn" for what, _ in struck.host.told)
        assert await state(struck, users[1]) == "idle"
    finally:
        await struck.close()


async def test_an_idle_node_asks_little_of_redis(redis: RedisProcess) -> None:
    seconds = 2.0
    nodes = 10
    async with engines(*[redis_url(redis.port)] * nodes, periods=LeasePeriods()):
        with redis.connect() as monitor:
            redis.command("CONFIG", "RESETSTAT")
            monitor.call("MONITOR")
            begin = time.monotonic()
            await until(lambda: time.monotonic() - begin > seconds, "a while has passed")
            spent = time.monotonic() - begin
            redis.command("ECHO", "over")
            asked = 0
            while b'"ECHO"' not in (line := bytes(monitor.read())):
                asked += b" lua]" not in line
        carried_out = sum(int(row.split(",")[0].split("=")[1]) for row in redis.info("commandstats").values())
        print(f"{asked / spent / nodes:.2f} commands/s each, {carried_out / spent / nodes:.1f} with those in scripts")
        assert asked / spent / nodes <= 5
