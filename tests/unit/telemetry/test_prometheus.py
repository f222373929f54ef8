"""Metrics page in the format of Prometheus."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from greendot.admin.http import METRICS_TYPE
from greendot.telemetry.metrics_catalogue import CATALOGUE
from greendot.telemetry.metrics_model import Histogram, MetricSample
from greendot.telemetry.prometheus import expose
from promtool import promtool

SAMPLE = re.compile(r'(\w+)\{((?:\w+="(?:[^"\\]|\\.)*",?)*)\} (\S+)')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count")}


def page(samples: Iterable[MetricSample], node: str = "n") -> str:
    return b"".join(expose(samples, node)).decode()


def values(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Read values by name and labels with a separate parser. The client's parser could share mistakes of its writer."""
    found = [SAMPLE.fullmatch(line) for line in text.splitlines() if not line.startswith("#")]
    return {(it[1], frozenset(LABEL.findall(it[2]))): float(it[3]) for it in found if it is not None}


def everything() -> list[MetricSample]:
    return [
        MetricSample(it.name, Histogram() if it.type == "histogram" else 1, dict.fromkeys(it.labels, 'a "b"'))
        for it in CATALOGUE.values()
    ]


def test_a_name_has_its_help_and_type_once_before_all_its_values() -> None:
    closes = [
        MetricSample("ws_closed_total", 3, {"code": "1000"}),
        MetricSample("ws_closed_total", 1, {"code": "4001"}),
    ]
    assert page([closes[0], MetricSample("ws_connections", 7), closes[1]], "k3Fa").splitlines() == [
        f"# HELP ws_connections {CATALOGUE['ws_connections'].help}",
        "# TYPE ws_connections gauge",
        'ws_connections{node="k3Fa"} 7.0',
        f"# HELP ws_closed_total {CATALOGUE['ws_closed_total'].help}",
        "# TYPE ws_closed_total counter",
        'ws_closed_total{code="1000",node="k3Fa"} 3.0',
        'ws_closed_total{code="4001",node="k3Fa"} 1.0',
    ]


def test_a_histogram_has_its_buckets_its_sum_and_its_count() -> None:
    observed = Histogram((0.00025, 0.1, 1.0, 120.0))
    for value in (0.05, 0.5, 300.0):
        observed.observe(value)
    assert page([MetricSample("realtime_hello_seconds", observed)]).splitlines()[2:] == [
        'realtime_hello_seconds_bucket{le="0.00025",node="n"} 0.0',
        'realtime_hello_seconds_bucket{le="0.1",node="n"} 1.0',
        'realtime_hello_seconds_bucket{le="1",node="n"} 2.0',
        'realtime_hello_seconds_bucket{le="120",node="n"} 2.0',
        'realtime_hello_seconds_bucket{le="+Inf",node="n"} 3.0',
        'realtime_hello_seconds_count{node="n"} 3.0',
        'realtime_hello_seconds_sum{node="n"} 300.55',
    ]


def test_every_metric_has_the_name_the_type_the_help_and_the_labels_of_the_catalogue() -> None:
    text = page(everything(), "k3Fa")
    assert re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE) == [(it.name, it.type) for it in CATALOGUE.values()]
    assert re.findall(r"^# HELP (\w+) (.*)$", text, re.MULTILINE) == [(it.name, it.help) for it in CATALOGUE.values()]
    found = {(name, frozenset(label for label, _ in labels) - {"le"}) for name, labels in values(text)}
    assert found == {
        (it.name + suffix, frozenset({"node", *it.labels}))
        for it in CATALOGUE.values()
        for suffix in SUFFIXES.get(it.type, ("",))
    }


def test_a_label_cannot_end_its_quotes_or_its_line() -> None:
    text = page([MetricSample("tenant_connections", 1, {"tenant": 'a"} 1\nws_connections{x="\\'})])
    assert text.splitlines()[2:] == ['tenant_connections{node="n",tenant="a\\"} 1\\nws_connections{x=\\"\\\\"} 1.0']


def test_numbers_are_written_as_prometheus_reads_them() -> None:
    numbers = (0, 2.0, 0.25, 1e-05, 12_345_678, float("nan"), float("inf"), float("-inf"))
    lines = [page([MetricSample("x", value)]).split()[-1] for value in numbers]
    assert lines == ["0.0", "2.0", "0.25", "1e-05", "1.2345678e+07", "NaN", "+Inf", "-Inf"]


def test_a_metric_without_a_description_is_shown() -> None:
    assert page([MetricSample("new_total", 1)]).splitlines()[1:] == [
        "# TYPE new_total untyped",
        'new_total{node="n"} 1.0',
    ]


def test_the_page_is_declared_as_the_format_it_has() -> None:
    assert METRICS_TYPE == CONTENT_TYPE_PLAIN_0_0_4


def test_promtool_reads_a_page_of_everything_and_would_only_have_other_units() -> None:
    found = subprocess.run(
        [promtool(), "check", "metrics"], input=page(everything()), capture_output=True, text=True, timeout=30
    )
    assert found.returncode in (0, 3), found.stderr  # 3: it was read, with suggestions
    assert {line for line in (found.stdout + found.stderr).splitlines() if "unit" not in line} == set()
