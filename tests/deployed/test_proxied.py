"""Shipped proxy configurations in front of a real server: sockets, heartbeats and client addresses.

nginx and Caddy are run. Traefik has no Debian package, so only its file is checked.
"""

from __future__ import annotations

import asyncio
import os
import re
from asyncio.subprocess import DEVNULL, STDOUT
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from deployed.programs import DEPLOY, ROOT, program, said
from e2e.processes import PATIENCE_S, Process, running
from greendot.config import Settings, load
from greendot.testing import WireClient
from redis_servers import free_port
from redis_servers.tls import Certificates, certificates

FOLDER = DEPLOY / "proxy"
NAME = "rt.example.com"
# One socket per address, so that refusals show which address the server uses for a socket.
STRICT = {
    "GREENDOT_DOOR_TRUSTED_PROXIES": "127.0.0.1",
    "GREENDOT_DOOR_CONNECTIONS_PER_IP": "1",
    "GREENDOT_DOOR_HOSTS": NAME,
}


@asynccontextmanager
async def proxy(folder: Path, port: int, *command: str) -> AsyncIterator[None]:
    """Run a proxy during the block; it accepts connections on the port."""
    log = (folder / "proxy.log").open("w+b")
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "XDG_DATA_HOME": str(folder)}
    process = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=log, stderr=STDOUT, env=environment)
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                assert process.returncode is None, (folder / "proxy.log").read_text()
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    break
                except OSError:
                    await asyncio.sleep(0.02)
        writer.close()
        yield
    finally:
        log.close()
        if process.returncode is None:
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), PATIENCE_S)
        except TimeoutError:
            process.kill()
            await process.wait()


