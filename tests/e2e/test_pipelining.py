"""HTTP/1.1 on one connection as raw bytes: pipelined requests, trailers, upgrades behind requests, half-closed and
unread sockets."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from pathlib import Path

import msgspec
import pytest

from e2e.narrow import upgrade
from e2e.processes import until
from greendot.testing import Served, WireClient, hold, serving
from greendot.testing.server import API_KEY
from greendot.testing.wire import PONG, TEXT, make_frame
from greendot.transport import parse_budget
from greendot.transport.http1 import BODY_LEAST, MAX_FIELDS, HttpProtocol
from greendot.transport.plain_socket import PlainSocket
from redis_servers.tls import certificates

STATUS = re.compile(rb"HTTP/1\.[01] (\d+)")
LIVE = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"
READY = b"GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n"  # waits for the store
LAST = b"GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
DOCUMENT = b"GET /asyncapi.json HTTP/1.1\r\nHost: a\r\n\r\n"  # larger than the server's write buffer
QUERY = b"POST /v1/presence/query HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %b\r\n" % API_KEY.encode()
CHUNKED = QUERY + b"Transfer-Encoding: chunked\r\n\r\n"
BODY = b'{"users": ["bob"]}'


class Raw(WireClient):
    """Raw HTTP client."""

    async def read_until(self, end: bytes) -> bytes:
        return await asyncio.wait_for(self._reader.readuntil(end), 10)

    async def rest(self) -> bytes:
        """Read until the server closes its side."""
        return await asyncio.wait_for(self._reader.read(), 10)

    def half_close(self) -> None:
        self._writer.write_eof()


@asynccontextmanager
async def raw(served: Served, *, receive_buffer: int = 0, tls: ssl.SSLContext | None = None) -> AsyncIterator[Raw]:
    pipe = socket.socket()
    if receive_buffer:
        pipe.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    pipe.setblocking(False)
    await asyncio.get_running_loop().sock_connect(pipe, ("127.0.0.1", served.port))
    name = None if tls is None else "127.0.0.1"
    limit = 2**12 if receive_buffer else 2**20
    async with Raw(*await asyncio.open_connection(sock=pipe, ssl=tls, server_hostname=name, limit=limit)) as client:
        yield client


def statuses(received: bytes) -> list[int]:
    return [int(found) for found in STATUS.findall(received)]


def counted(served: Served, reason: str) -> int:
    return int(getattr(served.node.metrics, f"realtime_refused_{reason}_total"))


def arrived(served: Served) -> int:
    """Return the bytes of a body that were received in time or discarded."""
    return sum(one._arrived + one._discarded for one in http_connections(served))


# --- pipelined requests ---


async def test_eight_pipelined_requests_are_answered_in_order() -> None:
    async with serving() as served, raw(served) as client:
        asked = [b"GET /nothing-%d HTTP/1.1\r\nHost: a\r\n\r\n" % number for number in range(7)]
        client.send_bytes(b"".join(asked) + LAST)
        received = await client.rest()
        assert statuses(received) == [404] * 7 + [200]
        assert re.findall(rb"there is no route /nothing-(\d)", received) == [b"%d" % number for number in range(7)]
        assert counted(served, "pipelined") == 0


@pytest.mark.parametrize("number", [9, 500])
async def test_of_more_the_first_eight_are_answered_and_the_socket_is_closed_and_counted(number: int) -> None:
    async with serving() as served:
        for apart in (False, True):
            async with raw(served) as client:
                if apart:
                    client.send_bytes(LIVE[:1])
                    await until(lambda: served.timers == 1)
                client.send_bytes((LIVE * number)[apart:])
                assert statuses(await client.rest()) == [200] * 8
        assert counted(served, "pipelined") == 2
        await until(lambda: served.timers == 0)


async def test_more_than_eight_one_after_the_other_are_all_answered() -> None:
    async with serving() as served, raw(served) as client:
        for _ in range(20):
            client.send_bytes(LIVE * 2)
            for _ in range(2):
                assert (await client.read_until(b"ok\n")).startswith(b"HTTP/1.1 200")
        assert counted(served, "pipelined") == 0


async def test_while_a_request_is_answered_what_follows_is_not_read() -> None:
    async with serving() as served, raw(served) as client:
        async with hold(served.node.store, "ping") as held:
            client.send_bytes(READY + LIVE)
            await held.reached()
            (protocol,) = served.greendot.server._web.connections
            assert len(protocol._exchanges) == 2
            client.send_bytes(LIVE * 10_000)  # more than the limit; they stay in the kernel
            await served.settle()
            assert len(protocol._exchanges) == 2
            assert protocol._paused
        assert statuses(await client.rest())[:2] == [200, 200]


async def test_a_client_that_goes_while_its_request_is_answered_leaves_nothing() -> None:
    async with serving() as served:
        for asked in (READY, READY * 3):
            async with hold(served.node.store, "ping") as held:
                async with raw(served) as client:
                    client.send_bytes(asked)
                    await held.reached()
                    await client.reset()
                if asked == READY:
                    await until(lambda: not served.greendot.server._web.connections)
            await until(lambda: not served.greendot.server._web.connections)
            await served.settle()
            await until(lambda: not served.greendot.server._web.tasks)
            assert held.calls == 1
            assert served.timers == 0


async def test_a_request_is_not_too_slow_while_the_server_does_not_read_it() -> None:
    async with serving() as served, raw(served) as client:
        async with hold(served.node.store, "ping") as held:
            client.send_bytes(READY * 2 + LAST[:20])
            await held.reached()
            await served.advance(25)
        client.send_bytes(LAST[20:])
        assert statuses(await client.rest()) == [200, 200, 200]


async def test_a_malformed_request_is_refused_after_the_responses_before_it() -> None:
    async with serving() as served, raw(served) as client:
        async with hold(served.node.store, "ping") as held:
            client.send_bytes(READY + LIVE + b"NONSENSE\r\n\r\n")
            await held.reached()
        assert statuses(await client.rest()) == [200, 200, 400]
        assert counted(served, "malformed") == 1


async def test_a_connection_is_closed_after_five_idle_seconds_and_line_breaks_do_not_keep_it() -> None:
    async with serving() as served, raw(served) as client:
        client.send_bytes(LIVE)
        await client.read_until(b"ok\n")
        await served.advance(4.9)
        client.send_bytes(b"\r\n\r\n")
        await served.settle()
        assert len(served.greendot.server._web.connections) == 1
        await served.advance(0.1)
        assert await client.rest() == b""
    async with serving() as served, raw(served) as client:
        client.send_bytes(LIVE)
        await client.read_until(b"ok\n")
        client.send_bytes(b"\r\n" * 10_000)
        assert statuses(await client.rest()) == [431]


async def test_a_second_request_has_ten_seconds_of_its_own() -> None:
    async with serving() as served, raw(served) as client:
        client.send_bytes(LIVE + LIVE[:10])
        await client.read_until(b"ok\n")
        await served.advance(9.9)
        assert served.timers == 1
        await served.advance(0.1)
        assert statuses(await client.rest()) == [408]
        assert counted(served, "slow") == 1


async def test_a_large_body_on_a_slow_line_is_read_as_long_as_it_goes_on() -> None:
    size = 2 * BODY_LEAST + 100
    async with serving() as served, raw(served) as client:
        client.send_bytes(QUERY + b"Content-Length: %d\r\n\r\n" % (size + len(BODY)))
        for _ in range(2):
            client.send_bytes(b" " * BODY_LEAST)
            await until(lambda: arrived(served) == BODY_LEAST)
            await served.advance(10)
        client.send_bytes(b" " * 100)
        await until(lambda: arrived(served) == 100)
        await served.advance(9.9)
        client.send_bytes(BODY)
        assert statuses(await client.read_until(b"\r\n\r\n")) == [200]


@pytest.mark.parametrize("key", ["right", "wrong"])
async def test_a_large_body_that_stops_or_is_not_wanted_has_ten_seconds(key: str) -> None:
    """The body of a request that was refused early is only discarded and gets no further time."""
    head = QUERY if key == "right" else QUERY.replace(API_KEY.encode(), b"wrong")
    async with serving() as served, raw(served) as client:
        client.send_bytes(head + b"Content-Length: 1000000\r\n\r\n")
        if key == "wrong":
            assert statuses(await client.read_until(b"\r\n\r\n")) == [401]
        size = BODY_LEAST if key == "wrong" else BODY_LEAST - 1
        client.send_bytes(b" " * size)
        await until(lambda: arrived(served) == size)
        await served.advance(10)
        assert statuses(await client.rest()) == ([408] if key == "right" else [])
        assert counted(served, "slow") == 1


async def test_a_server_that_stops_finishes_the_request_it_answers_and_no_other() -> None:
    async with serving() as served, raw(served) as client:
        async with hold(served.node.store, "ping") as held:
            client.send_bytes(READY * 3)
            await held.reached()
            closing = asyncio.ensure_future(served.greendot.server.close())
            await served.settle()
        received = await client.rest()
        assert statuses(received) == [200]
        assert received.count(b"connection: close") == 1
        await closing
        assert held.calls == 1


# --- over TLS ---


@asynccontextmanager
async def raw_tls(folder: Path) -> AsyncIterator[tuple[Served, Raw]]:
    made = certificates(folder)
    sections = {"tls": {"cert": str(made.certificate), "key": str(made.key)}}
    async with serving(**sections) as served, raw(served, tls=made.context()) as client:
        yield served, client


async def test_over_tls_a_pipeline_ends_in_a_websocket_too(tmp_path: Path) -> None:
    async with raw_tls(tmp_path) as (served, client):
        hello = make_frame(TEXT, msgspec.json.encode({"type": "hello", "token": served.token("alice")}))
        client.send_bytes(DOCUMENT * 7 + upgrade() + hello)
        received = b""
        while statuses(received) != [200] * 7 + [101] or not received.endswith(b"\r\n\r\n"):
            received += await client.read_until(b"\r\n\r\n")
        await client.receive("welcome")
        await served.advance(20, [client])
        assert (await client.request(type="room.list"))["rooms"] == []


async def test_over_tls_the_bounds_are_the_same(tmp_path: Path) -> None:
    async with raw_tls(tmp_path) as (served, client):
        client.send_bytes(LIVE * 100)
        assert statuses(await client.rest()) == [200] * 8
        assert counted(served, "pipelined") == 1
    async with raw_tls(tmp_path) as (served, client):
        client.send_bytes(CHUNKED + b"0\r\nX-Trailer: " + b"x" * 300_000)
        assert statuses(await client.rest()) == [431]


async def test_over_tls_unread_responses_end_the_socket_too(tmp_path: Path) -> None:
    made = certificates(tmp_path)
    async with serving(tls={"cert": str(made.certificate), "key": str(made.key)}) as served:
        pipe = socket.socket()  # asyncio streams over TLS would read ahead even when paused
        pipe.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await asyncio.to_thread(pipe.connect, ("127.0.0.1", served.port))
        with await asyncio.to_thread(made.context().wrap_socket, pipe, server_hostname="127.0.0.1") as unread:
            await asyncio.to_thread(unread.sendall, DOCUMENT[:1])
            await keep_send_buffer_small(served)
            await asyncio.to_thread(unread.sendall, DOCUMENT[1:] + DOCUMENT * 7)
            protocol = await stuck(served)
            assert protocol.transport.get_write_buffer_size() < 256 * 1024  # TLS by itself would buffer 512 KiB
            await served.advance(10)
            await until(lambda: not served.greendot.server._web.connections)
            assert counted(served, "unread") == 1


# --- an upgrade behind a request ---


async def test_the_101_comes_after_the_responses_before_it_and_the_socket_stays() -> None:
    async with serving() as served, raw(served) as client:
        async with hold(served.node.store, "ping") as held:
            client.send_bytes(READY)
            await held.reached()
            client.send_bytes(LIVE + upgrade())
            await served.settle()
        received = await client.read_until(b"\r\n\r\n") + await client.read_until(b"ok\n")
        assert statuses(received + await client.read_until(b"\r\n\r\n")) == [200, 200, 101]
        await client.hello(served.token("alice"))
        await served.advance(20, [client])  # longer than the keep-alive time
        assert (await client.request(type="room.list"))["rooms"] == []
        assert len(served.greendot.server._web.connections) == 0


async def test_an_upgrade_behind_the_last_request_is_not_made() -> None:
    async with serving() as served, raw(served) as client:
        client.send_bytes(LAST + upgrade())
        assert statuses(await client.rest()) == [200]
        assert served.node.metrics.ws_connections_total == 0


async def test_a_refused_upgrade_is_read_though_the_client_has_sent_more() -> None:
    async with serving() as served, raw(served) as client:
        async with hold(served.node.store, "ping") as held:
            client.send_bytes(READY + upgrade()[:-2] + b"Origin: http://evil.example\r\n\r\n")
            await held.reached()
            client.send_bytes(b"x" * 100_000)  # not read while the previous request is answered
            await served.settle()
        assert statuses(await client.rest()) == [200, 403]  # and the socket is not reset
        await client.end()
        await until(lambda: not served.greendot.server._web.connections and served.timers == 0)


@pytest.mark.parametrize("way", ["plain", "in pieces", "behind a request"])
async def test_frames_in_the_packet_of_the_upgrade_are_the_first_of_the_websocket(way: str) -> None:
    async with serving() as served, raw(served) as client:
        hello = make_frame(TEXT, msgspec.json.encode({"type": "hello", "token": served.token("alice")}))
        beat = make_frame(TEXT, b'{"type":"heartbeat"}')
        if way == "in pieces":
            client.send_bytes(b"GE")
            await until(lambda: served.timers == 1)
        request = upgrade()[2 if way == "in pieces" else 0 :] + hello + beat[:3]
        client.send_bytes(LIVE + request if way == "behind a request" else request)
        if way == "behind a request":
            await client.read_until(b"ok\n")
        assert (await client.read_until(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
        await client.receive("welcome")
        client.send_bytes(beat[3:])
        await client.receive("heartbeat.ack")


async def test_more_frames_than_fit_into_4_kib_wait_for_the_101() -> None:
    async with serving() as served, raw(served) as client:
        client.send_bytes(upgrade() + make_frame(PONG) * 1_000)
        assert statuses(await client.rest()) == [400]
        assert counted(served, "malformed") == 1


# --- trailers and chunks ---

TRAILERS = {
    "many trailers": b"0\r\n" + b"X-Trailer: x\r\n" * 3_000,
    "one endless trailer": b"0\r\nX-Trailer: " + b"x" * 300_000,
    "one endless name": b"0\r\n" + b"x" * 300_000,
    "an endless chunk extension": b"5;" + b"x" * 300_000,
    "a long extension with each chunk": (b"1;" + b"x" * 500 + b"\r\n \r\n") * 100,
    "zeros before a length": b"0" * 300_000,
}


@pytest.mark.parametrize("sent", TRAILERS.values(), ids=TRAILERS.keys())
async def test_trailers_and_chunk_extensions_count_as_headers(sent: bytes) -> None:
    async with serving() as served, raw(served) as client:
        client.send_bytes(CHUNKED + sent)
        assert set(statuses(await client.rest())) <= {431, 400}
        await served.advance(2)
        await until(lambda: not served.greendot.server._web.connections)
        assert counted(served, "headers") + counted(served, "malformed") == 1


async def test_a_chunked_body_in_many_small_pieces_with_a_few_trailers_is_read() -> None:
    async with serving() as served, raw(served) as client:
        body = BODY + b" " * 30_000
        chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
        trailers = b"Authorization: Bearer nonsense\r\nHost: evil\r\n"
        client.send_bytes(CHUNKED + chunks + b"0\r\n" + trailers + b"\r\n" + LAST)
        assert statuses(await client.rest()) == [200, 200]


async def test_trailers_are_not_taken_for_headers() -> None:
    async with serving() as served, raw(served) as client:
        unsigned = CHUNKED.replace(b"Authorization: Bearer %b\r\n" % API_KEY.encode(), b"")
        async with hold(served.node.store, "ping") as held:
            client.send_bytes(READY + unsigned + b"0\r\nAuthorization: Bearer %b\r\n\r\n" % API_KEY.encode() + LAST)
            await held.reached()
            await served.settle()
        assert statuses(await client.rest()) == [200, 401, 200]


# --- bodies ---


async def test_a_body_that_is_not_needed_is_read_up_to_a_bound() -> None:
    async with serving() as served:
        async with raw(served) as client:
            client.send_bytes(
                b"POST /livez HTTP/1.1\r\nHost: a\r\nContent-Length: 900000\r\n\r\n" + b"x" * 900_000 + LAST
            )
            assert statuses(await client.rest()) == [405, 200]
        async with raw(served) as client:
            client.send_bytes(b"POST /livez HTTP/1.1\r\nHost: a\r\nContent-Length: 99000000\r\n\r\n" + b"x" * 1_200_000)
            assert statuses(await client.rest()) == [405]


async def test_a_body_that_no_handler_reads_pauses_reading() -> None:
    async with serving() as served, raw(served) as client:
        async with hold(served.node.store, "ping") as held:
            client.send_bytes(READY.replace(b"\r\n\r\n", b"\r\nContent-Length: 1000000\r\n\r\n") + b"x" * 1_000_000)
            await held.reached()
            await served.settle()
            (protocol,) = served.greendot.server._web.connections
            await until(lambda: protocol._paused)
            assert len(protocol._receiving.body) <= 80 * 1024
        assert (await client.read_until(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")


async def test_a_client_that_expects_100_receives_continue_once_the_body_is_wanted() -> None:
    async with serving() as served:
        async with raw(served) as client:
            client.send_bytes(QUERY + b"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n" % len(BODY))
            assert await client.read_until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            client.send_bytes(BODY + LAST)
            assert statuses(await client.rest()) == [200, 200]
        async with raw(served) as client:
            client.send_bytes(b"POST /livez HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
            received = await client.rest()
            assert statuses(received) == [405]
            assert b"connection: close" in received


# --- loop time for parsing ---


@pytest.mark.parametrize("ends", ["open", "half-closed"])
async def test_what_waits_to_be_parsed_is_answered_in_order(monkeypatch: pytest.MonkeyPatch, ends: str) -> None:
    monkeypatch.setattr(parse_budget, "PARSING_S", 0.0)  # each read waits for a later turn
    async with serving() as served, raw(served) as client, raw(served) as other:
        sent = LIVE + CHUNKED + b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\n\r\n" + LAST
        for at in range(0, len(sent), 50):
            client.send_bytes(sent[at : at + 50])
            other.send_bytes(LIVE)
            assert statuses(await other.read_until(b"ok\n")) == [200]
        if ends == "half-closed":
            client.half_close()
        assert statuses(await client.rest()) == [200, 200, 200]


async def test_a_websocket_that_waits_to_be_parsed_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse_budget, "PARSING_S", 0.0)
    async with serving() as served, raw(served) as client:
        client.send_bytes(LIVE + upgrade() + make_frame(TEXT, b"{}"))
        assert statuses(await client.read_until(b"ok\n")) == [200]
        assert statuses(await client.read_until(b"\r\n\r\n")) == [101]
        assert (await client.receive("error"))["code"] == "bad_frame"


async def test_over_tls_what_waits_when_the_client_ends_is_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over TLS the end can arrive together with the bytes before it, although reading is paused."""
    monkeypatch.setattr(parse_budget, "PARSING_S", 0.0)
    async with raw_tls(tmp_path) as (served, client):
        client.send_bytes(LIVE)
        await client.end()
        await until(lambda: not served.greendot.server._web.connections and served.timers == 0)


