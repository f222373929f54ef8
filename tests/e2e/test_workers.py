"""`greendot serve --workers 2` on a real Redis: one server for clients, several processes for the system."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.processes import Process, ask, greendot, running, serves_a_fresh_client, until
from greendot.testing import Closed, WireClient
from redis_servers import redis_server

ATTEMPTS = 100  # the kernel chooses a worker at random: this many clients reach both


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server("redis", tmp_path_factory.mktemp("redis")) as port:
        yield f"redis://127.0.0.1:{port}"


@asynccontextmanager
async def working(folder: Path, redis: str, **environment: str) -> AsyncIterator[Process]:
    flags = ("--host", "127.0.0.1", "--workers", "2", "--engine", redis)
    async with running(folder, *flags, **environment) as server:
        yield server


def workers_of(server: Process) -> set[int]:
    return {int(pid) for pid in Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()}


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def hears(client: WireClient, kind: str) -> dict[str, Any]:
    """Return the data of the next event of a type, skipping other events."""
    while (frame := await client.receive())["type"] != kind:
        pass
    data: dict[str, Any] = frame["data"]
    return data


async def on_two_workers(server: Process, stack: AsyncExitStack, *users: str) -> list[WireClient]:
    """Connect two users, the second to another worker than the first."""
    first = await stack.enter_async_context(await server.client(users[0]))
    for _ in range(ATTEMPTS):
        second = await server.client(users[1])
        if second.welcome["node"] != first.welcome["node"]:
            return [first, await stack.enter_async_context(second)]
        second.send(type="bye")
        await second.closed()
    raise AssertionError("all clients reached the same worker")


async def refuses(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return True
    writer.close()
    return False


async def test_the_number_of_workers_is_announced_and_each_worker_answers(tmp_path: Path, redis: str) -> None:
    async with working(tmp_path, redis) as server, AsyncExitStack() as stack:
        assert "2 workers." in server.announced
        assert len(workers_of(server)) == 2
        await on_two_workers(server, stack, "alice", "bob")
        assert (await server.ask("GET", "/readyz")).status == 200


async def test_clients_on_different_workers_receive_the_events_of_each_other(tmp_path: Path, redis: str) -> None:
    async with working(tmp_path, redis) as server, AsyncExitStack() as stack:
        await server.ask("PUT", "/v1/rooms/club", {"open": True})
        alice, bob = await on_two_workers(server, stack, "alice", "bob")
        (entry,) = (await alice.request(type="watch", users=["bob"]))["presence"]
        assert entry["state"] == "online"
        for client in (alice, bob):
            await client.request(type="room.join", room="club")
        await bob.request(type="room.send", room="club", body="over there")
        message = await hears(alice, "room.message")
        assert (message["user"], message["body"]) == ("bob", "over there")
        bob.send(type="typing.start", room="club")
        assert (await hears(alice, "typing.started"))["user"] == "bob"


async def test_a_killed_worker_is_replaced_and_the_others_clients_notice_nothing(tmp_path: Path, redis: str) -> None:
    async with working(tmp_path, redis) as server, AsyncExitStack() as stack:
        clients = await on_two_workers(server, stack, "alice", "bob")
        before = workers_of(server)
        victim = min(before)
        os.kill(victim, signal.SIGKILL)
        await until(lambda: victim not in workers_of(server) and len(workers_of(server)) == 2)
        for _ in range(20):
            await serves_a_fresh_client(server.port, server.token("carol"))
        lost = []
        for client in clients:
            try:
                await client.quiet()
            except Closed as closed:
                lost.append(closed.code)
        assert lost == [1006]
        server.signal(signal.SIGTERM)
        ended = await server.ended()
        assert ended.code == 0
        assert f"(pid {victim}) was ended by SIGKILL" in ended.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("to_all", [False, True], ids=["to the parent", "to every process"])
async def test_a_signal_drains_all_workers_and_leaves_no_process(
    tmp_path: Path, redis: str, number: signal.Signals, to_all: bool
) -> None:
    async with working(tmp_path, redis) as server, AsyncExitStack() as stack:
        clients = await on_two_workers(server, stack, "alice", "bob")
        workers = workers_of(server)
        for pid in (server.pid, *workers) if to_all else (server.pid,):
            os.kill(pid, number)
        for client in clients:
            assert (await hears(client, "drain"))["retry_in_ms"] > 0
            assert (await client.closed()).code == 4000
        ended = await server.ended(within_s=5)
        assert ended.code == 0
        assert (ended.err.count("Stopping"), ended.err.count("Stopped.")) == (1, 1)
        assert "Traceback" not in ended.err
        assert not any(is_running(pid) for pid in workers)
        assert await refuses(server.port)


async def test_a_second_signal_ends_all_at_once(tmp_path: Path, redis: str) -> None:
    async with (
        working(tmp_path, redis, GREENDOT_SERVER_DRAIN_S="30") as server,
        await server.client("mute") as mute,
    ):
        workers = workers_of(server)
        server.signal(signal.SIGTERM)
        await hears(mute, "drain")
        server.signal(signal.SIGTERM)
        assert (await server.ended(within_s=3)).code == -signal.SIGTERM
        assert not any(is_running(pid) for pid in workers)


async def test_workers_without_their_parent_drain_and_give_back_the_port(tmp_path: Path, redis: str) -> None:
    async with working(tmp_path, redis) as server, AsyncExitStack() as stack:
        clients = await on_two_workers(server, stack, "alice", "bob")
        workers = workers_of(server)
        server.signal(signal.SIGKILL)
        for client in clients:
            await hears(client, "drain")
            assert (await client.closed()).code == 4000
        await until(lambda: not any(is_running(pid) for pid in workers))
        assert await refuses(server.port)


async def test_the_port_of_other_workers_is_in_use(tmp_path: Path, redis: str) -> None:
    async with working(tmp_path, redis) as server:
        flags = ("--host", "127.0.0.1", "--port", str(server.port), "--store", f"sqlite:///{tmp_path}/own.db")
        for more in ((), ("--workers", "2", "--engine", redis)):
            ended = await greendot(tmp_path, "serve", *flags, *more)
            assert (ended.code, ended.out) == (2, "")
            assert ended.err.count(f"port {server.port} is in use") == 1
        assert (await ask(server.port, "GET", "/livez")).status == 200


async def test_a_failed_start_of_workers_is_reported_once(tmp_path: Path, redis: str) -> None:
    (tmp_path / "letter").write_text("Dear server, " * 100)
    flags = ("--host", "127.0.0.1", "--port", "0", "--workers", "3")
    for more, word in (
        (("--engine", redis, "--store", f"sqlite:///{tmp_path}/letter"), f"the store {tmp_path}/letter"),
        (("--engine", "redis://127.0.0.1:1"), "127.0.0.1:1"),
    ):
        ended = await greendot(tmp_path, "serve", *flags, *more)
        assert (ended.code, ended.out) == (2, "")
        assert ended.err.startswith("greendot: ")
        assert ended.err.count(word) == ended.err.count("\n") == 1
