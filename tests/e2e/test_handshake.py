"""Opening handshake as raw bytes: RFC 6455 section 4.2, with RFC 9110 and 9112 for the request."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from typing import NamedTuple

import pytest

from e2e.narrow import upgrade
from e2e.processes import answer_in, until
from greendot.testing import serving
from greendot.testing.server import API_KEY

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="  # RFC 6455, section 1.3
GOOD = upgrade(Sec_WebSocket_Key=KEY)


class Row(NamedTuple):
    """Request, status of the response, and header fields that the response must have, in lower case."""

    request: bytes
    status: int
    headers: dict[str, str] = {}  # noqa: RUF012


def with_line(line: str) -> bytes:
    """Return a good handshake with one more header line."""
    return GOOD.replace(b"Connection:", line.encode() + b"\r\nConnection:")


def with_target(target: str, version: str = "1.1") -> bytes:
    return GOOD.replace(b"GET /v1/connect HTTP/1.1", f"GET {target} HTTP/{version}".encode())


UPGRADED = {"sec-websocket-accept": ACCEPT.lower(), "upgrade": "websocket", "connection": "upgrade"}
NEEDS_UPGRADE = {"upgrade": "websocket", "connection": "upgrade, close"}
NEEDS_13 = NEEDS_UPGRADE | {"sec-websocket-version": "13"}

TABLE = {
    # accepted
    "the sample of the RFC": Row(GOOD, 101, UPGRADED),
    "names and tokens in upper case": Row(
        GOOD.replace(b"Upgrade: websocket", b"UPGRADE: WebSocket").replace(b"on: Upgrade", b"on: UPGRADE"),
        101,
        UPGRADED,
    ),
    "several connection options": Row(upgrade(Sec_WebSocket_Key=KEY, Connection="keep-alive, Upgrade"), 101, UPGRADED),
    "connection options in two lines": Row(with_line("Connection: keep-alive"), 101, UPGRADED),
    "several protocols to upgrade to": Row(upgrade(Sec_WebSocket_Key=KEY, Upgrade="h2c, websocket"), 101, UPGRADED),
    "a query": Row(with_target("/v1/connect?a=b"), 101, UPGRADED),
    "absolute form": Row(with_target("http://127.0.0.1/v1/connect"), 101, UPGRADED),
    "absolute form with a query": Row(with_target("http://127.0.0.1:80/v1/connect?a=b"), 101, UPGRADED),
    "an IPv6 host": Row(GOOD.replace(b"Host: 127.0.0.1", b"Host: [::1]:8080"), 101, UPGRADED),
    "a body of length 0": Row(with_line("Content-Length: 0"), 101, UPGRADED),
    "an unknown subprotocol and extension": Row(
        with_line("Sec-WebSocket-Protocol: other\r\nSec-WebSocket-Extensions: permessage-deflate"), 101, UPGRADED
    ),
    # version of the protocol (RFC 6455, 4.4)
    "version 7": Row(upgrade(Sec_WebSocket_Version="7"), 426, NEEDS_13),
    "version 8": Row(upgrade(Sec_WebSocket_Version="8"), 426, NEEDS_13),
    "version 8 with its origin header": Row(
        upgrade(Sec_WebSocket_Version="8", Sec_WebSocket_Origin="http://evil.example"), 426, NEEDS_13
    ),
    "version 14": Row(upgrade(Sec_WebSocket_Version="14"), 426, NEEDS_13),
    "version 013": Row(upgrade(Sec_WebSocket_Version="013"), 426, NEEDS_13),
    "no version": Row(upgrade(Sec_WebSocket_Version=None), 400, {"sec-websocket-version": "13"}),
    "the version twice": Row(with_line("Sec-WebSocket-Version: 13"), 400),
    "two versions": Row(with_line("Sec-WebSocket-Version: 8"), 400),
    "a list of versions": Row(upgrade(Sec_WebSocket_Version="13, 8"), 400),
    # the key
    "no key": Row(upgrade(Sec_WebSocket_Key=None), 400),
    "an empty key": Row(upgrade(Sec_WebSocket_Key=""), 400),
    "a key of 15 bytes": Row(upgrade(Sec_WebSocket_Key=base64.b64encode(bytes(15)).decode()), 400),
    "a key of 17 bytes": Row(upgrade(Sec_WebSocket_Key=base64.b64encode(bytes(17)).decode()), 400),
    "a key without padding": Row(upgrade(Sec_WebSocket_Key=KEY[:-2]), 400),
    "the key twice": Row(with_line(f"Sec-WebSocket-Key: {KEY}"), 400),
    "two keys": Row(with_line(f"Sec-WebSocket-Key: {'A' * 22}=="), 400),
    # the host (RFC 9112, 3.2)
    "no host": Row(upgrade(Host=None), 400),
    "the host twice": Row(with_line("Host: 127.0.0.1"), 400),
    "two hosts": Row(with_line("Host: evil.example"), 400),
    "a host with a blank": Row(upgrade(Host="a b"), 400),
    "a host with a path": Row(upgrade(Host="127.0.0.1/x"), 400),
    "a host with a user": Row(upgrade(Host="a@127.0.0.1"), 400),
    "a host whose port is no number": Row(upgrade(Host="127.0.0.1:http"), 400),
    # the upgrade
    "HTTP/1.0": Row(with_target("/v1/connect", "1.0"), 426, NEEDS_UPGRADE),
    "HTTP/1.2": Row(with_target("/v1/connect", "1.2"), 400),
    "HTTP/2.0": Row(with_target("/v1/connect", "2.0"), 505),
    "no upgrade": Row(upgrade(Upgrade=None, Connection="close"), 426, NEEDS_UPGRADE),
    "no connection option": Row(upgrade(Connection="close"), 426, NEEDS_UPGRADE),
    "another protocol": Row(upgrade(Upgrade="h2c", Connection="Upgrade, close"), 426, NEEDS_UPGRADE),
    "another method": Row(upgrade(method="POST", Connection="Upgrade, close"), 405, {"allow": "get, head"}),
    "another path": Row(upgrade("/v1/elsewhere"), 404),
    "a path that is open without a key": Row(upgrade("/livez"), 404),
    "a fragment": Row(with_target("/v1/connect#x"), 400),
    "absolute form with a user": Row(with_target("http://a@127.0.0.1/v1/connect"), 400),
    "absolute form of another scheme": Row(with_target("ftp://127.0.0.1/v1/connect"), 400),
    "asterisk form": Row(with_target("*"), 400),
    # a body
    "a body": Row(with_line("Content-Length: 5") + b"\x81\x80\0\0\0", 400),
    "a body to come": Row(with_line("Content-Length: 5"), 400),
    "a chunked body": Row(with_line("Transfer-Encoding: chunked") + b"0\r\n\r\n", 400),
    "two lengths": Row(with_line("Content-Length: 0\r\nContent-Length: 0"), 400),
}


async def answer(port: int, request: bytes, *, apart: bool) -> bytes:
    """Send a request in one packet or two, and read until the server closes or upgrades."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in (request[:1], request[1:]) if apart else (request,):
            writer.write(piece)
            await asyncio.sleep(0.001)
        async with asyncio.timeout(10):
            head = await reader.readuntil(b"\r\n\r\n")
            return head if head.startswith(b"HTTP/1.1 101") else head + await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE.keys())