@pytest.mark.parametrize("fields", [MAX_FIELDS, MAX_FIELDS + 1])
@pytest.mark.parametrize("trailers", [0, 100])
async def test_the_number_of_fields_of_a_request_is_bounded(fields: int, trailers: int) -> None:
    own = CHUNKED.count(b": ")
    head = CHUNKED[:-2] + b"a: b\r\n" * (fields - own - trailers) + b"\r\n12\r\n" + BODY
    async with serving() as served, raw(served) as client:
        client.send_bytes(head + b"\r\n0\r\n" + b"a: b\r\n" * trailers + b"\r\n" + LAST)
        assert statuses(await client.rest()) == ([431] if fields > MAX_FIELDS else [200, 200])
        assert counted(served, "headers") == (fields > MAX_FIELDS)


# --- half-closed sockets ---


async def test_complete_requests_of_a_half_closed_socket_are_answered() -> None:
    async with serving() as served, raw(served) as client:
        async with hold(served.node.store, "ping") as held:
            client.send_bytes(READY + LIVE)
            client.half_close()
            await held.reached()
            await served.settle()
        assert statuses(await client.rest()) == [200, 200]
        await until(lambda: not served.greendot.server._web.connections and served.timers == 0)


HALVES = {
    "nothing": b"",
    "half a head": LIVE[:-2],
    "half a body": QUERY + b"Content-Length: 100\r\n\r\n{",
    "a request and half of another": LIVE + LIVE[:-2],
}


