"""Evaluation of a dashboard's queries against Prometheus, as Grafana evaluates them.

No registry that the tests reach has Grafana. So this module replaces the variables of a dashboard by the rules of
Grafana, and sends the range queries that Grafana would send.
"""

from __future__ import annotations

import json
import math
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

import yaml

MOST_POINTS = 1000  # width of a panel: Grafana chooses a step so that a series has fewer points


class Query(NamedTuple):
    """Query of a panel, with its variables replaced."""

    panel: str
    expression: str
    written: str  # as in the dashboard


class Prometheus:
    """HTTP API of Prometheus, at the address and with the scrape interval of a provisioned data source."""

    def __init__(self, datasource: Path) -> None:
        (source,) = yaml.safe_load(datasource.read_text())["datasources"]
        assert (source["type"], source["isDefault"]) == ("prometheus", True)
        self.url: str = source["url"]
        self.interval_s = int(source["jsonData"]["timeInterval"].removesuffix("s"))

    def get(self, path: str, **parameters: Any) -> Any:
        """Return the data of a successful response; raise HTTPError otherwise."""
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=20) as response:
            answer = json.loads(response.read())
        assert answer["status"] == "success", answer
        return answer["data"]

    def now(self, expression: str) -> dict[str, float]:
        """Return the current values of a query, by `instance`: the highest of its series."""
        found: dict[str, float] = {}
        for series in self.get("query", query=expression)["result"]:
            instance = series["metric"].get("instance", "")
            found[instance] = max(float(series["value"][1]), found.get(instance, -math.inf))
        return found

    def values(self, expression: str, since: float) -> list[float]:
        """Return all numbers of all series that a panel shows from `since` to now."""
        now = time.time()
        found = self.get("query_range", query=expression, start=since, end=now, step=self.step_s(now - since))
        values = (float(value) for series in found["result"] for _, value in series["values"])
        return [value for value in values if math.isfinite(value)]

    def step_s(self, shown_s: float) -> int:
        """Return `$__interval` for a period, at least the scrape interval."""
        return max(math.ceil(shown_s / MOST_POINTS), self.interval_s)

    def rate_interval_s(self, shown_s: float) -> int:
        """Return `$__rate_interval` for a period."""
        return max(self.step_s(shown_s) + self.interval_s, 4 * self.interval_s)


def queries(dashboard: Any, prometheus: Prometheus, shown_s: float) -> list[Query]:
    """Return all queries of all panels and annotations, for all nodes (the choice `All` of each variable)."""
    values = {"__rate_interval": f"{prometheus.rate_interval_s(shown_s)}s"}
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            assert (variable["includeAll"], variable["current"]["value"]) == (True, "$__all")
            values[variable["name"]] = variable["allValue"]
    found = []
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            found.append(Query(panel["title"], replaced(target["expr"], values), target["expr"]))
    notes = dashboard["annotations"]["list"]
    return found + [Query(f"annotation {note['name']}", replaced(note["expr"], values), note["expr"]) for note in notes]


def replaced(text: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(f"${name}", value)
    assert "$" not in text, f"a variable has no value: {text}"
    return text
