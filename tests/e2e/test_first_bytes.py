"""Bytes that a client has sent before the server accepts its socket. The client is synchronous: the server waits."""

from __future__ import annotations

import asyncio
import socket

import pytest

from e2e.narrow import upgrade
from greendot.testing import Served, serving
from greendot.transport import acceptor

READY = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"


def sent(served: Served, data: bytes, *, ended: bool = False) -> socket.socket:
    """Connect and send, both before the server runs again."""
    client = socket.create_connection(("127.0.0.1", served.port))
    client.sendall(data)
    if ended:
        client.shutdown(socket.SHUT_WR)
    client.setblocking(False)
    return client


async def answer(client: socket.socket, end: bytes) -> bytes:
    found = b""
    async with asyncio.timeout(20):
        while end not in found and (data := await asyncio.get_running_loop().sock_recv(client, 4096)):
            found += data
    return found


async def test_a_handshake_that_is_there_already_is_answered() -> None:
    async with serving() as served:
        with sent(served, upgrade()) as client:
            assert (await answer(client, b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")


@pytest.mark.parametrize("cut", [1, 20, len(READY) - 1])
async def test_the_rest_of_a_request_may_follow_the_bytes_that_are_there(cut: int) -> None:
    async with serving() as served:
        with sent(served, READY[:cut]) as client:
            await asyncio.sleep(0)
            client.send(READY[cut:])
            assert (await answer(client, b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


async def test_a_handshake_in_two_parts_is_answered() -> None:
    async with serving() as served:
        whole = upgrade()
        with sent(served, whole[:30]) as client:
            await asyncio.sleep(0)
            client.send(whole[30:])
            assert (await answer(client, b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")


async def test_a_request_whose_client_sends_nothing_more_is_answered() -> None:
    async with serving() as served:
        with sent(served, READY, ended=True) as client:
            assert (await answer(client, b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


async def test_a_client_that_sent_half_a_request_and_ended_leaves_nothing_behind() -> None:
    async with serving() as served:
        with sent(served, READY[:10], ended=True) as client:
            assert await answer(client, b"\r\n\r\n") == b""
        await served.settle()
        assert served.node.ingress.address_groups == 0


async def test_a_client_that_ended_without_a_byte_leaves_nothing_behind() -> None:
    async with serving() as served:
        with sent(served, b"", ended=True) as client:
            assert await answer(client, b"\r\n\r\n") == b""
        await served.settle()
        assert served.node.ingress.address_groups == 0


@pytest.mark.parametrize(("data", "status"), [(upgrade(), b"101"), (READY, b"200")])
async def test_a_system_without_epoll_is_served_by_the_event_loop(
    data: bytes, status: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor, "HAS_EPOLL", False)
    async with serving() as served:
        with sent(served, data) as client:
            assert (await answer(client, b"\r\n\r\n")).startswith(b"HTTP/1.1 " + status)
