"""Ingress policy: origins, hosts and addresses, before a token is read."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from e2e.processes import answer_in, ask, exchange, until
from greendot.testing import serving
from greendot.testing.server import API_KEY

LISTED = {"origins": ("https://good.com", "https://app.example.com:8443")}
HOSTILE = [
    "null",
    "https://good.com.evil.com",
    "http://good.com",
    "https://good.com:443",
    "https://good.com:8443",
    "https://app.example.com",
    "https://GOOD.com",
    "https://good.com/",
    "https://evil.com, https://good.com",
    "https://good.com@evil.com",
    "*",
    "",
]


def request(**headers: str) -> bytes:
    sent = {"Host": "good.com", "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    sent |= {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} | {n.replace("_", "-"): v for n, v in headers.items()}
    return "\r\n".join(["GET /v1/connect HTTP/1.1", *(f"{n}: {v}" for n, v in sent.items()), "", ""]).encode()


async def answer(port: int, asked: bytes, *, apart: bool = False) -> bytes:
    """Send a request in one packet or two and return the head and body of the response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in (asked[:9], asked[9:]) if apart else (asked,):
            writer.write(piece)
            await asyncio.sleep(0.005)
        writer.write_eof()
        async with asyncio.timeout(10):
            return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize("apart", [False, True], ids=["plain", "in pieces"])
async def test_pages_that_are_not_listed_are_refused_and_learn_nothing(apart: bool) -> None:
    async with serving(door=LISTED) as served:
        for origin in HOSTILE:
            said = await answer(served.port, request(Origin=origin), apart=apart)
            assert said.startswith(b"HTTP/1.1 403 "), origin
            assert said.endswith(b"\r\n\r\norigin not allowed\n")
            assert b"x-content-type-options: nosniff" in said
        for origin in LISTED["origins"]:
            assert (await answer(served.port, request(Origin=origin), apart=apart)).startswith(b"HTTP/1.1 101 ")
        assert (await answer(served.port, request(), apart=apart)).startswith(b"HTTP/1.1 101 ")
        assert served.node.metrics.realtime_refused_origin_total == len(HOSTILE)
        await until(lambda: served.node.ingress.address_groups == 0)


async def test_an_origin_that_is_there_twice_is_refused() -> None:
    async with serving(door=LISTED) as served:
        twice = request(Origin="https://good.com").replace(b"Origin:", b"Origin: https://good.com\r\nOrigin:")
        assert (await answer(served.port, twice)).startswith(b"HTTP/1.1 403 ")


async def test_without_a_list_pages_of_the_same_host_come_in_and_others_do_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as served:
        for origin, status in (("http://good.com", 101), ("https://good.com", 101), ("https://evil.com", 403)):
            assert answer_in(await answer(served.port, request(Origin=origin))).status == status
        for _ in range(3):
            await answer(served.port, request(Origin="null"))
        # The refusal is logged once, not for each request.
        assert [r.getMessage() for r in caplog.records if "door.origins" in r.getMessage()] == [
            "connection from origin 'https://evil.com' refused: the origin is neither this host nor in door.origins; "
            "if the origin is part of your app, add it to door.origins"
        ]


@pytest.mark.parametrize("host", ["evil.com", "good.com.evil.com", "127.0.0.1", ""])
async def test_what_is_meant_for_another_host_is_refused(host: str) -> None:
    async with serving(door={"hosts": ("good.com",)}) as served:
        for apart in (False, True):
            assert (await answer(served.port, request(Host=host), apart=apart)).endswith(b"\r\n\r\nhost not allowed\n")
        said = await exchange(served.port, f"GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert (said.status, said.body) == (403, b"host not allowed\n")
        assert (await ask(served.port, "GET", "/livez")).status == 200  # from a machine that has only the address
        assert (await answer(served.port, request(Host="good.com:80"))).startswith(b"HTTP/1.1 101 ")


async def test_a_request_without_a_host_is_refused_where_names_are_listed() -> None:
    async with serving(door={"hosts": ("good.com",)}) as served:
        assert (await exchange(served.port, b"GET /metrics HTTP/1.0\r\n\r\n")).status == 403


# --- addresses ---


async def test_an_address_with_too_many_sockets_is_refused_until_sockets_are_closed() -> None:
    async with serving(door={"connections_per_ip": 3}) as served:
        clients = [await served.client(f"user{number}") for number in range(2)]
        silent = await asyncio.open_connection("127.0.0.1", served.port)
        await until(lambda: served.timers > 3)
        with pytest.raises(ConnectionError) as caught:
            await served.socket()
        assert "429 Too Many Requests" in str(caught.value)
        assert "retry-after: 30" in str(caught.value)
        said = await ask(served.port, "GET", "/livez")
        assert said.status == 429
        silent[1].close()
        clients[0].send(type="bye")
        await clients[0].closed()
        await served.until_gone(1)
        await until(lambda: served.node.ingress._address_limits._all["127.0.0.1"].count == 1)
        await served.client("third")
        assert served.node.metrics.realtime_refused_address_total == 2
        await served.close_clients()
        await served.until_gone()
        await until(lambda: served.node.ingress.address_groups == 0)


async def test_a_crowd_of_silent_sockets_is_closed_without_a_word() -> None:
    async with serving(door={"connections_per_ip": 2}) as served:
        sockets = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(6)]
        await until(lambda: served.node.metrics.realtime_refused_address_total == 2)
        ended = [asyncio.create_task(reader.read()) for reader, _ in sockets]
        done, waiting = await asyncio.wait(ended, timeout=0.5)
        assert (len(done), len(waiting)) == (2, 4)
        await served.advance(10)
        await asyncio.wait_for(asyncio.gather(*ended, return_exceptions=True), 10)
        for _, writer in sockets:
            writer.close()
        await until(lambda: served.node.ingress.address_groups == 0)


