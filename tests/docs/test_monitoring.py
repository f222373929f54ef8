"""Dashboard, alerts, runbook and metrics reference refer to existing metrics and sections."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from greendot.cli import cli
from greendot.telemetry.metrics_catalogue import CATALOGUE, renewed
from monitored import ALERTS, DASHBOARD, alerts, expressions, labels_in, metrics_in, panels, records
from promtool import promtool

ROOT = Path(__file__).parents[2]
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
# Panels that an operator needs first.
FIRST = {
    "Connections by node",
    "Publish rate and socket send rate",
    "Dropped messages by type",
    "Reconnect rate",
    "Presence index drift",
    "Notification recovery rate",
    "Slow client closures",
    "Redis command latency",
    "Redis Pub/Sub message rate",
}
# Metrics of Prometheus itself, not of a node.
OF_PROMETHEUS = {"up"}


def test_the_metrics_reference_matches_the_code() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    assert renewed(page) == page, "run: python -m greendot.telemetry.metrics_catalogue docs/metrics.md"


def test_every_metric_is_described_in_a_sentence() -> None:
    assert len(CATALOGUE) > 120
    for metric in CATALOGUE.values():
        assert metric.help.endswith("."), metric.name
        assert (metric.type == "counter") == metric.name.endswith("_total"), metric.name


def test_gauges_of_several_nodes_are_combined_as_the_reference_states() -> None:
    combined = {
        (name, function)
        for expression in expressions()
        for function, name in re.findall(r"\b(sum|max|min|avg)\((\w+)", expression)
        if name in CATALOGUE and CATALOGUE[name].combine is not None
    }
    assert len(combined) > 25
    assert {(name, function, CATALOGUE[name].combine) for name, function in combined} == {
        (name, function, function) for name, function in combined
    }


def test_the_dashboard_has_the_panels_to_check_first_and_each_panel_has_a_description() -> None:
    shown = {panel["title"]: panel for panel in panels()}
    assert shown.keys() >= FIRST
    assert len(shown) == len(panels()) > 40
    for title, panel in shown.items():
        assert panel["description"], title
        assert panel["targets"], title
    assert len({panel["id"] for panel in panels()}) == len(panels())


def unknown_in(expression: str) -> set[str]:
    """Return the metrics and labels of the expression that do not exist."""
    named = metrics_in(expression)
    own = {label for name in named & CATALOGUE.keys() for label in CATALOGUE[name].labels}
    metrics = named - OF_PROMETHEUS - records() - CATALOGUE.keys()
    return metrics | (labels_in(expression) - {"instance", "job", "node", "le"} - own)


def test_metrics_and_labels_that_are_named_are_known() -> None:
    assert len(expressions()) > 100
    assert {expression: unknown for expression in expressions() if (unknown := unknown_in(expression))} == {}


def test_a_metric_or_a_label_that_is_not_there_is_found() -> None:
    assert unknown_in("rate(ws_connectons[1m])") == {"ws_connectons"}
    assert unknown_in('sum by (colour) (ws_connections{shape="x"})') == {"colour", "shape"}


def test_what_is_recorded_is_used_and_the_other_way_round() -> None:
    named = {name for expression in expressions() for name in metrics_in(expression)}
    assert {name for name in named if name.startswith("greendot:")} <= records()


def test_the_expressions_of_the_dashboard_can_be_read(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{number}", "expr": it} for number, it in enumerate(expressions(dashboard_only=True))]
    path = tmp_path / "panels.yml"
    path.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run([promtool(), "check", "rules", path], capture_output=True, text=True, timeout=60)
    assert (done.returncode, f"{len(rules)} rules found" in done.stdout) == (0, True), done.stdout + done.stderr


def test_the_alerts_fire_and_resolve_as_they_should() -> None:
    for command in (["check", "rules", ALERTS.name], ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run([promtool(), *command], cwd=ALERTS.parent, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr


def anchors(text: str) -> set[str]:
    """Return the anchors that are generated from the headings."""
    headings = re.findall(r"^##+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_an_alert_leads_to_its_section_of_the_runbook(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in ("critical", "warning")
    assert alert["annotations"].keys() == {"summary", "description", "runbook_url"}
    page, _, anchor = alert["annotations"]["runbook_url"].partition("#")
    assert (ROOT / page).exists()
    section = next(text for text in RUNBOOK.split("\n## ") if anchors(f"## {text.splitlines()[0]}") == {anchor})
    assert f"`{alert['alert']}`" in section
    for part in ("**Symptom**", "**Meaning**", "**Look at**", "**Do**"):
        assert part in section, part


def test_the_runbook_knows_no_alert_that_is_not_there() -> None:
    assert {*re.findall(r"`(Greendot\w+)`", RUNBOOK)} == {alert["alert"] for alert in alerts()}


def test_links_within_the_runbook_and_to_metrics_lead_somewhere() -> None:
    assert {*re.findall(r"\]\(#([^)]+)\)", RUNBOOK)} <= anchors(RUNBOOK)
    named = {name for words in re.findall(r"`([a-z_]+)`", RUNBOOK) for name in metrics_in(words)}
    assert len(named) > 20
    assert named <= CATALOGUE.keys()


def test_commands_named_in_the_runbook_exist() -> None:
    for said in re.findall(r"`greendot ([^`]+)`", RUNBOOK):
        first, *rest = said.split()
        command: click.Command = cli.all()[first]
        if isinstance(command, click.Group):
            command = command.commands[rest[0]]
        options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        assert {word for word in rest if word.startswith("--")} <= options, said


def test_the_dashboard_is_one_grafana_takes() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    assert dashboard["uid"] == "greendot"
    assert {variable["name"] for variable in dashboard["templating"]["list"]} == {"datasource", "instance"}
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]}
    assert len(places) == len(dashboard["panels"])
    assert yaml.safe_load(ALERTS.read_text())["groups"]
