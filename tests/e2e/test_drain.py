"""Drain of a stopping server: what clients, proxies and apps receive, in which order, and which requests still work."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from e2e.processes import Answer, answer_in, ask, running, until
from greendot.protocol.codes import Close
from greendot.testing import Closed, Served, WireClient, hold, serving
from greendot.testing.server import API_KEY


async def told(client: WireClient) -> int:
    """Read up to the close and return the retry time in milliseconds."""
    frame = await client.receive("drain")
    assert (await client.closed()).code == Close.DRAINING
    found: int = frame["data"]["retry_in_ms"]
    return found


def open_count(served: Served) -> int:
    return sum(not connection.closing for connection in served.node.registry.connections.values())


# --- clients ---


async def test_clients_are_sent_away_one_after_the_other_and_come_back_as_evenly() -> None:
    async with serving(admission={"hellos_per_s": 20, "hellos_at_once": 500}) as served:
        clients = []
        for number in range(20):
            clients.append(await served.client(f"user{number}"))
            await served.advance(0.05)
        counts = {open_count(served)}
        draining = asyncio.get_running_loop().create_task(served.node.drain(2.0))
        while not draining.done():
            counts.add(open_count(served))
            await asyncio.sleep(0.005)
        # Twenty clients at twenty hellos per second need one of the two seconds: they are closed one by one.
        assert len(counts) > 10
        assert all(500 <= retry_in_ms <= 1_000 for retry_in_ms in await asyncio.gather(*map(told, clients)))


async def test_no_client_is_asked_to_wait_for_longer_than_its_session_lingers() -> None:
    periods = {"grace_s": 4.0, "clean_grace_s": 1.0}
    async with serving(admission={"hellos_per_s": 1, "hellos_at_once": 500}, presence=periods) as served:
        clients = []
        for number in range(12):
            clients.append(await served.client(f"user{number}"))
            await served.advance(1.0)
        draining = asyncio.get_running_loop().create_task(served.node.drain(0.2))
        waits = await asyncio.gather(*map(told, clients))
        await draining
        assert max(waits) <= 2_500


async def test_a_command_under_way_is_answered_before_the_client_is_sent_away() -> None:
    async with serving() as served:
        await served.lobby()
        alice, bob = await served.joined("alice"), await served.joined("bob")
        async with hold(served.node.store, "append") as held:
            alice.send(type="room.send", room="lobby", body="the last word", id="s")
            await held.reached()
            draining = asyncio.get_running_loop().create_task(served.node.drain(20.0))
            await told(bob)
            assert not draining.done()
        assert (await alice.receive("reply"))["data"]["seq"] == 1
        assert (await alice.receive("room.message"))["data"]["body"] == "the last word"
        await told(alice)
        await draining


@asynccontextmanager
async def waiting_for_a_reply(served: Served) -> AsyncIterator[WireClient]:
    """Yield a client whose command does not end."""
    await served.lobby()
    alice = await served.joined("alice")
    async with hold(served.node.store, "append") as held:
        alice.send(type="room.send", room="lobby", body="later", key="k", id="s")
        await held.reached()
        yield alice


async def test_a_command_that_takes_too_long_does_not_keep_the_server(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with serving() as served:
        async with waiting_for_a_reply(served) as alice:
            draining = asyncio.get_running_loop().create_task(served.node.drain(1.0))
            await told(alice)
            await draining
        # There was time left for the close handshake: a client that replies is not aborted.
        assert "; 0 clients did not answer the close frame; 1 connections had" in caplog.text


async def test_a_client_has_time_to_answer_although_the_loop_was_late(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with serving() as served:
        async with waiting_for_a_reply(served) as alice:
            draining = asyncio.get_running_loop().create_task(served.node.drain(0.5))
            await asyncio.sleep(0)
            time.sleep(1.0)  # noqa: ASYNC251  (the loop is late: the drain time ends before the close is sent)
            await told(alice)
            await draining
        assert "; 0 clients did not answer the close frame; 1 connections had" in caplog.text


async def test_who_opens_a_socket_meanwhile_is_sent_away_too() -> None:
    async with serving() as served:
        alice = await served.client("alice")
        draining = asyncio.get_running_loop().create_task(served.node.drain(5.0))
        late = await served.socket()
        assert await told(alice) > 0
        assert await told(late) > 0
        await draining


# --- proxies and apps ---


class Kept:
    """Keep-alive connection, as proxies and apps use it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, path: str) -> Answer:
        self._writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {API_KEY}\r\n\r\n".encode())
        head = await self._reader.readuntil(b"\r\n\r\n")
        found = re.search(rb"content-length: (\d+)", head)
        assert found, head
        return answer_in(head + await self._reader.readexactly(int(found[1])))

    async def ended(self) -> None:
        assert await self._reader.read() == b""
        self._writer.close()


