"""Access to Redis and its required configuration: TLS, users with few rights, and no servers that would lose data."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import hiredis
import pytest

from cluster.engines import PREFIX, TENANT, all_hear, come, engines, names_everywhere, state
from cluster.nodes import eventually, redis_url
from e2e.processes import greendot
from greendot.engine.messages import Audit, Topic
from greendot.engine.redis.nodes import LeasePeriods
from greendot.errors import ConfigError, EngineUnavailable, GreendotError
from greendot.presence.model import SessionEpoch
from hosts import RedisNode
from redis_servers import (
    KINDS,
    Connection,
    RedisProcess,
    certificates,
    commands,
    redis_cluster,
    redis_sentinel,
    rights,
)

USERS = 8


async def use_much(url: str) -> None:
    """Use the commands that nodes use most."""
    async with engines(url, url) as (first, second):
        await live(first, second)


async def use_everything(url: str) -> None:
    """Use all commands that nodes use."""
    async with engines(url, url, periods=LeasePeriods(3.0, 0.3, grace=0.1)) as (first, second):
        await live(first, second)
        await clean_up(first, second)


async def live(first: RedisNode, second: RedisNode) -> None:
    """Do all that users do."""
    users = names_everywhere("u")[:USERS]
    rooms = [Topic("room", TENANT, room) for room in names_everywhere("r")[:8]]
    await second.engine.subscribe(rooms)
    await all_hear(second, first, rooms)
    for user in users:
        here = await come(first, user)
        assert await state(second, user) == "online"
        assert len(await second.engine.sessions(TENANT, user)) == 1
        await first.engine.enter(TENANT, "hall", user, here)
        assert await second.engine.present(TENANT, "hall") == [user]
        assert await second.engine.room_nodes(TENANT, "hall") == {first.incarnation}
        await first.engine.exit(TENANT, "hall", user, here)
        assert await first.engine.linger(TENANT, user, here, 60_000, 0) == 60_000
        assert await first.engine.leave(TENANT, user, here) is not None
    assert (await first.engine.online(TENANT, None, 100)).total == len(users)
    await asyncio.gather(*(typed(first, room.name) for room in rooms))
    await crowd(first)
    await second.engine.unsubscribe(rooms)


async def clean_up(first: RedisNode, second: RedisNode) -> None:
    """Run all passes over all keys, and stop a node."""
    assert await first.engine.audit(lambda ref: False) == USERS
    assert await second.engine.sweep() is not None
    assert {info.state for info in await second.engine.nodes()} == {"live"}
    second.engine.publish(Topic("node", "", first.incarnation), Audit())
    dead, table = second.incarnation, await first.engine.lives.table()
    await first.engine.lives.declare_dead(dead, table)

    async def reaped() -> bool:
        table = await first.engine.lives.table()
        return table.lives[dead] != "live" and dead not in table.leases

    await eventually(reaped, "a dead node is reaped")


async def crowd(node: RedisNode) -> None:
    """Fill a room until Redis has an index of its users."""
    here = SessionEpoch(f"{node.incarnation}-crowd", node.incarnation, 1)
    users = [f"crowd{number:04}" for number in range(1_100)]
    await asyncio.gather(*(node.engine.enter(TENANT, "crowd", user, here) for user in users))
    for after in (None, users[9]):
        assert (await node.engine.present_page(TENANT, "crowd", after, 10)).total == len(users)


async def typed(node: RedisNode, room: str) -> None:
    node.engine.typing_start(TENANT, room, "ann", "Ann")
    assert [typist.user for typist in await node.engine.typers(TENANT, room)] == ["ann"]
    node.engine.typing_stop(TENANT, room, "ann")
    assert await node.engine.typers(TENANT, room) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_a_user_with_few_rights_is_enough(kind: str, tmp_path: Path) -> None:
    users = ["default off", f"dot on >secret {rights()}", "admin on nopass +@all ~* &*"]
    with RedisProcess(kind, tmp_path, login=("admin", "any"), user=users) as redis:
        await use_everything(f"redis://dot:secret@127.0.0.1:{redis.port}/1")
        assert redis.command("ACL", "LOG") == []
        assert commands(rights()) - used(redis) == set(), "the documented rights have unused commands"


async def test_the_same_with_a_few_more_is_enough_in_a_cluster(tmp_path: Path) -> None:
    given = rights(cluster=True)
    with redis_cluster("redis", tmp_path, user=[f"dot on >secret {given}"]) as cluster:
        await use_everything(cluster.url.replace("://", "://dot:secret@"))
        assert [process.command("ACL", "LOG") for process in cluster.processes] == [[]] * 3
        everywhere = set().union(*(used(process) for process in cluster.processes))
        assert commands(given) - everywhere <= {"asking"}, (
            "the documented rights have unused commands (ASKING needs moving slots)"
        )


async def test_the_same_is_enough_with_sentinels(tmp_path: Path) -> None:
    with redis_sentinel(tmp_path) as group:
        servers = group.primary, group.replica
        for server in servers:
            server.command("ACL", "SETUSER", "dot", "on", ">secret", *rights().split())
        await use_everything(group.url.replace("://", "://dot:secret@"))
        assert [server.command("ACL", "LOG") for server in servers] == [[], []]


FORBIDDEN = [
    ("KEYS", "*"),
    ("SCAN", "0"),
    ("FLUSHALL",),
    ("CONFIG", "SET", "maxmemory-policy", "allkeys-lru"),
    ("CONFIG", "GET", "*"),
    ("ACL", "LIST"),
    ("MONITOR",),
    ("EVAL", "return 1", "0"),
    ("CLIENT", "LIST"),
    ("SCRIPT", "FLUSH"),
    ("SHUTDOWN",),
    ("HGET", "other:key", "field"),
    ("HSET", "gdx", "field", "value"),
    ("PUBLISH", "other:channel", "message"),
    ("SUBSCRIBE", "other:channel"),
    ("PSUBSCRIBE", "*"),
    ("SPUBLISH", "other:channel", "message"),
]


@pytest.mark.parametrize("cluster", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_such_a_user_can_do_nothing_else(kind: str, cluster: bool, tmp_path: Path) -> None:
    users = ["default off", f"dot on >secret {rights(cluster=cluster)}", "admin on nopass +@all ~* &*"]
    with RedisProcess(kind, tmp_path, login=("admin", "any"), user=users) as redis:
        for command in FORBIDDEN:
            with Connection(redis.port, login=("dot", "secret")) as client:
                with pytest.raises(hiredis.ReplyError, match="NOPERM"):
                    client.call(*command)
                assert client.call("PING") == b"PONG"
        assert redis.command("GET", "other:key") is None


def used(redis: RedisProcess) -> set[str]:
    return {name.removeprefix("cmdstat_") for name in redis.info("commandstats")}


async def refusal(url: str) -> str:
    node = RedisNode(url, PREFIX)
    try:
        with pytest.raises(GreendotError) as refused:
            await node.start()
    finally:
        await node.close()
    return f"{type(refused.value).__name__}: {refused.value}"


async def test_tls_with_an_authority_of_ones_own(tmp_path: Path) -> None:
    ours = certificates(tmp_path)
    (tmp_path / "other").mkdir()
    other = certificates(tmp_path / "other")
    with RedisProcess("redis", tmp_path, tls=ours) as redis:
        url = f"rediss://127.0.0.1:{redis.port}"
        await use_much(f"{url}?ca={ours.authority}")
        wrong = await refusal(f"{url}?ca={other.authority}")
        assert wrong.startswith(
            f"EngineUnavailable: Redis at 127.0.0.1:{redis.port} cannot be used: the certificate is"
        )
        assert "?ca=FILE names the authority" in wrong
        assert "?ca=FILE names the authority" in await refusal(url)  # no authority known to the machine has signed it
        assert "if the server requires TLS, write rediss" in await refusal(redis_url(redis.port))


async def test_tls_with_a_server_that_does_not_speak_it(tmp_path: Path) -> None:
    with RedisProcess("redis", tmp_path) as redis:
        assert "if the server has no TLS, write redis" in await refusal(f"rediss://127.0.0.1:{redis.port}")


async def test_tls_asks_whether_the_certificate_is_for_this_host(tmp_path: Path) -> None:
    elsewhere = certificates(tmp_path, ("redis.example.org",))
    with RedisProcess("redis", tmp_path, tls=elsewhere) as redis:
        wrong = await refusal(f"rediss://127.0.0.1:{redis.port}?ca={elsewhere.authority}")
        assert "certificate is not valid for '127.0.0.1'" in wrong


async def test_files_of_tls_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no-such\.pem"):
        RedisNode(f"rediss://127.0.0.1?ca={tmp_path / 'no-such.pem'}", PREFIX)


async def test_tls_in_a_cluster(tmp_path: Path) -> None:
    ours = certificates(tmp_path)
    with redis_cluster("redis", tmp_path, tls=ours, tls_cluster="yes", tls_replication="yes") as cluster:
        await use_much(cluster.url.replace("redis+", "rediss+") + f"?ca={ours.authority}")


@pytest.mark.parametrize("login", ["dot:wrong-secret", "nobody:wrong-secret", ":wrong-secret", None])
async def test_a_wrong_password_is_reported_without_its_value(tmp_path: Path, login: str | None) -> None:
    users = ["default off", "dot on >secret +@all ~* &*"]
    with RedisProcess("redis", tmp_path, login=("dot", "secret"), user=users) as redis:
        at = f"127.0.0.1:{redis.port}"
        said = await refusal(f"redis://{login}@{at}" if login else f"redis://{at}")
        assert said.startswith("EngineUnavailable")
        assert at in said
        assert "password" in said
        assert "wrong-secret" not in said
        print(said)


async def test_serve_reports_a_wrong_password_without_its_value(tmp_path: Path) -> None:
    users = ["default off", "dot on >secret +@all ~* &*"]
    with RedisProcess("redis", tmp_path, login=("dot", "secret"), user=users) as redis:
        url = f"redis://dot:wrong-secret@127.0.0.1:{redis.port}"
        ended = await greendot(tmp_path, "serve", "--port", "0", "--engine", url)
        assert ended.code != 0
        assert "password" in ended.err
        assert "wrong-secret" not in ended.out + ended.err
        assert "Traceback" not in ended.err


async def test_a_redis_that_would_throw_away_who_is_online_is_refused(tmp_path: Path) -> None:
    with RedisProcess("redis", tmp_path, maxmemory="100mb", maxmemory_policy="allkeys-lru") as redis:
        said = await refusal(redis_url(redis.port))
        assert said.startswith("ConfigError")
        assert "maxmemory-policy allkeys-lru" in said
        assert "Set noeviction" in said
        ended = await greendot(tmp_path, "serve", "--port", "0", "--engine", redis_url(redis.port))
        assert ended.code != 0
        assert "Set noeviction" in ended.err
        assert "Traceback" not in ended.err


@asynccontextmanager
async def pretending(port: int, real: bytes, told: bytes) -> AsyncIterator[int]:
    """Proxy the server on this port and replace part of its answers by text of the same length."""
    assert len(real) == len(told)

    async def forward(client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        server, commands = await asyncio.open_connection("127.0.0.1", port)

        async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            try:
                while data := await source.read(1 << 20):
                    target.write(data.replace(real, told))
            finally:
                target.close()

        await asyncio.gather(pump(client, commands), pump(server, answers), return_exceptions=True)

    listener = await asyncio.start_server(forward, "127.0.0.1", 0)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()


async def test_a_redis_that_is_too_old_is_refused(tmp_path: Path) -> None:
    with RedisProcess("redis", tmp_path) as redis:
        version = redis.info("server")["redis_version"].encode()
        real, old = b"redis_version:" + version, b"redis_version:6.2" + version[3:]
        async with pretending(redis.port, real, old) as port:
            said = await refusal(redis_url(port))
        assert said.startswith("ConfigError")
        assert "is version 6.2" in said
        assert "needs 7.0 or newer" in said


async def test_a_server_that_is_not_redis_is_refused_with_its_port() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    listener = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        port = listener.sockets[0].getsockname()[1]
        with pytest.raises(EngineUnavailable) as refused:
            await RedisNode(redis_url(port), PREFIX).start()
        assert str(port) in str(refused.value)
    finally:
        listener.close()