@pytest.mark.parametrize("sent", HALVES.values(), ids=HALVES.keys())
async def test_half_a_request_on_a_half_closed_socket_ends_it_at_once(sent: bytes) -> None:
    async with serving() as served, raw(served) as client:
        client.send_bytes(sent)
        await client.drain()
        client.half_close()
        assert statuses(await client.rest()) == ([200] if sent.startswith(LIVE) else [])
        await until(lambda: not served.greendot.server._web.connections and served.timers == 0)


# --- unread responses ---


async def stalled(served: Served, client: Raw, asked: bytes) -> HttpProtocol:
    """Send requests without reading until the kernel accepts no more of the responses."""
    client.send_bytes(asked[:1])
    await keep_send_buffer_small(served)
    client._writer.transport.pause_reading()
    client.send_bytes(asked[1:])
    return await stuck(served)


def http_connections(served: Served) -> list[HttpProtocol]:
    return [one for one in served.greendot.server._web.connections if isinstance(one, HttpProtocol)]


async def keep_send_buffer_small(served: Served) -> None:
    """Wait for the first byte of the only HTTP client, then fix the size of the kernel's send buffer.

    By default the kernel lets the buffer of a full socket grow to some megabytes, at a speed that differs between
    machines. It could then accept all responses, or go on accepting them after the test has counted them.
    """
    await until(lambda: http_connections(served))
    (protocol,) = http_connections(served)
    transport = protocol.transport
    if isinstance(transport, PlainSocket):
        descriptor = transport.descriptor
    else:
        descriptor = transport.get_extra_info("socket").fileno()
    with socket.socket(fileno=os.dup(descriptor)) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)


