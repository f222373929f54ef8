"""production.yml without Docker: TLS, scraping, alerts, and data for each query of the Grafana dashboard."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import ssl
import stat
import subprocess
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from deployed.grafana import WIDTHS, Prometheus, Query, queries, variables
from deployed.production import SCRIPT, Production, until, until_data
from deployed.programs import ROOT, said
from deployed.traffic import (
    World,
    converse,
    hold_pushes,
    invalid_bus_message,
    lose_and_resume,
    push,
    read_slowly,
    refuse,
    world,
    write_outbox,
)
from greendot.client import Client
from monitored import ALERTS, DASHBOARD
from postgres_server import programs_with_tls

GUIDE = ROOT / "docs" / "guides" / "going-to-production.md"
DASHBOARD_DATA = json.loads(DASHBOARD.read_text())
# Metrics that stay 0 while all is well. Their queries must answer, with 0 or more.
QUIET = {
    "realtime_overload_level": "no node is overloaded",
    "realtime_shed_total": "no node is overloaded",
    "realtime_overload_refused_total": "no node is overloaded",
    "realtime_hellos_refused_total": "needs more than 2,000 hellos per second",
    "realtime_hellos_waiting": "needs more than 2,000 hellos per second",
    "realtime_upgrades_refused_total": "needs 10,000 sockets without hello",
    "realtime_socket_send_failed_total": "needs a socket that breaks while the node writes to it",
    "realtime_send_backlog": "needs more writes than one turn of the event loop can do, during a scrape",
    "realtime_bus_lag_ms": "whole milliseconds, of the last message",
    "realtime_pubsub_unrouted_total": "needs 10,000 messages that wait for Redis",
    "presence_sweep_drift": "no end of a session was missed",
    "presence_audited_sessions_total": "no end of a session was missed",
    "presence_spread_total": "no user has more than 1,000 watchers",
    "visibility_unanswered_total": "no visibility webhook is set",
    "inbox_gaps_total": "no message between nodes about an inbox was lost",
    "inbox_redelivered_total": "no kind of notification must be acknowledged (kinds are set in a file only)",
    "inbox_unacknowledged_total": "no kind of notification must be acknowledged",
    "push_queue_oldest_s": "pushes are not late",
    "push_queue_due": "pushes are not late",
    "webhooks_queue": "webhooks are not late",
    "webhooks_dropped_total": "the app accepts events",
    "webhooks_dead": "the app accepts events; they would be given up after a day",
    "outbox_queue": "rows of the app outbox are not late",
    "jobs_overdue_s": "jobs are not late",
    "jobs_failed_total": "jobs succeed",
    "jobs_failing": "jobs succeed",
    "jobs_stopped_total": "no node stops while it runs a job",
    "jobs_lost_total": "no node is slow enough to lose a running job",
}


class Alertmanager:
    """Alertmanager that keeps the names of the firing alerts that Prometheus sends."""

    def __init__(self) -> None:
        self.firing: set[str] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                found = re.search(r"content-length: (\d+)", head, re.IGNORECASE)
                body = await reader.readexactly(int(found[1]) if found else 0)
                assert head.startswith("POST /api/v2/alerts"), head
                self.firing |= {alert["labels"]["alertname"] for alert in json.loads(body)}
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def alertmanager(production: Production) -> AsyncIterator[Alertmanager]:
    """Run an Alertmanager and list it in alertmanagers.yml, as an operator does."""
    found = Alertmanager()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    file = production.folder / "prometheus" / "etc/prometheus/alerting/alertmanagers.yml"
    file.write_text(json.dumps([{"targets": [f"127.0.0.1:{port}"]}]))
    try:
        yield found
    finally:
        server.close()


@pytest.mark.timeout(240)
async def test_production_answers_over_tls_and_shows_all_of_its_traffic(tmp_path: Path) -> None:
    async with world(tmp_path) as there:
        production = there.production
        await check_configuration(there)
        await check_tls(production)
        check_secrets(production)
        async with (
            alertmanager(production) as alerts,
            production.direct_client("alice", "laptop") as alice,
            production.client("alice", "phone"),
            production.client("bob") as bob,
        ):
            await converse(there, alice, bob)
            await push(there)
            await write_outbox(there)
            await lose_and_resume(there)
            await end_valkey(there, alice)
            await asyncio.gather(end_node(there, alerts), use_other_node(there, alice), check_doctor(production))
            await bob.send("lobby", {"text": "still here, on any node"})
            await check_dashboard(there)
        await asyncio.to_thread(check_backup, production)
        check_secrets(production)
    assert production.process.returncode == 0
    assert production.output[-1] == "production: stopped"
    assert not production.folder.exists()


async def use_other_node(there: World, alice: Client) -> None:
    """Use the node that lives on, and clients that continue there, while the other node is dead."""
    await asyncio.gather(hold_pushes(there, alice), read_slowly(there))
    await refuse(there)


async def check_configuration(there: World) -> None:
    """Check that Prometheus scrapes both nodes and has all rules."""
    urls = {f"http://127.0.0.1:{port}/metrics" for port in there.production.nodes}
    await until_data(lambda: scraped(there.prometheus) == urls)
    groups = there.prometheus.get("rules")["groups"]
    shipped = yaml.safe_load(ALERTS.read_text())["groups"]
    assert {group["name"]: len(group["rules"]) for group in groups} == {
        group["name"]: len(group["rules"]) for group in shipped
    }


def scraped(prometheus: Prometheus) -> set[str]:
    """Return the addresses of the nodes that Prometheus has scraped."""
    targets = prometheus.get("targets", state="active")["activeTargets"]
    return {each["scrapeUrl"] for each in targets if (each["labels"]["job"], each["health"]) == ("greendot", "up")}


async def check_tls(production: Production) -> None:
    """Check that the certificate is valid for the domain, and for clients that trust Caddy's authority only."""
    port = int(production.addresses["proxy"].rpartition(":")[2])
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=production.tls, server_hostname="localhost")
    assert writer.get_extra_info("ssl_object").version() == "TLSv1.3"
    writer.close()
    for trusted, name in ((ssl.create_default_context(), "localhost"), (production.tls, "other.example")):
        with pytest.raises(ssl.SSLError):
            await asyncio.open_connection("127.0.0.1", port, ssl=trusted, server_hostname=name)


