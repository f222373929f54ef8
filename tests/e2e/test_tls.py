"""TLS: broadcasts, certificates that change while sockets are open, and incomplete handshakes."""

from __future__ import annotations

import asyncio
import signal
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.processes import PATIENCE_S, SECRET, Process, answer_in, greendot, running, until
from greendot.auth.tokens import Tokens
from greendot.clock import SystemClock
from greendot.testing import Served, WireClient, serving
from greendot.transport import acceptor
from redis_servers import redis_server
from redis_servers.tls import Certificates, certificates


@asynccontextmanager
async def serving_tls(folder: Path, **sections: Any) -> AsyncIterator[tuple[Served, Certificates]]:
    made = certificates(folder)
    async with serving(tls={"cert": str(made.certificate), "key": str(made.key)}, **sections) as served:
        served.tls = made.context()
        yield served, made


async def get(port: int, path: str, tls: ssl.SSLContext) -> Any:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
        async with asyncio.timeout(10):
            return answer_in(await reader.read())
    finally:
        writer.close()


async def test_a_room_receives_all_messages_over_tls_in_order(tmp_path: Path) -> None:
    async with serving_tls(tmp_path, limits={"enabled": False}) as (served, _):
        await served.lobby()
        alice = await served.joined("alice")
        others = [await served.joined(f"user{number}") for number in range(5)]
        for connection in served.node.registry.connections.values():
            assert connection.fd == connection.direct == -1
        texts = [f"{number} " + "x" * 4_000 for number in range(300)]
        for number, text in enumerate(texts):
            alice.send(type="room.send", room="lobby", body={"text": text}, key=f"key{number}", id=number + 1)
        for client in others:
            heard = []
            while len(heard) < len(texts):
                frame = await client.receive()
                if frame["type"] == "room.message":
                    heard.append(frame["data"]["body"]["text"])
            assert heard == texts


async def test_a_client_that_does_not_read_over_tls_is_bounded_like_any_other(tmp_path: Path) -> None:
    async with serving_tls(tmp_path, limits={"enabled": False}) as (served, _):
        await served.lobby()
        alice, slow = await served.joined("alice"), await served.joined("slow")
        slow._writer.transport.pause_reading()
        (connection,) = served.node.registry.connections_of("default", "slow")
        for number in range(3_000):
            await alice.request(type="room.send", room="lobby", body={"text": "x" * 8_000}, key=f"key{number}")
            await alice.receive("room.message")
            if connection.closing:
                break
        assert connection.closing
        assert served.node.metrics.realtime_client_slow_closed_total == 1
        await alice.quiet()


async def test_http_over_tls_sends_strict_transport_security(tmp_path: Path) -> None:
    async with serving_tls(tmp_path) as (served, made):
        said = await get(served.port, "/livez", made.context())
        assert said.status == 200
        assert said.headers["strict-transport-security"] == "max-age=31536000"
        assert said.headers["x-content-type-options"] == "nosniff"


async def test_a_page_that_did_not_come_by_tls_is_refused_over_tls(tmp_path: Path) -> None:
    async with serving_tls(tmp_path) as (served, _):
        await served.socket(headers={"Origin": f"https://127.0.0.1:{served.port}"})
        with pytest.raises(ConnectionError, match="403"):
            await served.socket(headers={"Origin": f"http://127.0.0.1:{served.port}"})


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
async def test_old_tls_and_no_tls_are_refused(tmp_path: Path) -> None:
    async with serving_tls(tmp_path) as (served, made):
        old = made.context()
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
        old.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", served.port, ssl=old)
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(5):
            try:
                assert b"HTTP" not in await reader.read()
            except ConnectionError:
                pass
        writer.close()
        await until(lambda: served.node.ingress.address_groups == 0)
        assert (await get(served.port, "/livez", made.context())).status == 200


@pytest.mark.parametrize(
    "first", [b"", b"\x16\x03\x01", b"\x16\x03\x01\x02\x00\x01"], ids=["silent", "a few bytes", "half a hello"]
)
async def test_a_handshake_that_does_not_come_to_an_end_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bytes
) -> None:
    monkeypatch.setattr(acceptor, "HANDSHAKE_S", 0.3)
    async with serving_tls(tmp_path, door={"connections_per_ip": 4}) as (served, made):
        half = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(4)]
        for _, writer in half:
            writer.write(first)
        await until(lambda: served.node.ingress.address_groups == 1)
        async with asyncio.timeout(5):
            for reader, writer in half:
                try:
                    await reader.read()
                except ConnectionError:
                    pass
                writer.close()
        await until(lambda: served.node.ingress.address_groups == 0)
        assert (await get(served.port, "/livez", made.context())).status == 200


async def test_requests_that_drip_over_tls_are_ended_too(tmp_path: Path) -> None:
    async with serving_tls(tmp_path) as (served, made):
        drips = [b"", b"GET /v1/conn", b"POST /v1/notify HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"]
        sockets = [await asyncio.open_connection("127.0.0.1", served.port, ssl=made.context()) for _ in drips]
        for (_, writer), drip in zip(sockets, drips, strict=True):
            writer.write(drip)
        await until(lambda: served.timers == 3)
        await asyncio.sleep(0.05)  # time for the partial handshakes to arrive
        await served.advance(10.1)
        for reader, writer in sockets:
            assert (await asyncio.wait_for(reader.read(), 10)).startswith((b"HTTP/1.1 408", b"HTTP/1.1 4"))
            writer.close()
        await until(lambda: served.node.ingress.address_groups == 0)