async def stuck(served: Served) -> HttpProtocol:
    """Wait until the only HTTP client blocks the server's writes."""
    await until(lambda: any(not one._writable.is_set() for one in http_connections(served)))
    await served.settle()
    (protocol,) = http_connections(served)
    return protocol


async def test_unread_responses_end_the_socket_after_ten_seconds_and_the_others_are_not_made() -> None:
    async with serving() as served, raw(served, receive_buffer=4096) as client:
        protocol = await stalled(served, client, DOCUMENT * 8)
        assert len(protocol._exchanges) == 7
        await served.advance(9.9)
        assert len(protocol._exchanges) == 7
        assert served.timers == 1
        await served.advance(0.1)
        await until(lambda: not served.greendot.server._web.connections)
        assert served.timers == 0
        assert counted(served, "unread") == 1


async def test_a_slow_reader_that_goes_on_reading_is_not_closed() -> None:
    async with serving() as served, raw(served, receive_buffer=4096) as client:
        await stalled(served, client, DOCUMENT * 8)
        client._writer.transport.resume_reading()
        received = b""
        while statuses(received) != [200] * 8 or not received.endswith(b"}"):
            await served.advance(1)
            received += await asyncio.wait_for(client._reader.read(40_000), 10)
        assert counted(served, "unread") == 0