def check_secrets(production: Production) -> None:
    """Check that no other user can read the secrets, in files, in logs, in output or in arguments."""
    secrets = [value for name, value in production.secrets.items() if re.search("SECRET|KEY|PASSWORD", name)]
    assert len({*secrets}) == 7
    assert all(len(secret) == 64 for secret in secrets)
    for entry in production.folder.iterdir():
        assert not stat.S_IMODE(entry.stat().st_mode) & 0o077, entry
    logs = [path.read_text() for path in (production.folder / "logs").iterdir()]
    assert len(logs) == 7
    arguments = [Path(f"/proc/{pid}/cmdline").read_text() for pid in children(production.process.pid)]
    assert len(arguments) >= 6
    for text in (*logs, *arguments, *production.output):
        for secret in secrets:
            assert secret not in text


async def check_doctor(production: Production) -> None:
    """Check that the shipped settings have no errors and no warnings: only those of this test may have some."""
    _, found = await production.command("doctor")
    assert re.search(r"^\d+ errors?, ", found, re.MULTILINE), found
    marked = re.findall(r"^(?:error|warning) +(\w+)\.", found, re.MULTILINE | re.IGNORECASE)
    assert not {"api", "auth", "door", "engine", "limits", "store", "tls"} & {*marked}, found


def check_backup(production: Production) -> None:
    """Check that the commands of the guide back up and restore all messages: into another database, as nodes run."""
    tools = programs_with_tls()
    host, port = production.addresses["postgres"].split(":")
    secret = {"PGPASSWORD": production.secrets["POSTGRES_ADMIN_PASSWORD"], "PGHOST": host, "PGPORT": port}
    dump, restore = re.findall(r"exec -T postgres (pg_\w+ .*?)(?: && \\)?$", GUIDE.read_text(), re.MULTILINE)
    said(tools / "createdb", "--username", "postgres", "--owner", "greendot", "restored", **secret)
    folder = production.folder / "backup"
    folder.mkdir(0o700)
    said("sh", "-euc", f"{tools}/{dump}", cwd=folder, **secret)
    check_failed_backup(f"{tools}/{dump}", folder / "greendot.dump")
    said("sh", "-euc", f"{tools}/{restore.replace('--dbname greendot', '--dbname restored')}", cwd=folder, **secret)
    count = ["--username", "postgres", "-Atc", "SELECT count(*) FROM greendot_messages"]
    found = [said(tools / "psql", *count, name, **secret) for name in ("greendot", "restored")]
    assert found[0] == found[1]
    assert int(found[0]) > 20


