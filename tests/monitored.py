"""Expressions, metrics and labels in the Grafana dashboard and the Prometheus alerts."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

import yaml

from greendot.telemetry.metrics_catalogue import CATALOGUE

DEPLOY = Path(__file__).parents[1] / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
DASHBOARD = DEPLOY / "grafana" / "greendot.json"
_PREFIXES = "|".join(sorted({name.partition("_")[0] for name in CATALOGUE}))
_METRIC = re.compile(rf"\b(?:greendot:[\w:]+|up\b|(?:{_PREFIXES})_\w+)")
_GROUPED = re.compile(r"\b(?:by|on|without|ignoring) \(([^)]*)\)")
_MATCHED = re.compile(r"([a-z_]+)\s*(?:=~|!~|!=|=)\s*\"")


@functools.cache
def _rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in _rules() if "alert" in rule]


@functools.cache
def records() -> set[str]:
    return {rule["record"] for rule in _rules() if "record" in rule}


@functools.cache
def panels() -> list[dict[str, Any]]:
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]


def expressions(*, dashboard_only: bool = False) -> list[str]:
    """Return each PromQL expression once, with Grafana's variables replaced by values."""
    dashboard = json.loads(DASHBOARD.read_text())
    found = [target["expr"] for panel in panels() for target in panel["targets"]]
    found += [note["expr"] for note in dashboard["annotations"]["list"]]
    found = [text.replace("$instance", ".*").replace("$__rate_interval", "1m") for text in found]
    if not dashboard_only:
        found += [rule["expr"] for rule in _rules()]
    return [*dict.fromkeys(found)]


def metrics_in(expression: str) -> set[str]:
    """Return the names of metrics. Parts of a histogram (`_bucket`, `_sum`, `_count`) count as the histogram."""
    return {re.sub(r"(?<=_seconds|per_user)_(?:bucket|sum|count)$", "", name) for name in _METRIC.findall(expression)}


def labels_in(expression: str) -> set[str]:
    grouped = {label.strip() for labels in _GROUPED.findall(expression) for label in labels.split(",")}
    return grouped | {*_MATCHED.findall(expression)}