async def test_forwarded_headers_of_an_untrusted_client_are_ignored() -> None:
    async with serving(door={"connections_per_ip": 2}) as served:
        for number in range(2):
            await served.socket(
                headers={"X-Forwarded-For": f"203.0.113.{number}", "Forwarded": f"for=203.0.113.{number}"}
            )
        with pytest.raises(ConnectionError, match="429"):
            await served.socket(headers={"X-Forwarded-For": "203.0.113.9"})
        assert served.node.ingress.address_groups == 1


async def test_behind_a_trusted_proxy_clients_are_counted_each_by_itself() -> None:
    door = {"connections_per_ip": 2, "trusted_proxies": ("127.0.0.0/8",)}
    async with serving(door=door) as served:
        sockets = [await served.socket(headers={"X-Forwarded-For": f"1.1.1.1, 203.0.113.{i % 2}"}) for i in range(4)]
        with pytest.raises(ConnectionError, match="429"):
            await served.socket(headers={"X-Forwarded-For": "203.0.113.9, 203.0.113.1"})
        assert served.node.ingress.address_groups == 2
        subnet = [await served.socket(headers={"X-Forwarded-For": f"2001:db8::{number}"}) for number in (1, 2)]
        with pytest.raises(ConnectionError, match="429"):
            await served.socket(headers={"X-Forwarded-For": "2001:db8:0:0:ffff::1"})
        for client in (*sockets, *subnet):
            await client.end()
        await until(lambda: served.node.ingress.address_groups == 0)


async def test_a_trusted_proxy_determines_whether_a_page_used_tls() -> None:
    async with serving(door={"trusted_proxies": ("127.0.0.1",)}) as served:
        page = request(Origin="http://good.com", X_Forwarded_Proto="https", X_Forwarded_For="203.0.113.7")
        assert (await answer(served.port, page)).startswith(b"HTTP/1.1 403 ")
        assert (await answer(served.port, page.replace(b"http://", b"https://"))).startswith(b"HTTP/1.1 101 ")
    async with serving() as served:  # no trusted proxies
        assert (await answer(served.port, page)).startswith(b"HTTP/1.1 101 ")


async def test_a_request_that_is_refused_later_leaves_no_address_behind() -> None:
    async with serving() as served:
        bad = request().replace(b"/v1/connect", b"/v1/other")
        assert (await answer(served.port, bad)).startswith(b"HTTP/1.1 404 ")
        assert (await answer(served.port, request(Sec_WebSocket_Key="short"))).startswith(b"HTTP/1.1 400 ")
        assert (await answer(served.port, b"\0\0\0")).startswith(b"HTTP/1.1 400 ")
        await until(lambda: served.node.ingress.address_groups == 0)


async def test_the_address_of_a_session_is_a_hash_that_cannot_be_guessed_without_the_secret() -> None:
    async def seen(**sections: Any) -> list[str]:
        async with serving(**sections) as served:
            for number in (7, 7, 8):
                client = await served.socket(headers={"X-Forwarded-For": f"203.0.113.{number}"})
                await client.hello(served.token("alice"))
            said = await ask(served.port, "GET", "/v1/users/alice/sessions", Authorization=f"Bearer {API_KEY}")
            return [session["ip_hash"] for session in said.json()["sessions"]]

    near = {"trusted_proxies": ("127.0.0.1",)}
    hashes = await seen(door=near)
    assert hashes[0] == hashes[1] != hashes[2]
    assert hashes == await seen(door=near)  # equal on all nodes and after a restart
    other = await seen(door=near, auth={"secret": "another secret, which is long enough too"})
    assert {*hashes}.isdisjoint(other)
    direct = await seen()
    assert len({*direct}) == 1
    assert all(re.fullmatch("[0-9a-f]{16}", found) for found in (*hashes, *other, *direct))


# --- response headers ---


async def test_every_answer_has_the_security_headers_for_browsers() -> None:
    async with serving(server={"dev": True}) as served:
        asked = [("GET", "/livez"), ("GET", "/v1/stats"), ("GET", "/nowhere"), ("PUT", "/livez"), ("GET", "/dev/token")]
        for method, path in asked:
            headers = (await ask(served.port, method, path)).headers
            assert headers["x-content-type-options"] == "nosniff", path
            assert headers["referrer-policy"] == "no-referrer", path
            assert headers["cache-control"] == "no-store", path
            assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'", path
            assert "strict-transport-security" not in headers
            assert "server" not in headers


async def test_pages_run_their_own_files_only_and_in_no_frame() -> None:
    async with serving(server={"dev": True}) as served:
        page = await ask(served.port, "GET", "/")
        policy = dict(part.strip().split(" ", 1) for part in page.headers["content-security-policy"].split(";"))
        assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert "unsafe" not in page.headers["content-security-policy"]
        assert page.headers["x-content-type-options"] == "nosniff"
        assert page.headers["referrer-policy"] == "no-referrer"
        text = page.body.decode()
        assert not re.search(r"<script(?![^>]*src)|<style|\sstyle=|\son[a-z]+=", text)
