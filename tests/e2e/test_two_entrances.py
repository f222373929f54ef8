"""Handshakes in one packet, read by the protocol sniffer, or in two, read by the HTTP parser: responses are equal."""

from __future__ import annotations

import asyncio
import random

from e2e.narrow import upgrade
from e2e.processes import until
from greendot.testing import serving
from greendot.transport.http1 import HttpProtocol

SIGNS = [
    b"\r\n",
    b"\r",
    b"\n",
    b" ",
    b"\t",
    b":",
    b",",
    b"?",
    b"#",
    b"%",
    b"=",
    b"/",
    b"\0",
    b"\x7f",
    b"\xe9",
    b"a",
    b"8",
]


async def first_answer(port: int, request: bytes, *, apart: bool) -> bytes:
    """Return the status line and the accept key; empty if the request was not complete."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in (request[:1], request[1:]) if apart else (request,):
            writer.write(piece)
            await asyncio.sleep(0.001)
        writer.write_eof()
        async with asyncio.timeout(10):
            answer = await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()
    status, *headers = answer.partition(b"\r\n\r\n")[0].split(b"\r\n")
    return b"\n".join([status, *(line for line in headers if line.lower().startswith(b"sec-websocket-accept"))])


def changed(request: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.randint(1, 2)):
        at, until_ = chance.randrange(len(request)), chance.randint(0, 2)
        request = request[:at] + chance.choice([b"", chance.choice(SIGNS)]) + request[at + until_ :]
    return request


async def test_a_request_changed_in_any_way_gets_the_same_answer_by_both_ways() -> None:
    chance = random.Random(5)
    good = [upgrade(), upgrade("/v1/connect?a=b", User_Agent="x", Connection="keep-alive, Upgrade")]
    async with serving() as served:
        accepted = 0
        for number in range(200):
            request = changed(good[number % 2], chance)
            answers = [await first_answer(served.port, request, apart=apart) for apart in (False, True)]
            assert answers[0] == answers[1], request
            accepted += answers[0].startswith(b"HTTP/1.1 101")
        assert 20 < accepted < 180
        await until(lambda: served.timers == 0)


async def test_a_silent_socket_is_closed_after_ten_seconds_and_a_closed_one_leaves_no_timer() -> None:
    async with serving() as served:
        silent = await asyncio.open_connection("127.0.0.1", served.port)
        leaving = await asyncio.open_connection("127.0.0.1", served.port)
        await until(lambda: served.timers == 2)
        leaving[1].close()
        await until(lambda: served.timers == 1)
        await served.advance(9.999)
        assert served.timers == 1
        await served.advance(0.001)
        assert (await asyncio.wait_for(silent[0].read(), 10)).startswith(b"HTTP/1.1 408")
        silent[1].close()


async def test_a_socket_that_speaks_late_has_no_more_time_than_others() -> None:
    async with serving() as served:
        late = await asyncio.open_connection("127.0.0.1", served.port)
        await until(lambda: served.timers == 1)
        await served.advance(9)
        late[1].write(b"GET /livez HTTP/1.1\r\n")
        await until(lambda: any(isinstance(one, HttpProtocol) for one in served.greendot.server._web.connections))
        await served.advance(1)
        assert (await asyncio.wait_for(late[0].read(), 10)).startswith(b"HTTP/1.1 408")
        late[1].close()


async def test_a_stopping_server_does_not_wait_for_silent_sockets() -> None:
    async with serving() as served:
        silent = await asyncio.open_connection("127.0.0.1", served.port)
        await until(lambda: served.timers == 1)
    assert await asyncio.wait_for(silent[0].read(), 5) == b""
    silent[1].close()