def nginx(folder: Path, nodes: list[int], made: Certificates) -> tuple[int, list[str]]:
    """Return nginx's port and start command. The shipped file is used with other addresses, ports and paths only."""
    port, plain = free_port(), free_port()
    text = (FOLDER / "nginx" / "greendot.conf").read_text()
    for address, node in zip(("10.0.0.5:8000", "10.0.0.6:8000"), nodes, strict=True):
        text = text.replace(address, f"127.0.0.1:{node}")
    text = text.replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl").replace(
        "listen 80", f"listen 127.0.0.1:{plain}"
    )
    text = text.replace(f"/etc/nginx/tls/{NAME}.pem", str(made.certificate))
    text = text.replace(f"/etc/nginx/tls/{NAME}.key", str(made.key))
    text = text.replace("/etc/nginx/greendot-locations.conf", str(FOLDER / "nginx" / "greendot-locations.conf"))
    assert "10.0.0." not in text
    assert "/etc/nginx" not in text.partition("upstream")[2]
    places = "".join(
        f"{name}_temp_path {folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;\n" if os.getuid() == 0 else ""  # the folder belongs to root
    (folder / "nginx.conf").write_text(
        f"{user}daemon off;\nworker_processes 1;\npid {folder}/nginx.pid;\nerror_log stderr;\n"
        f"events {{ worker_connections 256; }}\nhttp {{\naccess_log off;\n{places}{text}}}\n"
    )
    return port, [program("nginx"), "-p", str(folder), "-e", "stderr", "-c", str(folder / "nginx.conf")]


def caddy(folder: Path, nodes: list[int], made: Certificates) -> tuple[int, list[str]]:
    """Return Caddy's port and start command, with a given certificate instead of a fetched one."""
    port = free_port()
    text = (FOLDER / "Caddyfile").read_text()
    for address, node in zip(("10.0.0.5:8000", "10.0.0.6:8000"), nodes, strict=True):
        text = text.replace(address, f"127.0.0.1:{node}")
    site = f"https://{NAME}:{port} {{\n\tbind 127.0.0.1\n\ttls {made.certificate} {made.key}\n"
    text = text.replace(f"{NAME} {{\n", site)
    (folder / "Caddyfile").write_text("{\n\tadmin off\n\tauto_https disable_redirects\n}\n" + text)
    return port, [program("caddy"), "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]


async def answered(port: int, made: Certificates, path: str) -> int:
    """Return the status that the proxy's clients receive."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=made.context(), server_hostname=NAME)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n".encode())
        return int((await asyncio.wait_for(reader.readline(), PATIENCE_S)).split()[1])
    finally:
        writer.close()


async def comes(port: int, made: Certificates, source: str, **headers: str) -> WireClient:
    tls = made.context(any_host=True)
    tls.check_hostname = False
    sent = {"Host": NAME, "Origin": f"https://{NAME}"} | {name.replace("_", "-"): of for name, of in headers.items()}
    return await WireClient.connect(port, headers=sent, tls=tls, source=source)


@pytest.mark.parametrize("kind", [nginx, caddy], ids=["nginx", "caddy"])
async def test_a_socket_is_held_through_the_proxy_and_the_server_knows_where_its_client_is(
    kind: type, tmp_path: Path
) -> None:
    made = certificates(tmp_path, (NAME, "127.0.0.1"))
    dead = free_port()  # one of the two nodes is down
    async with running(tmp_path, "--host", "127.0.0.1", **STRICT) as server:
        port, command = kind(tmp_path, [dead, server.port], made)
        async with proxy(tmp_path, port, *command):
            await story(port, made, server)


async def story(port: int, made: Certificates, server: Process) -> None:
    async with await comes(port, made, "127.0.0.2") as alice:
        await alice.hello(server.token("alice"))
        # A second socket of the address is refused, even if it claims another address. Other addresses are accepted.
        for claim in ({}, {"X_Forwarded_For": "203.0.113.7"}, {"Forwarded": "for=203.0.113.7"}):
            with pytest.raises(ConnectionError, match=r"HTTP/1\.1 429"):
                await comes(port, made, "127.0.0.2", **claim)
        async with await comes(port, made, "127.0.0.3") as bob:
            await bob.hello(server.token("bob"))
            for _ in range(20):  # heartbeats and their replies pass the proxy
                assert [await alice.quiet(), await bob.quiet()] == [[], []]
            for path, status in {
                "/livez": 200,
                "/v1/rooms": 401,
                "/metrics": 404,
                "/admin": 404,
                "/admin/x": 404,
            }.items():
                assert await answered(port, made, path) == status, path


def test_the_nginx_of_the_compose_files_takes_its_file(tmp_path: Path) -> None:
    text = (DEPLOY / "compose" / "nginx.conf").read_text().replace("greendot-1:", "127.0.0.1:")
    text = text.replace("greendot-2:", "127.0.0.2:").replace("/etc/nginx/", f"{FOLDER}/nginx/")
    (tmp_path / "nginx.conf").write_text(f"pid {tmp_path}/nginx.pid;\nerror_log stderr;\n{text}")
    told = said(program("nginx"), "-t", "-p", tmp_path, "-e", "stderr", "-c", tmp_path / "nginx.conf")
    assert "test is successful" in told
    assert "[warn]" not in told


def test_the_settings_that_the_page_shows_beside_them_are_taken(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "deploy.md").read_text(), re.DOTALL)
    (tmp_path / "greendot.toml").write_text(shown)
    found = load(tmp_path / "greendot.toml", {"GREENDOT_AUTH_SECRET": "a" * 32}, {})
    assert found.door.hosts == (NAME,)


def test_no_proxy_gives_up_before_the_server_does() -> None:
    dead_after_s = Settings().presence.dead_after_s
    locations = (FOLDER / "nginx" / "greendot-locations.conf").read_text()
    sockets = locations.partition("location = /v1/connect")[2].partition("}")[0]
    for found in re.findall(r"proxy_(?:read|send)_timeout (\d+)s", sockets):
        assert float(found) > dead_after_s
    assert sockets.count("_timeout ") == 2
    # Caddy and Traefik have no timeout for an open socket by default.
    assert not re.search(r"read_timeout|write_timeout|stream_timeout", (FOLDER / "Caddyfile").read_text())


def test_traefiks_file_passes_on_what_the_others_do_and_keeps_the_inside_inside() -> None:
    http = yaml.safe_load((FOLDER / "traefik.yml").read_text())["http"]
    (router,) = http["routers"].values()
    assert router["rule"] == f"Host(`{NAME}`) && !Path(`/metrics`) && !PathPrefix(`/admin`)"
    assert "tls" in router
    service = http["services"][router["service"]]["loadBalancer"]
    assert [each["url"] for each in service["servers"]] == ["http://10.0.0.5:8000", "http://10.0.0.6:8000"]
    assert service["healthCheck"]["path"] == "/readyz"
    assert service["serversTransport"] in http["serversTransports"]
    assert set(router["middlewares"]) <= http["middlewares"].keys()
    assert "sticky" not in service
