"""Fetches of keys from real servers that answer badly."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from greendot.auth.jwks import FetchFailed
from greendot.auth.jwks_fetch import MOST_BYTES, JwksFetch
from redis_servers.tls import certificates
from signers import key_server, signer
from silent_names import silent_names

KEY = signer("EdDSA").jwk("k")


async def why_not(url: str, timeout_s: float = 5.0) -> str:
    with pytest.raises(FetchFailed) as caught:
        await JwksFetch(url, timeout_s)()
    return str(caught.value)


async def test_a_document_is_fetched_as_it_is() -> None:
    async with key_server(KEY) as server:
        assert await JwksFetch(server.url, 5)() == server.document()


async def test_a_document_as_large_as_allowed_is_taken_and_a_larger_one_is_not() -> None:
    async with key_server() as server:
        server.body = b" " * MOST_BYTES
        assert await JwksFetch(server.url, 5)() == server.body
        server.body += b" "
        assert "larger" in await why_not(server.url)


async def test_an_answer_without_end_is_not_read_to_its_end() -> None:
    async with key_server() as server:
        server.endless = True
        assert "larger" in await why_not(server.url, timeout_s=40.0)


@pytest.mark.parametrize("how", ["silent", "trickling"])
async def test_a_slow_server_is_given_up_on_and_the_loop_goes_on(how: str) -> None:
    async with key_server(KEY) as server:
        if how == "silent":
            server.hold.clear()
        server.trickle = how == "trickling"
        turns = 0

        async def beat() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0.01)
                turns += 1

        beating = asyncio.create_task(beat())
        try:
            assert "within 0.3 s" in await why_not(server.url, 0.3)  # neither server would ever end its response
            assert turns >= 2
        finally:
            beating.cancel()


@pytest.mark.parametrize("status", ["404 Not Found", "500 Oops", "204 No Content", "302 Found", "206 Partial Content"])
async def test_any_other_answer_is_none(status: str) -> None:
    async with key_server(KEY) as server, key_server(KEY) as other:
        server.head = f"HTTP/1.1 {status}\r\nlocation: {other.url}\r\n"
        if status.startswith("204"):
            server.body = b""
        assert status[:3] in await why_not(server.url)
        assert other.requests == 0  # redirects are not followed


async def test_a_compressed_answer_is_not_unpacked() -> None:
    async with key_server() as server:
        server.head += "content-encoding: gzip\r\n"
        server.body = gzip.compress(b" " * 50_000_000)
        assert "compressed" in await why_not(server.url)


async def test_a_server_that_is_down_or_speaks_something_else() -> None:
    async with key_server() as server:
        server.head = "SSH-2.0-OpenSSH\r\n"
        assert "reached" in await why_not(server.url)
    assert "reached" in await why_not(server.url)
    assert "reached" in await why_not("https://keys.invalid/keys")


async def test_a_proxy_of_the_environment_does_not_get_in_between_on_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with key_server(KEY) as server, key_server(signer("EdDSA", "forger").jwk("k")) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url.removesuffix("/keys"))
        assert await JwksFetch(server.url, 5)() == server.document()
        assert proxy.requests == 0


async def test_a_server_must_show_a_certificate_that_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = certificates(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(made.certificate, made.key)
    async with key_server(KEY, tls=tls) as server:
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert "reached" in await why_not(server.url)
        monkeypatch.setenv("SSL_CERT_FILE", str(made.authority))
        assert await JwksFetch(server.url, 5)() == server.document()
        assert "reached" in await why_not(server.url.replace("127.0.0.1", "127.0.0.2"))


async def test_a_silent_name_server_of_the_keys_keeps_one_thread_and_none_of_the_loops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))  # uvloop has four
    with silent_names(monkeypatch) as names:
        fetching = JwksFetch("https://keys.silent.test/jwks.json", 0.05)
        for _ in range(5):
            with pytest.raises(FetchFailed, match="no answer within"):
                await fetching()
        async with asyncio.timeout(10):
            await loop.getaddrinfo("localhost", 80)
        assert (names.asked, names.under_way) == (["keys.silent.test"], 1)


async def test_a_name_that_only_the_proxy_knows_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with silent_names(monkeypatch) as names:
        assert "cannot be reached" in await why_not("https://keys.silent.test/jwks.json")
        assert names.asked == []


async def test_certificates_are_loaded_beside_the_loop_and_again_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded_in: list[int] = []
    create = httpx2.create_ssl_context

    def recorded() -> ssl.SSLContext:
        loaded_in.append(threading.get_ident())
        return create()

    monkeypatch.setattr(httpx2, "create_ssl_context", recorded)
    made = certificates(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(made.certificate, made.key)
    async with key_server(KEY, tls=tls) as server:
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        fetch = JwksFetch(server.url, 5)
        with pytest.raises(FetchFailed):
            await fetch()
        monkeypatch.setenv("SSL_CERT_FILE", str(made.authority))  # the certificates are corrected while the server runs
        for _ in range(2):
            assert await fetch() == server.document()
    assert len(loaded_in) == 2
    assert threading.get_ident() not in loaded_in
