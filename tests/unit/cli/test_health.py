"""`greendot health`: the request of a container's health check."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from click.testing import Result

from cli.calls import call, complaint
from e2e.test_overload import load
from greendot.limits.overload_model import Level
from greendot.testing import Served, serving
from redis_servers import free_port
from redis_servers.tls import certificates


async def asked(served: Served, *flags: str, **environment: str) -> Result:
    return await asyncio.to_thread(call, "health", *flags, GREENDOT_SERVER_PORT=str(served.port), **environment)


async def test_a_server_that_is_there_is_alive_and_ready() -> None:
    async with serving() as served:
        well = await asked(served)
        assert (well.exit_code, well.stdout, well.stderr) == (0, "/livez: 200 ok\n", "")
        ready = await asked(served, "--ready")
        assert (ready.exit_code, ready.stdout[:12]) == (0, "/readyz: 200")


async def test_over_tls_it_is_asked_too_under_whatever_name_its_certificate_is(tmp_path: Path) -> None:
    made = certificates(tmp_path, ("rt.example.com",))
    files = {"cert": str(made.certificate), "key": str(made.key)}
    async with serving(tls=files) as served:
        assert (await asked(served, GREENDOT_TLS_CERT=files["cert"], GREENDOT_TLS_KEY=files["key"])).exit_code == 0
        assert (await asked(served)).exit_code == 1  # a plain HTTP request to a TLS server


async def test_a_node_that_refuses_clients_is_alive_and_not_ready_and_the_reason_is_printed() -> None:
    async with serving() as served:
        load(served, Level.REFUSING)
        assert (await asked(served)).exit_code == 0
        busy = await asked(served, "--ready")
        assert (busy.exit_code, busy.stdout) == (1, "")
        assert busy.stderr.startswith("/readyz: 503 {")
        assert "lags" in busy.stderr


def test_one_that_is_not_there_is_not_well() -> None:
    absent = call("health", GREENDOT_SERVER_PORT=str(free_port()))
    assert (absent.exit_code, absent.stdout, absent.stderr) == (1, "", "/livez: Connection refused\n")


def test_where_it_is_is_in_its_settings(tmp_path: Path) -> None:
    file = tmp_path / "greendot.toml"
    file.write_text("[server]\nport = 0.5")
    assert "server.port" in str(call("health", "--config", str(file)).exception)


async def test_a_server_is_asked_at_its_address_whatever_the_settings_are(tmp_path: Path) -> None:
    async with serving() as served:
        url = f"http://127.0.0.1:{served.port}"
        wrong = {"GREENDOT_SERVER_PORT": str(free_port())}
        for address in (url, f"{url}/"):
            well = await asyncio.to_thread(call, "health", "--url", address, **wrong)
            assert (well.exit_code, well.stdout, well.stderr) == (0, "/livez: 200 ok\n", "")
        ready = await asyncio.to_thread(call, "health", "--ready", "--url", url, **wrong)
        assert (ready.exit_code, ready.stdout[:12]) == (0, "/readyz: 200")
        elsewhere = await asyncio.to_thread(call, "health", "--url", f"{url}/chat")
        assert (elsewhere.exit_code, elsewhere.stdout, elsewhere.stderr[:11]) == (1, "", "/livez: 404")


async def test_at_an_address_the_certificate_is_verified(tmp_path: Path) -> None:
    made = certificates(tmp_path, ("localhost",))
    async with serving(tls={"cert": str(made.certificate), "key": str(made.key)}) as served:
        url = f"https://localhost:{served.port}"
        stranger = await asyncio.to_thread(call, "health", "--url", url)
        assert (stranger.exit_code, stranger.stdout) == (1, "")
        assert "certificate verify failed" in stranger.stderr
        known = await asyncio.to_thread(call, "health", "--url", url, SSL_CERT_FILE=str(made.authority))
        assert (known.exit_code, known.stdout) == (0, "/livez: 200 ok\n")


@pytest.mark.parametrize("url", ["localhost:8000", "http://", "http://[::1", "http://localhost:port"])
def test_what_is_no_address_is_named(url: str) -> None:
    said = complaint("health", "--url", url)
    assert repr(url) in said
    assert "http" in said
