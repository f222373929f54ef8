"""Metrics in the text format of Prometheus, version 0.0.4.

Each name has its help and type once, before its values. They come from `telemetry.metrics_catalogue`; a name that is
not there is written without them, so that nothing is hidden by an oversight.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from math import isinf, isnan
from typing import NamedTuple

from greendot.telemetry.metrics_catalogue import CATALOGUE, Metric
from greendot.telemetry.metrics_model import Histogram

MEDIA_TYPE = "text/plain; version=0.0.4"


class MetricSample(NamedTuple):
    """One value, with the labels that tell it from others of its name."""

    name: str
    value: float | Histogram
    labels: Mapping[str, str] = {}


def expose(samples: Iterable[MetricSample], node: str) -> str:
    """The page of one node, whose name every value carries; in the catalogue's order."""
    families: dict[str, list[MetricSample]] = {}
    for sample in samples:
        families.setdefault(sample.name, []).append(sample)
    known = [name for name in CATALOGUE if name in families]
    lines: list[str] = []
    for name in (*known, *(name for name in families if name not in CATALOGUE)):
        lines += _family(name, CATALOGUE.get(name), families[name], node)
    return "\n".join(lines) + "\n"


def _family(name: str, metric: Metric | None, samples: Iterable[MetricSample], node: str) -> Iterator[str]:
    if metric is not None:
        yield f"# HELP {name} {_plain(metric.help)}"
        yield f"# TYPE {name} {metric.type}"
    for sample in samples:
        labels = ",".join(f'{key}="{_quoted(value)}"' for key, value in {"node": node, **sample.labels}.items())
        if isinstance(sample.value, Histogram):
            yield from _distribution(name, labels, sample.value)
        else:
            yield f"{name}{{{labels}}} {_number(sample.value)}"


def _distribution(name: str, labels: str, values: Histogram) -> Iterator[str]:
    count = values.count
    for bound, reached in values.buckets():
        yield f'{name}_bucket{{{labels},le="{_number(bound)}"}} {reached}'
    yield f'{name}_bucket{{{labels},le="+Inf"}} {count}'
    yield f"{name}_sum{{{labels}}} {_number(values.total)}"
    yield f"{name}_count{{{labels}}} {count}"


def _number(value: float) -> str:
    if isnan(value):
        return "NaN"
    if isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(value)


def _plain(text: str) -> str:
    """A help text stays on its line."""
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    """A label's value ends where its quotes do."""
    return _plain(text).replace('"', '\\"')


def of_this_process() -> Iterator[tuple[str, float]]:
    """Names and values; one that cannot be had here is left out."""
    yield "process_start_time_seconds", _started(os.getpid())
    yield "process_cpu_seconds_total", round(time.process_time(), 2)
    yield "process_max_fds", resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        with open("/proc/self/statm") as pages:
            yield "process_resident_memory_bytes", int(pages.read().split()[1]) * resource.getpagesize()
        yield "process_open_fds", _open_files()
    except OSError:  # not Linux
        return


@cache
def _started(pid: int) -> float:
    """Once for each process: a worker is a copy of its parent, and was started later."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            ticks = int(stat.read().rpartition(")")[2].split()[19])
        began = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    except (OSError, AttributeError):  # not Linux
        return time.time() - time.process_time()
    return round(began + ticks / os.sysconf("SC_CLK_TCK"), 2)


def _open_files() -> int:
    """Newer kernels say how many; with older ones they are counted."""
    return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd"))
