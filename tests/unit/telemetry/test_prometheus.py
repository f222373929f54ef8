"""A page as Prometheus reads it."""

from __future__ import annotations

import subprocess

from greendot.telemetry.metrics_catalogue import CATALOGUE
from greendot.telemetry.metrics_model import Histogram
from greendot.telemetry.prometheus import MetricSample, expose
from promtool import promtool


def test_a_name_has_its_help_and_type_once_before_all_its_values() -> None:
    closes = [
        MetricSample("ws_closed_total", 3, {"code": "1000"}),
        MetricSample("ws_closed_total", 1, {"code": "4001"}),
    ]
    lines = expose([closes[0], MetricSample("ws_connections", 7), closes[1]], "k3Fa").splitlines()
    assert lines == [
        f"# HELP ws_connections {CATALOGUE['ws_connections'].help}",
        "# TYPE ws_connections gauge",
        'ws_connections{node="k3Fa"} 7',
        f"# HELP ws_closed_total {CATALOGUE['ws_closed_total'].help}",
        "# TYPE ws_closed_total counter",
        'ws_closed_total{node="k3Fa",code="1000"} 3',
        'ws_closed_total{node="k3Fa",code="4001"} 1',
    ]


def test_a_histogram_has_its_buckets_its_sum_and_its_count() -> None:
    values = Histogram((0.1, 1.0))
    for value in (0.05, 0.5, 3.0):
        values.observe(value)
    assert expose([MetricSample("realtime_hello_seconds", values)], "n").splitlines()[2:] == [
        'realtime_hello_seconds_bucket{node="n",le="0.1"} 1',
        'realtime_hello_seconds_bucket{node="n",le="1"} 2',
        'realtime_hello_seconds_bucket{node="n",le="+Inf"} 3',
        'realtime_hello_seconds_sum{node="n"} 3.55',
        'realtime_hello_seconds_count{node="n"} 3',
    ]


def test_a_label_cannot_end_its_quotes_or_its_line() -> None:
    text = expose([MetricSample("tenant_connections", 1, {"tenant": 'a"} 1\nws_connections{x="\\'})], "n")
    assert text.splitlines()[2:] == ['tenant_connections{node="n",tenant="a\\"} 1\\nws_connections{x=\\"\\\\"} 1']


def test_numbers_are_written_as_prometheus_reads_them() -> None:
    values = (0, 2.0, 0.25, 1e-05, float("nan"), float("inf"), float("-inf"))
    lines = [expose([MetricSample("x", value)], "n").split()[-1] for value in values]
    assert lines == ["0", "2", "0.25", "1e-05", "NaN", "+Inf", "-Inf"]


def test_what_nobody_has_described_is_shown_all_the_same() -> None:
    assert expose([MetricSample("new_total", 1)], "n") == 'new_total{node="n"} 1\n'


def test_promtool_reads_a_page_of_everything_and_would_only_have_other_units() -> None:
    samples = [
        MetricSample(it.name, Histogram() if it.type == "histogram" else 1, dict.fromkeys(it.labels, 'a "b"'))
        for it in CATALOGUE.values()
    ]
    page = expose(samples, "k3Fa")
    found = subprocess.run([promtool(), "check", "metrics"], input=page, capture_output=True, text=True, timeout=30)
    assert found.returncode in (0, 3), found.stderr  # 3: it was read, and something could be better
    assert {line for line in (found.stdout + found.stderr).splitlines() if "unit" not in line} == set()