async def test_a_server_that_stops_does_not_wait_for_handshakes(tmp_path: Path) -> None:
    async with serving_tls(tmp_path) as (served, _):
        half = await asyncio.open_connection("127.0.0.1", served.port)
        await until(lambda: served.node.ingress.address_groups == 1)
    async with asyncio.timeout(5):
        assert await half[0].read() == b""
    half[1].close()


# --- certificate changes ---


async def number_shown(port: int, tls: ssl.SSLContext) -> str:
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    writer.close()
    return str(writer.get_extra_info("peercert")["serialNumber"])


def trusting(*made: Certificates) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=made[0].authority)
    for other in made[1:]:
        context.load_verify_locations(other.authority)
    return context


def folders(folder: Path) -> tuple[Certificates, Certificates]:
    (folder / "one").mkdir()
    (folder / "two").mkdir()
    return certificates(folder / "one"), certificates(folder / "two")


async def hello(server: Process, user: str, tls: ssl.SSLContext) -> WireClient:
    client = await WireClient.connect(server.port, tls=tls)
    await client.hello(Tokens(SECRET).make(user, SystemClock().now_ms(), 3600))
    return client


async def test_a_new_certificate_is_served_after_sighup_and_no_client_is_disconnected(tmp_path: Path) -> None:
    one, two = folders(tmp_path)
    tls = trusting(one, two)
    files = {"GREENDOT_TLS_CERT": str(one.certificate), "GREENDOT_TLS_KEY": str(one.key)}
    async with running(tmp_path, **files) as server:
        assert "wss://" in server.announced
        alice = await hello(server, "alice", tls)
        before = await number_shown(server.port, tls)
        one.certificate.write_bytes(b"rubbish")
        server.signal(signal.SIGHUP)
        assert await number_shown(server.port, tls) == before
        one.certificate.write_bytes(two.certificate.read_bytes())  # does not match the key
        server.signal(signal.SIGHUP)
        assert await number_shown(server.port, tls) == before
        one.key.write_bytes(two.key.read_bytes())
        server.signal(signal.SIGHUP)
        async with asyncio.timeout(PATIENCE_S):
            while await number_shown(server.port, tls) == before:  # noqa: ASYNC110  (has no event)
                await asyncio.sleep(0.02)
        assert await alice.quiet() == []
        bob = await hello(server, "bob", tls)
        assert await bob.quiet() == []
        for client in (alice, bob):
            await client.end()
        server.signal(signal.SIGTERM)
        ended = await server.ended()
        assert ended.code == 0
        assert ended.err.count("the previous certificate stays in use") == 2
        assert ended.err.count("TLS certificate reloaded") == 1


async def test_every_worker_reads_it_again_and_none_is_ended(tmp_path: Path) -> None:
    one, two = folders(tmp_path)
    tls = trusting(one, two)
    files = {"GREENDOT_TLS_CERT": str(one.certificate), "GREENDOT_TLS_KEY": str(one.key)}
    with redis_server("redis", tmp_path) as port:
        flags = ("--host", "127.0.0.1", "--workers", "2", "--engine", f"redis://127.0.0.1:{port}")
        async with running(tmp_path, *flags, **files) as server:
            alice = await hello(server, "alice", tls)
            before = await number_shown(server.port, tls)
            one.certificate.write_bytes(two.certificate.read_bytes())
            one.key.write_bytes(two.key.read_bytes())
            server.signal(signal.SIGHUP)
            async with asyncio.timeout(PATIENCE_S):
                unchanged = 0
                while unchanged < 30:  # the kernel chooses a worker at random
                    unchanged = unchanged + 1 if await number_shown(server.port, tls) != before else 0
            assert await alice.quiet() == []
            await alice.end()
            server.signal(signal.SIGTERM)
            ended = await server.ended()
            assert ended.code == 0
            assert ended.err.count("TLS certificate reloaded") == 2


@pytest.mark.parametrize("wrong", ["no file", "rubbish", "another key", "a password"])
async def test_a_server_does_not_start_with_a_certificate_it_cannot_show(tmp_path: Path, wrong: str) -> None:
    one, two = folders(tmp_path)
    key = one.key
    match wrong:
        case "no file":
            key = tmp_path / "missing.key"
        case "rubbish":
            one.certificate.write_bytes(b"rubbish")
        case "another key":
            key = two.key
        case "a password":
            key.write_bytes(encrypted(key.read_bytes()))
    files = {"GREENDOT_TLS_CERT": str(one.certificate), "GREENDOT_TLS_KEY": str(key)}
    ended = await greendot(tmp_path, "serve", "--port", "0", **files)
    assert ended.code != 0
    assert str(key if wrong == "no file" else one.certificate) in ended.err
    assert "Traceback" not in ended.err


def encrypted(key: bytes) -> bytes:
    from cryptography.hazmat.primitives import serialization as form

    read = form.load_pem_private_key(key, None)
    locked = form.BestAvailableEncryption(b"secret")
    return read.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, locked)
