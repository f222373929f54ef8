"""ASGI exchange: guarantees for an application, and handling of one that breaks the rules."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from greendot.transport.http_exchange import PER_TURN, App, Exchange, RequestThrottle

START = {"type": "http.response.start", "status": 200, "headers": []}
LENGTH = {**START, "headers": [(b"content-length", b"3")]}
BODY = {"type": "http.response.body"}


class Recorded:
    """Connection that records written data."""

    def __init__(self) -> None:
        self.written = b""
        self.writes = 0
        self.ended: list[Exchange] = []
        self.aborted = False
        self.open = asyncio.Event()
        self.open.set()

    async def writable(self) -> None:
        await self.open.wait()

    def write(self, data: bytes) -> None:
        self.written += data
        self.writes += 1

    def throttle(self) -> None: ...

    def answered(self, exchange: Exchange) -> None:
        self.ended.append(exchange)

    def abort(self) -> None:
        self.aborted = True


def exchange(line: Recorded, method: str = "GET", version: str = "1.1", *, expects: bool = False) -> Exchange:
    scope = {"type": "http", "method": method, "http_version": version}
    return Exchange(scope, line, [(b"x-all", b"1")], keep_alive=version == "1.1", expects=expects)


def sending(*messages: dict[str, Any]) -> App:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in messages:
            await send({**message})

    return app


RESPONSES = {
    "with a length": (("GET", "1.1"), [LENGTH, {**BODY, "body": b"abc"}], b"content-length: 3\r\n\r\nabc"),
    "in pieces with a length": (
        ("GET", "1.1"),
        [LENGTH, {**BODY, "body": b"ab", "more_body": True}, {**BODY, "body": b"c"}],
        b"content-length: 3\r\n\r\nabc",
    ),
    "in chunks": (
        ("GET", "1.1"),
        [START, {**BODY, "body": b"ab", "more_body": True}, {**BODY, "body": b"", "more_body": True}, BODY],
        b"transfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
    ),
    "until the end in HTTP/1.0": (
        ("GET", "1.0"),
        [START, {**BODY, "body": b"ab", "more_body": True}, {**BODY, "body": b"c"}],
        b"connection: close\r\n\r\nabc",
    ),
    "without a body for HEAD": (("HEAD", "1.1"), [LENGTH, {**BODY, "body": b"abc"}], b"content-length: 3\r\n\r\n"),
    "without a body for 204": (("GET", "1.1"), [{**START, "status": 204}, BODY], b"x-all: 1\r\n\r\n"),
    "with options of the connection": (
        ("GET", "1.0"),
        [{**LENGTH, "headers": [(b"connection", b"upgrade"), (b"content-length", b"0")]}, BODY],
        b"content-length: 0\r\nconnection: upgrade, close\r\n\r\n",
    ),
}


@pytest.mark.parametrize(("asked", "messages", "end"), RESPONSES.values(), ids=RESPONSES.keys())
async def test_a_response_is_framed_as_its_request_and_length_ask_for(
    asked: tuple[str, str], messages: list[dict[str, Any]], end: bytes
) -> None:
    line = Recorded()
    one = exchange(line, *asked)
    await one.run(sending(*messages))
    assert line.written.endswith(end)
    assert b"x-all: 1\r\n" in line.written
    assert line.ended == [one]
    assert one.keep_alive is (asked[1] == "1.1")


async def test_head_and_body_are_one_write() -> None:
    line = Recorded()
    await exchange(line).run(sending(LENGTH, {**BODY, "body": b"abc"}))
    assert line.writes == 1


async def test_a_response_that_closes_the_connection_has_one_close_header() -> None:
    line = Recorded()
    one = exchange(line)
    await one.run(sending({**LENGTH, "headers": [(b"connection", b"close"), (b"content-length", b"0")]}, BODY))
    assert one.keep_alive is False
    assert line.written.count(b"close") == 1


async def boom(scope: Any, receive: Any, send: Any) -> None:
    raise ValueError("of the application")


BROKEN: dict[str, App] = {
    "raises": boom,
    "returns without a response": sending(),
    "begins with a body": sending(BODY),
    "has a line break in a header": sending({**START, "headers": [(b"x", b"a\r\nb: c")]}),
    "has a name that is none": sending({**START, "headers": [(b"x y", b"a")]}),
}


@pytest.mark.parametrize("app", BROKEN.values(), ids=BROKEN.keys())
async def test_a_failure_before_the_response_is_answered_500_and_logged(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    line = Recorded()
    one = exchange(line)
    await one.run(app)
    assert line.written.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    assert line.ended == [one]
    assert one.keep_alive is False
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


CUT_SHORT = {
    "no end": [LENGTH],
    "shorter than announced": [LENGTH, {**BODY, "body": b"ab"}],
    "longer than announced": [LENGTH, {**BODY, "body": b"abcd"}],
    "two heads": [LENGTH, LENGTH],
}


@pytest.mark.parametrize("messages", CUT_SHORT.values(), ids=CUT_SHORT.keys())
async def test_a_failure_within_the_response_ends_the_connection(messages: list[dict[str, Any]]) -> None:
    line = Recorded()
    await exchange(line).run(sending(*messages))
    assert line.aborted
    assert line.ended == []


async def test_the_body_is_received_in_pieces_and_then_the_end() -> None:
    one = exchange(Recorded())
    one.feed(b"a")
    assert await one.receive() == {"type": "http.request", "body": b"a", "more_body": True}
    one.feed(b"b")
    one.feed(b"c")
    one.complete()
    assert await one.receive() == {"type": "http.request", "body": b"bc", "more_body": False}
    one.disconnect()
    assert await one.receive() == {"type": "http.disconnect"}


async def test_100_continue_is_written_when_the_body_is_asked_for_and_once() -> None:
    line = Recorded()
    one = exchange(line, expects=True)
    receiving = asyncio.ensure_future(one.receive())
    await asyncio.sleep(0)
    assert line.written == b"HTTP/1.1 100 Continue\r\n\r\n"
    one.complete()
    await receiving
    assert line.writes == 1


async def test_nothing_is_written_for_a_client_that_is_gone_and_a_slow_one_is_waited_for() -> None:
    line = Recorded()
    one = exchange(line)
    line.open.clear()
    running = asyncio.ensure_future(one.run(sending(LENGTH, {**BODY, "body": b"abc"})))
    await asyncio.sleep(0)
    assert line.written == b""
    line.open.set()
    await running
    assert line.written.endswith(b"abc")
    gone = exchange(line)
    gone.disconnect()
    await gone.run(sending(LENGTH, {**BODY, "body": b"abc"}))
    assert line.writes == 1


async def test_a_few_requests_begin_in_each_turn_in_their_order() -> None:
    gate = RequestThrottle()
    begun: list[int] = []
    for number in range(PER_TURN * 2 + 5):
        gate.enter(lambda number=number: begun.append(number))  # type: ignore[misc]
    assert begun == [*range(PER_TURN)]
    await asyncio.sleep(0)
    assert len(begun) == PER_TURN * 2
    gate.enter(lambda: begun.append(-1))  # queued after waiting requests
    await asyncio.sleep(0)
    assert begun == [*range(PER_TURN * 2 + 5), -1]
    for _ in range(5):
        await asyncio.sleep(0)
    gate.enter(lambda: begun.append(-2))  # at once, because no request waits
    assert begun[-1] == -2