async def test_a_draining_node_serves_as_before_for_a_while_and_only_reports_that_it_is_not_ready() -> None:
    async with serving(server={"drain_notice_s": 0.6}) as served:
        kept = Kept(*await asyncio.open_connection("127.0.0.1", served.port))
        before = await kept.ask("/readyz")
        assert (before.status, before.headers.get("connection")) == (200, None)
        alice = await served.client("alice")
        stopping = asyncio.get_running_loop().create_task(served.greendot.stop())
        await until(lambda: served.node.draining)
        after = await kept.ask("/readyz")
        assert (after.status, after.json()["reason"]) == (503, "draining")
        assert after.headers["connection"] == "close"  # the client must open its next connection to another node
        await kept.ended()
        assert (await ask(served.port, "GET", "/livez")).status == 200
        bob = await served.client("bob")  # a proxy may not have noticed the drain yet
        assert await alice.quiet() == await bob.quiet() == []
        await told(alice)
        await told(bob)
        with pytest.raises(OSError):
            await served.socket()
        await stopping


async def test_a_request_under_way_is_answered() -> None:
    async with serving() as served:
        await served.lobby()
        async with hold(served.node.store, "append") as held:
            key = {"Authorization": f"Bearer {API_KEY}"}
            body = {"user": "app", "body": "posted"}
            posting = asyncio.get_running_loop().create_task(
                ask(served.port, "POST", "/v1/rooms/lobby/messages", body, **key)
            )
            await held.reached()
            stopping = asyncio.get_running_loop().create_task(served.greendot.stop())
            await until(lambda: served.node.draining)
            await asyncio.sleep(0.05)
            assert not stopping.done()
        assert (await posting).status == 201
        await stopping


async def test_what_fails_to_end_keeps_nothing_else_from_ending(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as served:
        alice = await served.client("alice")

        async def broken() -> None:
            raise RuntimeError("this job fails to stop")

        served.greendot.scheduler.close = broken  # type: ignore[method-assign]
        await served.greendot.stop()
        await told(alice)
        with pytest.raises(Closed):
            await alice.receive()
        assert "this job fails to stop" in caplog.text


# --- a process ---


async def test_a_stop_is_logged_in_two_lines_with_the_outcome_of_the_clients(tmp_path: Path) -> None:
    async with running(tmp_path, "--host", "127.0.0.1", GREENDOT_SERVER_DRAIN_NOTICE_S="0.3") as server:
        clients = [await server.client(f"user{number}") for number in range(3)]
        mute = await server.client("mute")
        began = time.monotonic()
        server.signal(signal.SIGTERM)
        for client in clients:
            await told(client)
        assert time.monotonic() - began >= 0.3
        ended = await server.ended()
        assert ended.code == 0
        lines = [line for line in ended.err.splitlines() if "drain" in line]
        assert "closing 4 connections" in lines[0]
        assert "; 1 clients did not answer the close frame; 0 connections had a command without a reply" in lines[1]
        assert len(lines) == 2
        await mute.end()
