"""Compose files: valid by Compose's own schema, with valid settings, and locked down where possible.

No Docker is needed: tests/deployed/test_proxied.py starts the same setup from processes.
"""

from __future__ import annotations

import re
import sys
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployed.programs import DEPLOY, ROOT, said
from greendot.config import Settings, load, strange_variables

FOLDER = DEPLOY / "compose"
FILES = sorted(FOLDER.glob("*.yml"))
every_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


def project(file: Path) -> Any:
    return yaml.safe_load(file.read_text())


def filled_in(text: str) -> str:
    """Fill in the variables of an .env file."""
    return re.sub(
        r"\$\{(\w+):\?[^}]*\}", lambda found: f"{found[1].lower().replace('_', '')}0123456789abcdef01234567", text
    )


def nodes(file: Path) -> dict[str, Any]:
    services = project(file)["services"]
    return {name: of for name, of in services.items() if name.startswith("greendot")}


def settings(service: Any) -> Settings:
    environment = {name: filled_in(value) for name, value in service["environment"].items()}
    assert strange_variables(environment) == []
    return load(None, environment, {})


def seconds(period: str) -> float:
    found = re.fullmatch(r"(\d+)s", period)
    assert found, period
    return float(found[1])


def test_there_is_one_for_each_way() -> None:
    assert [file.stem for file in FILES] == ["cluster", "pair", "single"]
    assert [len(nodes(file)) for file in FILES] == [2, 2, 1]


def test_they_are_compose_files() -> None:
    said(Path(sys.executable).parent / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", *FILES)


@every_file
def test_the_settings_are_ones_that_a_server_takes(file: Path) -> None:
    for name, node in nodes(file).items():
        found = settings(node)
        assert found.auth.secret, name
        assert found.on_postgres == (file.stem != "single")
        if file.stem != "single":
            assert found.engine.url.startswith("redis+cluster://" if file.stem == "cluster" else "redis://")
    assert len({str(settings(node)) for node in nodes(file).values()}) == 1  # all nodes have equal settings


@every_file
def test_who_stops_a_node_waits_until_it_has_drained(file: Path) -> None:
    for node in nodes(file).values():
        server = settings(node).server
        assert seconds(node["stop_grace_period"]) >= server.drain_s + server.drain_notice_s + 10


@every_file
def test_nodes_can_write_nowhere_but_in_their_folder_and_have_no_rights(file: Path) -> None:
    for node in nodes(file).values():
        assert node["read_only"]
        assert node["cap_drop"] == ["ALL"]
        assert node["security_opt"] == ["no-new-privileges:true"]
        assert node["ulimits"]["nofile"]["hard"] >= 100_000
        assert any("/var/lib/greendot" in place for place in (*node["tmpfs"], *node.get("volumes", ())))


@every_file
def test_only_the_way_in_is_open(file: Path) -> None:
    services = project(file)["services"]
    opened = {name: of["ports"] for name, of in services.items() if "ports" in of}
    assert opened == ({"greendot": ["127.0.0.1:8000:8000"]} if file.stem == "single" else {"proxy": ["8080:8080"]})


@every_file
def test_no_secret_is_in_it_and_every_one_is_asked_for(file: Path) -> None:
    named = set(re.findall(r"^(\w+)=$", (FOLDER / "example.env").read_text(), re.MULTILINE))
    asked = set(re.findall(r"\$\{(\w+)", file.read_text()))
    assert asked <= named
    for service in project(file)["services"].values():
        for name, value in service.get("environment", {}).items():
            if re.search(r"SECRET|KEY|PASSWORD|AUTH|_URL$", name) and "URL" not in name:
                assert value.startswith("${"), name
    assert "deploy/compose/.env" in (ROOT / ".gitignore").read_text().splitlines()


@every_file
def test_what_it_names_is_there(file: Path) -> None:
    whole = project(file)
    services = whole["services"]
    for name, service in services.items():
        assert re.search(r":\d", service["image"]), f"{name}: the image has no version"
        assert set(service.get("depends_on", ())) <= services.keys()
        assert set(service.get("networks", ())) <= whole.get("networks", {}).keys()
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert (FOLDER / source).exists() if source.startswith(".") else source in whole["volumes"], volume
        if "build" in service:
            assert (FOLDER / service["build"]["context"] / "Dockerfile").exists()


@pytest.mark.parametrize("file", [file for file in FILES if file.stem != "single"], ids=lambda file: file.stem)
def test_the_proxy_is_the_one_that_nodes_believe(file: Path) -> None:
    whole = project(file)
    (trusted,) = {each for node in nodes(file).values() for each in settings(node).door.trusted_proxies}
    assert trusted == whole["services"]["proxy"]["networks"]["front"]["ipv4_address"]
    taken = []
    for service in whole["services"].values():
        networks = service.get("networks", {})
        for network, place in networks.items() if isinstance(networks, dict) else ():
            if place:
                (subnet,) = whole["networks"][network]["ipam"]["config"]
                assert ip_address(place["ipv4_address"]) in ip_network(subnet["subnet"])
                taken.append(place["ipv4_address"])
    assert len(taken) == len(set(taken))
    # The upstreams of nginx are the nodes.
    upstream = set(re.findall(r"server ([\w-]+):8000", (FOLDER / "nginx.conf").read_text()))
    assert upstream == nodes(file).keys()


@every_file
def test_redis_never_throws_away_who_is_online(file: Path) -> None:
    for name, service in project(file)["services"].items():
        if "redis-server" in str(service.get("command")):
            assert "--maxmemory-policy noeviction" in service["command"], name
            assert "--requirepass" in service["command"], name
            assert service["networks"].keys() <= {"back"} if isinstance(service["networks"], dict) else True
