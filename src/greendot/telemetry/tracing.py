"""Spans of a process, as the settings want them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from greendot import __version__
from greendot.config import Traces
from greendot.telemetry.spans import record_with


@contextmanager
def recording(traces: Traces) -> Iterator[None]:
    """Within it spans are recorded, if they are to go anywhere. ConfigError if what sends them is not installed."""
    if not traces.endpoint:
        yield
        return
    from greendot.telemetry.otel import OtelRecorder  # an extra, and a while to import

    recorder = OtelRecorder(traces.endpoint, traces.service, traces.share, **{"service.version": __version__})
    record_with(recorder)
    try:
        yield
    finally:
        record_with(None)
        recorder.close()
