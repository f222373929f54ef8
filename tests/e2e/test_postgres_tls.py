"""TLS to PostgreSQL: verified with a private authority; other connections are refused with a remedy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from e2e.processes import greendot, running
from greendot.errors import ConfigError, GreendotError
from greendot.store.postgres import PostgresOutbox, PostgresStore
from greendot.store.rooms import Draft
from postgres_server import PostgresProcess, postgres_server
from redis_servers.tls import Certificates, certificates


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def server(files: Certificates) -> Iterator[PostgresProcess]:
    with postgres_server(files) as server:
        yield server


def place(server: PostgresProcess, mode: str, authority: Path | None = None, host: str = "127.0.0.1") -> str:
    url = server.url.replace("127.0.0.1", host).replace("postgres@", "postgres:a-password@")
    return f"{url}?sslmode={mode}" + (f"&sslrootcert={authority}" if authority else "")


async def refusal(url: str) -> str:
    store = PostgresStore(url)
    try:
        with pytest.raises(ConfigError) as refused:
            await store.start()
    finally:
        await store.close()
    said = str(refused.value)
    assert "a-password" not in said
    return said


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_records_are_kept_over_a_connection_that_is_verified(
    server: PostgresProcess, files: Certificates, host: str
) -> None:
    url = place(server, "verify-full", files.authority, host)
    store = PostgresStore(url, migrate=True)
    await store.start()
    try:
        await store.put_room("t", "r", open=True)
        assert await store.append("t", "r", Draft("ann", None, b"1", f"k-{host}", 1)) is not None
        assert [record.body for record in await store.messages("t", "r", limit=1)] == [b"1"]
    finally:
        await store.close()
    link = await asyncpg.connect(url)
    try:
        assert await link.fetchval("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()") is True
    finally:
        await link.close()


async def test_a_server_and_its_commands_speak_it(server: PostgresProcess, files: Certificates, tmp_path: Path) -> None:
    url = place(server, "verify-full", files.authority)
    outbox = {"GREENDOT_STORE_URL": url, "GREENDOT_STORE_MIGRATE": "true", "GREENDOT_OUTBOX_URL": "store"}
    assert (await greendot(tmp_path, "migrate", **outbox)).code == 0
    async with running(tmp_path, **outbox) as node:
        assert (await node.ask("PUT", "/v1/rooms/r", {"open": True})).status == 200
        assert (await node.ask("POST", "/v1/rooms/r/messages", {"user": "ann", "body": 1})).status == 201


async def test_a_certificate_of_another_authority_is_refused(
    server: PostgresProcess, files: Certificates, tmp_path: Path
) -> None:
    other = certificates(tmp_path)
    said = await refusal(place(server, "verify-full", other.authority))
    assert "the server's certificate is not trusted: unable to get local issuer certificate" in said
    assert "sslrootcert=FILE" in said
    outbox = PostgresOutbox(place(server, "verify-full", other.authority), 1.0)
    with pytest.raises(GreendotError, match="certificate is not trusted"):
        await outbox.check()


async def test_a_certificate_for_another_host_is_refused(tmp_path: Path) -> None:
    files = certificates(tmp_path, hosts=("db.example",))
    with postgres_server(files) as server:
        said = await refusal(place(server, "verify-full", files.authority))
        assert "certificate is not valid for '127.0.0.1'. Connect by a host name in the certificate." in said
        store = PostgresStore(place(server, "verify-ca", files.authority), migrate=True)
        await store.start()
        await store.close()


async def test_a_server_that_does_not_speak_it_is_refused_when_it_must(postgres: str, files: Certificates) -> None:
    said = await refusal(f"{postgres}?sslmode=verify-full&sslrootcert={files.authority}")
    assert "rejected SSL upgrade" in said


async def test_without_tls_a_server_that_requires_it_is_reported(server: PostgresProcess) -> None:
    assert "no encryption" in await refusal(place(server, "disable"))


async def test_a_file_that_cannot_be_read_is_named(server: PostgresProcess, tmp_path: Path) -> None:
    assert "does not exist (sslrootcert" in await refusal(place(server, "verify-full", tmp_path / "missing.pem"))
