from __future__ import annotations

import asyncio
import datetime
import ipaddress
import socket
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from picows import WSError

from greendot.client.dial import dial, retry_after_ms

from .wire import run, serving


@run
async def test_a_link_is_opened_and_closed() -> None:
    async with serving() as server:
        link = await dial(server.url, None, print)
        peer = await server.next()
        await link.close()
        assert await peer.closed == 1001


def _certificate(directory: Path) -> ssl.SSLContext:
    """Return a server's TLS context for 127.0.0.1. Clients must trust `directory/cert.pem`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "greendot test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (directory / "cert.pem").write_bytes(certificate.public_bytes(pem))
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (directory / "key.pem").write_bytes(private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "cert.pem", directory / "key.pem")
    return context


@run
async def test_a_secure_server_is_checked_against_its_certificate(tmp_path: Path) -> None:
    async with serving(ssl=_certificate(tmp_path)) as server:
        with pytest.raises(ssl.SSLCertVerificationError):
            await dial(server.url, None, print)
        trusted = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
        link = await dial(server.url, trusted, print)
        await link.close()


@run
async def test_a_port_without_a_listener_raises_os_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(OSError):
            await dial(f"ws://127.0.0.1:{taken.getsockname()[1]}/v1/connect", None, print)


@run
async def test_a_server_that_is_no_websocket_server_is_an_error() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        with pytest.raises(WSError, match="503"):
            await dial(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/", None, print)


@run
async def test_a_socket_lost_during_the_handshake_is_an_os_error() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        with pytest.raises(ConnectionError, match="handshake"):
            await dial(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/", None, print)


@run
async def test_giving_up_during_the_handshake_leaves_no_socket_behind() -> None:
    asked, gone = asyncio.Event(), asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        assert await reader.read() == b""
        gone.set()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as server:
        dialling = asyncio.create_task(dial(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/", None, print))
        await asked.wait()
        dialling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dialling
        await gone.wait()


@pytest.mark.parametrize(
    ("header", "wish"),
    [("Retry-After: 7", 7000), ("Retry-After: soon", None), ("Retry-After: -1", None), ("X: y", None)],
)
@run
async def test_a_server_that_is_not_ready_may_set_the_retry_delay(header: str, wish: int | None) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 503 Service Unavailable\r\n{header}\r\nContent-Length: 0\r\n\r\n".encode())
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        with pytest.raises(WSError) as refused:
            await dial(f"ws://127.0.0.1:{port}/", None, print)
        assert retry_after_ms(refused.value) == wish
    assert retry_after_ms(OSError()) is None


async def test_giving_up_at_any_turn_takes_no_events_from_the_next_socket() -> None:
    """On uvloop, a reader left on a closed socket takes the events of the next socket with that descriptor."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        for turns in range(12):  # after 12 turns the dial waits for the response to its handshake
            dialling = loop.create_task(dial(f"ws://{host}:{port}/", None, lambda event: None))
            for _ in range(turns):
                await asyncio.sleep(0)
            dialling.cancel()
            await asyncio.wait([dialling])
            async with asyncio.timeout(5.0):
                transport, _ = await loop.create_connection(asyncio.Protocol, host, port)
            transport.abort()