def check_failed_backup(command: str, backup: Path) -> None:
    """Check that a backup that fails keeps the previous file."""
    before = backup.read_bytes()
    nowhere = {"PGHOST": str(backup.parent), "PATH": os.environ["PATH"]}
    failed = subprocess.run(["sh", "-c", command], cwd=backup.parent, env=nowhere, capture_output=True, timeout=20)
    assert failed.returncode != 0
    assert backup.read_bytes() == before


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


async def end_valkey(there: World, alice: Client) -> None:
    """Kill Valkey. It is started again, nodes restore their sessions, and clients stay connected."""
    welcome = alice.welcome
    there.production.signal("valkey", signal.SIGKILL)
    await there.counted("min(presence_recovery_seconds_count)")
    assert alice.welcome is welcome


async def end_node(there: World, alerts: Alertmanager) -> None:
    """Freeze a node until it is declared dead, then kill it. Alerts reach the Alertmanager; the node starts again."""
    production, prometheus = there.production, there.prometheus
    lost = await production.wire(1, "dave")  # does not return
    await invalid_bus_message(there)
    instance = f"127.0.0.1:{production.nodes[1]}"
    production.signal("greendot-2", signal.SIGSTOP)
    await until_data(lambda: prometheus.now('up{job="greendot"}')[instance] == 0)
    await until_data(lambda: prometheus.now('ALERTS{alertname="GreendotNodeDown", alertstate="pending"}') != {})
    # Before the node is started again: it could count its own death before Prometheus has scraped it.
    await there.counted("presence_swept_users_total")
    production.signal("greendot-2", signal.SIGKILL)
    await lost.end()
    await until(lambda: alerts.firing >= {"GreendotNodeDied", "GreendotForeignMessages"})
    await until_data(lambda: prometheus.now('up{job="greendot"}')[instance] == 1)
    assert any("greendot-2 ended with code -9 and is started again" in line for line in production.output)


async def check_dashboard(there: World) -> None:
    """Check that each query of the dashboard has data, and more than 0 except for the metrics in QUIET."""
    assert {*there.prometheus.get("label/instance/values", **{"match[]": "ws_connections"})} == {
        f"127.0.0.1:{port}" for port in there.production.nodes
    }
    assert not has_data(there, Query("unknown", "sum(rate(realtime_unknown_total[1m]))"))
    missing = queries(DASHBOARD_DATA)

    def look() -> bool:
        missing[:] = [query for query in missing if not has_data(there, query)]
        return not missing

    try:
        await until_data(look, 15)
    except TimeoutError:
        pytest.fail("no data: " + "\n".join(f"{query.panel}: {query.written}" for query in missing))


def test_each_metric_that_may_be_0_is_on_the_dashboard() -> None:
    written = [target["expr"] for panel in DASHBOARD_DATA["panels"] for target in panel.get("targets", ())]
    assert [name for name in QUIET if not any(name in expression for expression in written)] == []
    assert len([one for one in written if not any(name in one for name in QUIET)]) > 0.7 * len(written)


async def test_a_port_that_is_in_use_is_named_and_nothing_is_started(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        words = [sys.executable, SCRIPT, "--folder", tmp_path / "data", "--https-port", str(port)]
        process = await asyncio.create_subprocess_exec(*words, stdout=PIPE, stderr=STDOUT)
        out, _ = await process.communicate()
    assert process.returncode == 1
    complaint = f"port {port} cannot be used: Address already in use. Stop the program that listens there, or give "
    assert f"{complaint}--https-port 0" in out.decode()
    assert not (tmp_path / "data" / "logs").exists()


def has_data(there: World, query: Query) -> bool:
    """Return whether a panel of some width shows data: more than 0, except for the metrics in QUIET."""
    quiet = any(name in query.written for name in QUIET)
    for width in WIDTHS:
        values = there.prometheus.values(query.written, variables(DASHBOARD_DATA), width)
        if any(value != 0 or quiet for value in values):
            return True
    return False