async def test_a_handshake_is_answered_by_the_book(row: Row) -> None:
    async with serving() as served:
        for apart in (False, True):
            received = await answer(served.port, row.request, apart=apart)
            found = answer_in(received)
            assert (found.status, received.count(b"HTTP/1.")) == (row.status, 1)
            assert {name: found.headers.get(name) for name in row.headers} == row.headers
        await until(lambda: served.node.stats()["connections"] == 0 and served.timers == 0)


def test_the_sample_is_that_of_the_rfc() -> None:
    digest = hashlib.sha1(f"{KEY}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode(), usedforsecurity=False).digest()
    assert base64.b64encode(digest).decode() == ACCEPT


async def test_the_host_of_an_absolute_form_counts_and_not_the_header() -> None:
    async with serving(door={"hosts": ("good.example",)}) as served:
        for target, host, status in (
            ("http://good.example/v1/connect", "evil.example", 101),
            ("http://evil.example/v1/connect", "good.example", 403),
            ("http://good.example/metrics", "evil.example", 404),
            ("http://evil.example/metrics", "good.example", 403),
        ):
            request = upgrade(Host=host).replace(b"GET /v1/connect", f"GET {target}".encode())
            assert answer_in(await answer(served.port, request, apart=False)).status == status


@pytest.mark.parametrize("version", ["8", "13"])
async def test_no_header_of_an_older_draft_gets_a_page_past_the_origin_check(version: str) -> None:
    async with serving(door={"origins": ("https://good.example",)}) as served:
        request = upgrade(Sec_WebSocket_Version=version, Origin="https://evil.example")
        draft = request.replace(b"Origin:", b"Sec-WebSocket-Origin:")
        assert answer_in(await answer(served.port, request, apart=False)).status == (403 if version == "13" else 426)
        if version == "8":
            assert answer_in(await answer(served.port, draft, apart=False)).status == 426


PLAIN_HTTP = {
    "no host": (b"GET /livez HTTP/1.1\r\n\r\n", 400),
    "no host in HTTP/1.0": (b"GET /livez HTTP/1.0\r\n\r\n", 200),
    "an empty host": (b"GET /livez HTTP/1.1\r\nHost:\r\nConnection: close\r\n\r\n", 200),
    "two hosts": (b"GET /livez HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    "a bad host": (b"GET /livez HTTP/1.1\r\nHost: a,b\r\n\r\n", 400),
    "absolute form": (b"GET http://a/livez HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n", 200),
    "absolute form without a path": (b"GET http://a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 404),
    "asterisk form": (b"OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 404),
    "authority form": (b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", 501),
    "an unknown transfer coding": (
        b"POST /v1/signals HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        501,
    ),
    "a transfer coding in HTTP/1.0": (b"POST /v1/signals HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
}


@pytest.mark.parametrize(("request_bytes", "status"), PLAIN_HTTP.values(), ids=PLAIN_HTTP.keys())
async def test_a_request_line_and_host_are_read_by_the_book(request_bytes: bytes, status: int) -> None:
    async with serving() as served:
        received = await answer(served.port, request_bytes, apart=False)
        assert (answer_in(received).status, received.count(b"HTTP/1.")) == (status, 1)


@pytest.mark.parametrize("framing", ["length", "chunks"])
async def test_a_body_survives_the_offer_of_an_upgrade_that_is_not_taken(framing: str) -> None:
    """Send a body with an h2c offer, as `curl --http2` does: a server that stays with HTTP/1.1 must read the body."""
    body = b'{"users": ["bob"]}'
    head = (
        b"POST /v1/presence/query HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %b\r\n"
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n" % API_KEY.encode()
    )
    if framing == "length":
        request = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    else:
        request = head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    async with serving() as served:
        for apart in (False, True):
            received = await answer(served.port, request * 2 + b"GET /livez HTTP/1.0\r\n\r\n", apart=apart)
            assert received.count(b"HTTP/1.1 200 OK") == 3
            assert received.count(b'"bob"') == 2
