"""Event streams through a real nginx: its defaults, the shipped file, and buffers that hold output back."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from deployed.programs import program
from deployed.test_proxied import NAME, STRICT, nginx, proxy
from e2e.processes import Process, running
from greendot.testing import WireClient
from greendot.testing.event_stream import EventStreamClient
from redis_servers import free_port
from redis_servers.tls import certificates

BEATS = 20
# `proxy_buffering` is on by default. Without an Upgrade header, WebSockets do not pass.
DEFAULTS = "location / { proxy_pass http://127.0.0.1:%d; }"
DEAF = "location / { proxy_pass http://127.0.0.1:%d; proxy_ignore_headers X-Accel-Buffering; proxy_buffer_size %s; }"


def configured(folder: Path, location: str) -> tuple[int, list[str]]:
    """Return nginx's port and start command for a server with this location."""
    port = free_port()
    places = "".join(
        f"{name}_temp_path {folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;\n" if os.getuid() == 0 else ""  # the folder belongs to root
    (folder / "nginx.conf").write_text(
        f"{user}daemon off;\nworker_processes 1;\npid {folder}/nginx.pid;\nerror_log stderr;\n"
        f"events {{ worker_connections 256; }}\nhttp {{\naccess_log off;\n{places}"
        f"server {{ listen 127.0.0.1:{port}; {location} }}\n}}\n"
    )
    return port, [program("nginx"), "-p", str(folder), "-e", "stderr", "-c", str(folder / "nginx.conf")]


@asynccontextmanager
async def behind(folder: Path, location: str, *sizes: str) -> AsyncIterator[tuple[Process, int]]:
    async with running(folder, "--host", "127.0.0.1") as server:
        port, command = configured(folder, location % (server.port, *sizes))
        async with proxy(folder, port, *command):
            yield server, port


async def converse(server: Process, client: EventStreamClient) -> None:
    """Check that each frame arrives at once, not with a later one."""
    async with await server.client("bob") as bob:
        await server.ask("PUT", "/v1/rooms/lobby", {"open": True})
        await client.hello(server.token("ann"))
        for each in (client, bob):
            await each.request(type="room.join", room="lobby")
        for number in range(1, BEATS + 1):
            await bob.request(type="room.send", room="lobby", body=number)
            while (frame := await client.receive())["type"] != "room.message":
                pass
            assert frame["data"]["seq"] == number
        assert await client.quiet() == []


async def test_with_the_defaults_of_nginx_sockets_fail_and_streams_pass_at_once(tmp_path: Path) -> None:
    async with behind(tmp_path, DEFAULTS) as (server, port):
        with pytest.raises(ConnectionError, match=r"HTTP/1\.1 4"):
            await WireClient.connect(port)
        async with await EventStreamClient.connect(port) as client:
            await converse(server, client)


async def test_a_client_that_leaves_and_a_server_that_is_killed_are_noticed_through_nginx(tmp_path: Path) -> None:
    async with behind(tmp_path, DEFAULTS) as (server, port):
        async with await server.client("bob") as bob:
            await bob.request(type="watch", users=["ann"])
            client = await EventStreamClient.connect(port)
            await client.hello(server.token("ann"))
            assert (await bob.receive("presence.changed"))["data"]["state"] == "online"
            client.send(type="bye")
            assert (await client.closed()).code == 1000
            assert (await bob.receive("presence.changed"))["data"]["state"] == "offline"
        async with await EventStreamClient.connect(port) as client:
            await client.hello(server.token("ann"))
            await server.kill()
            assert (await client.closed()).code == 1006


@pytest.mark.parametrize("size", ["4k", "8k"])
async def test_where_nginx_holds_output_back_in_spite_of_the_header_padding_helps(tmp_path: Path, size: str) -> None:
    async with behind(tmp_path, DEAF, size) as (server, port):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(EventStreamClient.connect(port), 0.5)  # the first event stays in a buffer
        async with await EventStreamClient.connect(port, "/v1/events?pad=16384") as client:
            await converse(server, client)


async def test_with_the_shipped_file_streams_pass_and_count_for_the_address_of_their_client(tmp_path: Path) -> None:
    made = certificates(tmp_path, (NAME, "127.0.0.1"))
    async with running(tmp_path, "--host", "127.0.0.1", **STRICT) as server:
        port, command = nginx(tmp_path, [free_port(), server.port], made)

        async def opened(source: str, **headers: str) -> EventStreamClient:
            tls = made.context(any_host=True)
            tls.check_hostname = False
            sent = {"Host": NAME, "Origin": f"https://{NAME}"} | headers
            return await EventStreamClient.connect(port, headers=sent, tls=tls, source=source)

        async with proxy(tmp_path, port, *command), await opened("127.0.0.2") as client:
            await client.hello(server.token("ann"))
            assert await client.quiet() == []
            with pytest.raises(ConnectionError, match="429"):
                await opened("127.0.0.2")
            with pytest.raises(ConnectionError, match="403"):
                await opened("127.0.0.3", Origin="https://evil.example")
            async with await opened("127.0.0.3") as other:
                await other.hello(server.token("eve"))
                assert {*client.statuses, *other.statuses} == {202}
