"""HTTP floods without authentication: the cost of one socket before it is identified."""

from __future__ import annotations

import asyncio
import re
import socket
from pathlib import Path

import pytest

from e2e.processes import PATIENCE_S, running
from hostile.flood import Flood, Step, flood
from hostile.probe import FLOOD_S, LONG, metric, probing

SOCKETS = 150
SENT = 10_000_000  # smallest number of bytes of a flood
EACH = 50  # sockets of each slow type
TAKEN = 32_000_000  # most bytes that one socket sends before it is closed: the kernel's buffers
LIVE = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"
DOCUMENT = b"GET /asyncapi.json HTTP/1.1\r\nHost: a\r\n\r\n"
pytestmark = pytest.mark.alone
CHUNKED = b"POST /v1/signals HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"


async def test_pipelined_requests_without_a_key_slow_no_other_client_down(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        async with probing(server) as probe:
            outcomes = await flood(Flood(server.port, [[]] * SOCKETS, LIVE, FLOOD_S, returns=True, ends=SOCKETS))
        probe.noticed_nothing()
        ended = [outcome for outcome in outcomes if outcome.ended != "open"]
        assert len(ended) >= SOCKETS
        assert max(len(re.findall(b"HTTP/1.1 200", outcome.received)) for outcome in outcomes) <= 8
        assert await metric(server, "realtime_refused_pipelined_total") >= SOCKETS


@pytest.mark.parametrize("reads", [True, False], ids=["read", "unread"])
async def test_pipelined_requests_in_two_pieces_slow_no_other_client_down(tmp_path: Path, reads: bool) -> None:
    """At most 8 pipelined requests arrive in one read, so only their responses slow them down."""
    padded = LIVE.replace(b"\r\n\r\n", b"\r\nX-Pad: " + b"x" * 3_000 + b"\r\n\r\n")
    async with running(tmp_path) as server:
        async with probing(server) as probe:
            outcomes = await flood(Flood(server.port, [[]] * SOCKETS, padded, FLOOD_S, reads=reads, sends=SENT))
        probe.noticed_nothing()
        assert sum(outcome.sent for outcome in outcomes) >= SENT
        assert await metric(server, "realtime_refused_headers_total") == 0


@pytest.mark.parametrize(
    ("opening", "repeated"),
    [(b"0\r\n", b"X-Trailer: x\r\n"), (b"0\r\nX-Trailer: ", b"x" * 1_000)],
    ids=["many trailers", "one trailer"],
)
async def test_endless_trailers_do_not_slow_other_clients(tmp_path: Path, opening: bytes, repeated: bytes) -> None:
    async with running(tmp_path) as server:
        openings = [[Step(CHUNKED + opening, b"")]] * 10
        async with probing(server) as probe:
            outcomes = await flood(Flood(server.port, openings, repeated, FLOOD_S, returns=True, ends=10))
        probe.noticed_nothing()
        ended = [outcome for outcome in outcomes if outcome.ended != "open"]
        assert len(ended) >= 10
        assert max(outcome.sent for outcome in ended) < TAKEN
        assert await metric(server, "realtime_refused_headers_total") >= 10


TINY_CHUNKS = CHUNKED.replace(b"Host: a", b"Host: 127.0.0.1") + b"1\r\nx\r\n" * 20_000 + b"0\r\n\r\n"
MANY_FIELDS = LIVE[:-2] + b"".join(b"a%d: b\r\n" % number for number in range(1_200)) + b"\r\n"


@pytest.mark.parametrize("repeated", [TINY_CHUNKS, MANY_FIELDS], ids=["chunks of a byte", "many fields"])
async def test_bytes_that_take_long_to_parse_slow_no_other_client_down(tmp_path: Path, repeated: bytes) -> None:
    async with running(tmp_path) as server:
        async with probing(server) as probe:
            outcomes = await flood(Flood(server.port, [[]] * SOCKETS, repeated, FLOOD_S, sends=SENT))
        probe.noticed_nothing()
        assert sum(outcome.sent for outcome in outcomes) >= SENT


# --- slow sockets ---


async def dial(port: int, first: bytes, *, narrow: bool = False) -> socket.socket:
    loop, sock = asyncio.get_running_loop(), socket.socket()
    if narrow:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await loop.sock_connect(sock, ("127.0.0.1", port))
    await loop.sock_sendall(sock, first)
    return sock


async def read_to_the_end(sock: socket.socket) -> None:
    try:
        while await asyncio.get_running_loop().sock_recv(sock, 65536):
            pass
    except ConnectionError:
        pass
    finally:
        sock.close()


async def drips(port: int) -> None:
    """Send a header byte by byte."""
    sock = await dial(port, b"GET /livez HTTP/1.1\r\nHost: a\r\nX-Slow: ")
    reading = asyncio.create_task(read_to_the_end(sock))
    try:
        while not reading.done():
            await asyncio.wait([reading], timeout=0.2)
            if sock.fileno() >= 0:
                await asyncio.get_running_loop().sock_sendall(sock, b"x")
    except ConnectionError:
        pass
    await reading


async def half_closes(port: int) -> None:
    """Send a part of a request and close the sending side."""
    sock = await dial(port, b"POST /v1/signals HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{")
    sock.shutdown(socket.SHUT_WR)
    await read_to_the_end(sock)


async def does_not_read(port: int) -> None:
    """Request large documents without reading them, until the server closes the socket."""
    sock = await dial(port, DOCUMENT * 8, narrow=True)
    try:
        while True:  # a send detects the reset; the server does not read these bytes
            await asyncio.sleep(0.2)
            sock.send(b"\r\n")
    except OSError:
        pass
    finally:
        sock.close()


async def test_slow_unread_and_half_closed_sockets_do_not_slow_other_clients(tmp_path: Path) -> None:
    """Slow sockets are closed after ten seconds, which e2e/test_pipelining.py and test_hostile.py test."""
    async with running(tmp_path) as server:
        slow: list[asyncio.Task[None]] = []
        try:
            async with probing(server) as probe:
                slow = [asyncio.create_task(kind(server.port)) for kind in (drips, does_not_read) for _ in range(EACH)]
                await asyncio.gather(*(half_closes(server.port) for _ in range(EACH)))
                await asyncio.wait(slow, timeout=PATIENCE_S if LONG else FLOOD_S)
            probe.noticed_nothing()
            if LONG:
                assert all(task.done() for task in slow)
                assert await metric(server, "realtime_refused_slow_total") == EACH
                assert await metric(server, "realtime_refused_unread_total") == EACH
        finally:
            for task in slow:
                task.cancel()
            await asyncio.gather(*slow, return_exceptions=True)
