"""Redis link on a real server: commands are answered in order, and a dead server is detected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from greendot.engine.redis import link as module
from greendot.engine.redis.link import Link, RedisError, connect
from greendot.engine.redis.url import Address, RedisTarget, parse
from greendot.errors import EngineUnavailable
from redis_servers import RedisProcess, free_port
from waited import Lap

USERS = ["default on nopass ~* &ok:* +@all", "ann on >hush ~* &* +@all", "bob on nopass ~* &* +@all"]


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    with RedisProcess("redis", tmp_path_factory.mktemp("link"), user=USERS) as process:
        yield process


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[RedisProcess]:
    """Start a Redis server that the test may kill."""
    with RedisProcess("redis", tmp_path) as process:
        yield process


class Ends:
    """Callbacks of a link, recorded."""

    def __init__(self) -> None:
        self.pushes: list[Any] = []
        self.refusals: list[RedisError] = []
        self.lost = 0
        self.gone = asyncio.Event()

    def make(self) -> Link:
        return Link(self.pushes.append, self._lost, self.refusals.append)

    def _lost(self, link: Link) -> None:
        self.lost += 1
        self.gone.set()


async def open_link(port: int, ends: Ends, login: str = "") -> Link:
    place = parse(f"redis://{login}127.0.0.1:{port}")
    return await connect(ends.make, place, place.hosts[0], None)


@asynccontextmanager
async def linked(redis: RedisProcess, login: str = "") -> AsyncIterator[tuple[Link, Ends]]:
    ends = Ends()
    link = await open_link(redis.port, ends, login)
    try:
        yield link, ends
    finally:
        link.close()
        await ends.gone.wait()


async def failure(future: asyncio.Future[Any]) -> str:
    with pytest.raises(EngineUnavailable) as caught:
        await asyncio.wait_for(future, 10)
    return str(caught.value)


# --- commands ---


async def test_commands_of_one_turn_go_out_together_and_are_answered_in_order(redis: RedisProcess) -> None:
    async with linked(redis) as (link, _):
        await link.call("DEL", "count")
        before = int(redis.info("stats")["total_reads_processed"])
        answers = await asyncio.gather(*(link.call("INCR", "count") for _ in range(500)))
        assert answers == [*range(1, 501)]
        assert int(redis.info("stats")["total_reads_processed"]) - before < 10


async def test_an_error_answers_its_own_command_and_no_other(redis: RedisProcess) -> None:
    async with linked(redis) as (link, ends):
        await link.call("SET", "text", "x")
        first, wrong, last = link.call("GET", "text"), link.call("INCR", "text"), link.call("GET", "text")
        with pytest.raises(RedisError) as caught:
            await wrong
        assert caught.value.code == "ERR"
        assert (await first, await last) == (b"x", b"x")
        assert ends.refusals == []


async def test_errors_of_commands_without_a_waiting_caller_are_handed_over(redis: RedisProcess) -> None:
    async with linked(redis) as (link, ends):
        link.post("SET", "posted", "x")
        link.post("EVALSHA", "0" * 40, 0)
        link.post("INCR", "posted")
        assert await link.call("GET", "posted") == b"x"
        assert [error.code for error in ends.refusals] == ["NOSCRIPT", "ERR"]


async def test_the_answer_to_a_cancelled_call_is_not_given_to_another_call(redis: RedisProcess) -> None:
    async with linked(redis) as (link, _):
        given_up = link.call("ECHO", "first")
        second = link.call("ECHO", "second")
        given_up.cancel()
        assert await second == b"second"


async def test_texts_bytes_and_numbers_arrive_as_they_are(redis: RedisProcess) -> None:
    async with linked(redis) as (link, _):
        for given, kept in (("Zoë", "Zoë".encode()), (b"\x00\r\n\xff", b"\x00\r\n\xff"), (-17, b"-17"), ("", b"")):
            await link.call("SET", "any", given)
            assert await link.call("GET", "any") == kept


# --- subscriptions ---


async def test_a_subscription_is_done_when_every_channel_is_confirmed(redis: RedisProcess) -> None:
    async with linked(redis) as (link, ends), linked(redis, "ann:hush@") as (other, _):
        names = [f"ok:{number}" for number in range(300)]
        await link.subscribe("SUBSCRIBE", names)
        counts = await asyncio.gather(*(other.call("PUBLISH", name, f"to {name}") for name in names))
        assert counts == [1] * 300
        await link.call("PING")
        assert ends.pushes == [[b"message", name.encode(), f"to {name}".encode()] for name in names]
        await link.subscribe("UNSUBSCRIBE", names)
        assert await other.call("PUBLISH", "ok:1", "x") == 0


async def test_commands_and_subscriptions_of_one_turn_each_get_their_own_answer(redis: RedisProcess) -> None:
    async with linked(redis) as (link, _):
        asked = [
            link.call("ECHO", "a"),
            link.subscribe("SUBSCRIBE", ["ok:a", "ok:b"]),
            link.call("ECHO", "b"),
            link.subscribe("SSUBSCRIBE", ["ok:c"]),
            link.subscribe("UNSUBSCRIBE", ["ok:a"]),
            link.call("ECHO", "c"),
        ]
        assert await asyncio.gather(*asked) == [b"a", None, b"b", None, None, b"c"]


async def test_a_refused_subscription_raises_and_affects_no_other_call(redis: RedisProcess) -> None:
    async with linked(redis) as (link, ends):
        refused = link.subscribe("SUBSCRIBE", ["ok:1", "not:mine"])
        fine = link.subscribe("SUBSCRIBE", ["ok:2"])
        after = link.call("ECHO", "after")
        with pytest.raises(RedisError) as caught:
            await refused
        assert caught.value.code == "NOPERM"
        assert (await fine, await after) == (None, b"after")
        assert ends.pushes == []


async def test_messages_that_come_between_confirmations_are_handed_over_too(redis: RedisProcess) -> None:
    async with linked(redis) as (link, ends), linked(redis, "ann:hush@") as (other, _):
        await link.subscribe("SUBSCRIBE", ["ok:1"])
        for number in range(50):
            other.post("PUBLISH", "ok:1", number)
            waiting = link.subscribe("SUBSCRIBE", [f"ok:other{number}"])
            await other.call("PING")
            await waiting
        await link.call("PING")
        assert [push[2] for push in ends.pushes] == [str(number).encode() for number in range(50)]


# --- the end of a link ---


async def test_a_lost_connection_fails_all_pending_calls_and_is_reported_once(mortal: RedisProcess) -> None:
    ends = Ends()
    link = await open_link(mortal.port, ends)
    waiting = [link.call("BLPOP", "nothing", 0), link.call("PING"), link.subscribe("SUBSCRIBE", ["ok:1"])]
    link.post("PING")
    await asyncio.sleep(0)
    mortal.kill()
    assert {await failure(future) for future in waiting} == {"the connection to Redis was lost"}
    assert (ends.lost, link.open) == (1, False)
    assert await failure(link.call("PING")) == "no connection to Redis"
    link.post("PING")  # a post has no answer, so it does not fail
    link.close()


async def test_a_server_that_answers_nothing_for_the_deadline_is_given_up(
    mortal: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DEADLINE_S", 0.2)
    ends = Ends()
    link = await open_link(mortal.port, ends)
    mortal.stop()
    loop = asyncio.get_running_loop()
    began, lap = loop.time(), Lap()
    waiting = [link.call("PING"), link.call("PING")]
    assert {await failure(future) for future in waiting} == {"the connection to Redis was lost"}
    assert loop.time() - began >= 0.2
    assert lap.seconds < 2
    assert ends.lost == 1


async def test_a_server_that_goes_on_answering_is_not_given_up(
    redis: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DEADLINE_S", 0.1)
    async with linked(redis) as (link, ends):
        loop = asyncio.get_running_loop()
        end = loop.time() + 0.5
        ahead = [link.call("PING") for _ in range(10)]
        while loop.time() < end:  # calls always wait, and answers always arrive
            ahead.append(link.call("PING"))
            await ahead.pop(0)
        assert (link.open, ends.lost) == (True, 0)


async def test_a_link_in_the_middle_of_nothing_is_not_given_up(
    redis: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DEADLINE_S", 0.05)
    async with linked(redis) as (link, ends):
        await link.call("PING")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ends.gone.wait(), 0.3)
        assert await link.call("PING") in (b"PONG", "PONG")


async def test_a_server_that_takes_nothing_in_does_not_fill_our_memory(
    mortal: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_UNSENT", 100_000)
    ends = Ends()
    link = await open_link(mortal.port, ends)
    mortal.stop()
    for _ in range(1000):
        link.post("SET", "large", "x" * 100_000)
        await asyncio.sleep(0)
        if not link.open:
            break
    assert not link.open
    await asyncio.wait_for(ends.gone.wait(), 10)


async def test_whatever_does_not_speak_as_redis_does_is_not_listened_to() -> None:
    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(other, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(EngineUnavailable, match="lost"):
            await open_link(port, Ends())
    finally:
        server.close()
        await server.wait_closed()


# --- connecting ---


@pytest.mark.parametrize(
    ("login", "user"),
    [("", b"default"), ("ann:hush@", b"ann"), ("bob@", b"bob"), ("bob:any@", b"bob"), (":any@", b"default")],
)
async def test_the_login_of_the_url_is_used(redis: RedisProcess, login: str, user: bytes) -> None:
    async with linked(redis, login) as (link, _):
        assert await link.call("ACL", "WHOAMI") == user
        assert b"name=greendot" in await link.call("CLIENT", "INFO")


async def test_the_database_of_the_url_is_used(redis: RedisProcess) -> None:
    ends, place = Ends(), parse(f"redis://127.0.0.1:{redis.port}/3")
    link = await connect(ends.make, place, place.hosts[0], None)
    try:
        assert b" db=3 " in await link.call("CLIENT", "INFO")
    finally:
        link.close()
        await ends.gone.wait()


async def test_a_wrong_password_is_the_reason_given_and_is_not_repeated(redis: RedisProcess) -> None:
    with pytest.raises(EngineUnavailable, match="WRONGPASS") as caught:
        await open_link(redis.port, Ends(), "ann:gossip@")
    assert "gossip" not in str(caught.value)


async def test_a_database_that_is_not_there_is_the_reason_given(redis: RedisProcess) -> None:
    place, ends = parse(f"redis://127.0.0.1:{redis.port}/99"), Ends()
    with pytest.raises(EngineUnavailable, match="DB index"):
        await connect(ends.make, place, place.hosts[0], None)
    await asyncio.wait_for(ends.gone.wait(), 10)


async def test_not_answering_in_time_is_the_reason_given(mortal: RedisProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECT_S", 0.2)
    mortal.stop()  # the kernel still accepts connections for it
    with pytest.raises(EngineUnavailable, match=r"^no answer in time$"):
        await open_link(mortal.port, Ends())


async def test_a_refused_connection_is_the_reason_of_the_error() -> None:
    with pytest.raises(EngineUnavailable, match=r"^Connection refused$"):
        await connect(Ends().make, RedisTarget("standalone", ()), Address("127.0.0.1", free_port()), None)


async def test_how_long_redis_takes_is_measured_on_what_is_asked_anyway(redis: RedisProcess) -> None:
    async with linked(redis) as (link, _):
        await link.call("PING")
        assert link.latency_s > 0
        # One slow call among a hundred: the latency is that of the write they share.
        calls = [link.call("PING") for _ in range(100)]
        calls += [link.call("BLPOP", "nothing", "0.2"), link.call("PING")]
        await asyncio.gather(*calls)
        assert link.latency_s >= 0.2
        slow_s = link.latency_s
        await link.call("PING")
        assert link.latency_s < slow_s