async def test_an_upgrade_waits_until_the_responses_before_it_are_read() -> None:
    async with serving() as served:
        async with raw(served, receive_buffer=4096) as client:
            protocol, received = await stalled(served, client, DOCUMENT * 5 + upgrade()), b""
            # The last response is in the transport's buffer, which the kernel does not accept.
            while protocol._exchanges:
                client._writer.transport.resume_reading()
                received += await client._reader.read(4_000)
                client._writer.transport.pause_reading()
                await served.settle()
            assert served.node.metrics.ws_connections_total == 0
            client._writer.transport.resume_reading()
            while statuses(received) != [200] * 5 + [101] or not received.endswith(b"\r\n\r\n"):
                received += await asyncio.wait_for(client._reader.read(40_000), 10)
            await client.hello(served.token("alice"))
        async with raw(served, receive_buffer=4096) as client:
            await stalled(served, client, DOCUMENT * 5 + upgrade())
            await served.advance(10)
            await until(lambda: not served.greendot.server._web.connections)
        assert served.node.metrics.ws_connections_total == 1


async def test_the_last_response_unread_ends_the_socket_too() -> None:
    async with serving() as served, raw(served, receive_buffer=4096) as client:
        last = DOCUMENT.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        protocol = await stalled(served, client, DOCUMENT * 4 + last)
        await served.advance(9.9)
        assert not protocol.transport.is_closing()
        await served.advance(0.1)
        await until(lambda: not served.greendot.server._web.connections)
        assert served.timers == 0
        assert counted(served, "unread") == 1


@pytest.mark.parametrize("request_bytes", [LAST, b"GET / HTTP/1.1\r\n\r\n"], ids=["answered", "refused"])
async def test_every_response_has_the_date(request_bytes: bytes) -> None:
    async with serving() as served, raw(served) as client:
        client.send_bytes(request_bytes)
        dates = re.findall(rb"\r\ndate: ([^\r]*)", await client.rest())
        assert len(dates) == 1
        assert abs(parsedate_to_datetime(dates[0].decode()).timestamp() - time.time()) < 60
