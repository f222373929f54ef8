"""Compose files: valid by Compose's own schema, with valid settings, and locked down where possible.

No Docker is needed: test_pair.py and test_production.py start the same services as processes.
"""

from __future__ import annotations

import re
import shutil
import stat
import subprocess
import sys
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployed.programs import DEPLOY, ROOT, said
from greendot.config import Settings, load, strange_variables
from promtool import promtool

FOLDER = DEPLOY / "compose"
FILES = sorted(FOLDER.glob("*.yml"))
# Variables that are not secrets.
GIVEN = {"DOMAIN": "rt.example.com", "ORIGINS": "https://app.example.com", "TLS": "you@example.com"}
# Ports that other machines reach, or programs of this machine only.
PORTS = {
    "single": {"greendot": ["127.0.0.1:8000:8000"]},
    "pair": {"proxy": ["8080:8080"]},
    "cluster": {"proxy": ["8080:8080"]},
    "production": {
        "proxy": ["80:80", "443:443", "443:443/udp"],
        "prometheus": ["127.0.0.1:9090:9090"],
        "grafana": ["127.0.0.1:3000:3000"],
    },
}
every_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


def project(file: Path) -> Any:
    return yaml.safe_load(file.read_text())


def filled_in(text: str) -> str:
    """Fill in the variables of an .env file."""

    def value(found: re.Match[str]) -> str:
        return GIVEN.get(found[1], f"{found[1].lower().replace('_', '')}0123456789abcdef01234567")

    return re.sub(r"\$\{(\w+):\?[^}]*\}", value, text)


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
    assert [file.stem for file in FILES] == ["cluster", "pair", "production", "single"]
    assert [len(nodes(file)) for file in FILES] == [2, 2, 2, 1]


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
    assert opened == PORTS[file.stem]


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
        assert re.search(r":v?\d", service["image"]), f"{name}: the image has no version"
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
    # The upstreams of the proxy are the nodes.
    proxy = FOLDER / ("production/Caddyfile" if file.stem == "production" else "nginx.conf")
    assert set(re.findall(r"\b([\w-]+):8000", proxy.read_text())) == nodes(file).keys()


@pytest.mark.parametrize("file", [file for file in FILES if file.stem != "production"], ids=lambda file: file.stem)
def test_redis_never_throws_away_who_is_online(file: Path) -> None:
    for name, service in project(file)["services"].items():
        if "redis-server" in str(service.get("command")):
            assert "--maxmemory-policy noeviction" in service["command"], name
            assert "--requirepass" in service["command"], name
            assert service["networks"].keys() <= {"back"} if isinstance(service["networks"], dict) else True


def test_valkey_of_production_requires_a_password_that_is_not_an_argument() -> None:
    service = project(FOLDER / "production.yml")["services"]["valkey"]
    assert "maxmemory-policy noeviction" in (FOLDER / "production" / "valkey.conf").read_text()
    assert "requirepass $$VALKEY_PASSWORD" in service["command"][-1]
    assert service["environment"]["VALKEY_PASSWORD"].startswith("${REDIS_PASSWORD")
    assert service["networks"] == ["back"]


def test_only_nodes_and_the_proxy_reach_other_machines() -> None:
    whole = project(FOLDER / "production.yml")
    assert whole["networks"]["back"] == {"internal": True}
    reached = {name for name, service in whole["services"].items() if "front" in service["networks"]}
    assert reached == {"greendot-1", "greendot-2", "proxy"}


def test_every_image_of_production_has_an_exact_version() -> None:
    for name, service in project(FOLDER / "production.yml")["services"].items():
        assert re.search(r":v?\d+(\.\d+\.\d+)?(-alpine)?$", service["image"]), name


def test_grafana_is_provisioned_with_the_shipped_dashboard() -> None:
    services = project(FOLDER / "production.yml")["services"]
    grafana = dict(volume.split(":")[:2] for volume in services["grafana"]["volumes"])
    (provider,) = yaml.safe_load((FOLDER / "production" / "dashboards.yml").read_text())["providers"]
    assert grafana["../grafana/greendot.json"] == f"{provider['options']['path']}/greendot.json"
    (source,) = yaml.safe_load((FOLDER / "production" / "datasource.yml").read_text())["datasources"]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
    scraping = yaml.safe_load((FOLDER / "production" / "prometheus.yml").read_text())
    assert source["jsonData"]["timeInterval"] == scraping["global"]["scrape_interval"] == "15s"
    job = next(each for each in scraping["scrape_configs"] if each["job_name"] == "greendot")
    assert {each.partition(":")[0] for each in job["static_configs"][0]["targets"]} == nodes(
        FOLDER / "production.yml"
    ).keys()


def test_prometheus_accepts_its_configuration_and_rules(tmp_path: Path) -> None:
    for volume in project(FOLDER / "production.yml")["services"]["prometheus"]["volumes"]:
        source, target = volume.split(":")[:2]
        if source.startswith("."):
            place = tmp_path / Path(target).relative_to("/etc/prometheus")
            (shutil.copytree if (FOLDER / source).is_dir() else shutil.copyfile)(FOLDER / source, place)
    assert "SUCCESS" in said(promtool(), "check", "config", tmp_path / "prometheus.yml")


def test_make_env_writes_new_secrets_for_the_owner_only_and_never_twice(tmp_path: Path) -> None:
    file = tmp_path / "env"
    words = ["rt.example.com", "https://app.example.com", "you@example.com", file]
    said("sh", FOLDER / "make-env", *words)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    made = dict(line.split("=", 1) for line in file.read_text().splitlines())
    assert made.keys() == set(re.findall(r"\$\{(\w+)", (FOLDER / "production.yml").read_text()))
    assert {name: made[name] for name in GIVEN} == GIVEN
    secrets = [value for name, value in made.items() if name not in GIVEN]
    assert len({*secrets}) == len(secrets) == 7
    assert all(re.fullmatch(r"[0-9a-f]{64}", secret) for secret in secrets)
    again = subprocess.run(["sh", FOLDER / "make-env", *words], capture_output=True, text=True)
    assert (again.returncode, "was not changed" in again.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "usage: make-env DOMAIN ORIGINS EMAIL|internal"),
        (["https://rt.example.com", "https://app.example.com", "internal"], "not a host name"),
        (["rt.example.com", "app.example.com", "internal"], "begins with https://"),
        (["rt.example.com", "https://a b", "internal"], "not a list of origins"),
        (["rt.example.com", "https://app.example.com", "you"], "not an email address"),
        (["rt.example.com", "https://app.example.com", "you@example.com\nX=1"], "not an email address"),
    ],
)
def test_make_env_refuses_wrong_words(words: list[str], reason: str, tmp_path: Path) -> None:
    words = [*words, str(tmp_path / "env")] if words else words
    done = subprocess.run(["sh", FOLDER / "make-env", *words], capture_output=True, text=True)
    assert (done.returncode, reason in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "env").exists()
