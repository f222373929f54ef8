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

SHOWN_S = 1800  # "Last 30 minutes"
# Points in a panel: on a wide screen, on a phone, in a small window. Fewer points mean longer steps and rate intervals.
WIDTHS = (1000, 300, 120)


class Query(NamedTuple):
    """Query of a panel or annotation, as written in the dashboard."""

    panel: str
    written: str


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

    def values(self, written: str, variables: dict[str, str], width: int) -> list[float]:
        """Return all numbers of all series that a panel of this width shows."""
        step_s = max(math.ceil(SHOWN_S / width), self.interval_s)  # $__interval
        rate_interval_s = max(step_s + self.interval_s, 4 * self.interval_s)
        expression = replaced(written, variables | {"__rate_interval": f"{rate_interval_s}s"})
        end = time.time() // step_s * step_s
        found = self.get("query_range", query=expression, start=end - SHOWN_S, end=end, step=step_s)
        values = (float(value) for series in found["result"] for _, value in series["values"])
        return [value for value in values if math.isfinite(value)]


def queries(dashboard: Any) -> list[Query]:
    """Return all queries of all panels and annotations."""
    found = []
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            found.append(Query(panel["title"], target["expr"]))
    return found + [Query(f"annotation {note['name']}", note["expr"]) for note in dashboard["annotations"]["list"]]


def variables(dashboard: Any) -> dict[str, str]:
    """Return the values of the variables of a dashboard when all nodes are chosen, as at first."""
    listed = [each for each in dashboard["templating"]["list"] if each["type"] == "query"]
    assert all((each["includeAll"], each["current"]["value"]) == (True, "$__all") for each in listed)
    return {each["name"]: each["allValue"] for each in listed}


def replaced(text: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(f"${name}", value)
    assert "$" not in text, f"a variable has no value: {text}"
    return text
