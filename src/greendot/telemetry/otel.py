"""Spans by OpenTelemetry, sent by OTLP over HTTP. An extra: `pip install greendot[otel]`."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Thread
from typing import Any

from greendot.errors import ConfigError
from greendot.telemetry.traceparent import Trace

try:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON
    from opentelemetry.trace import NonRecordingSpan, SpanContext, Status, StatusCode, TraceFlags, set_span_in_context
except ImportError:  # the extra is not installed
    raise ConfigError(
        "traces.endpoint is set, and OpenTelemetry is not installed. Install it: pip install 'greendot[otel]'"
    ) from None

PATIENCE_S = 5.0  # timeout of a silent collector; spans wait meanwhile, and beyond 2048 are dropped
CLOSE_S = 2.0  # timeout at the end: a process that stops must not seem stuck because of the collector


class OtelSpan:
    """Span of OpenTelemetry; see `spans.Recorded`."""

    def __init__(self, span: Any) -> None:
        self._span = span

    @property
    def trace(self) -> Trace:
        context = self._span.get_span_context()
        return Trace(f"{context.trace_id:032x}", f"{context.span_id:016x}", int(context.trace_flags))

    def failed(self, error: BaseException) -> None:
        # Only the type: the message may quote data that was sent.
        self._span.set_status(Status(StatusCode.ERROR, type(error).__name__))

    def end(self) -> None:
        self._span.end()


class OtelRecorder:
    """Recorder of OpenTelemetry; see `spans.Recorder`. It gets only spans that are already sampled."""

    def __init__(self, endpoint: str, service: str, share: float, **about: str) -> None:
        self.share = share
        resource = Resource.create({"service.name": service} | about)
        self._provider = TracerProvider(sampler=ALWAYS_ON, resource=resource, shutdown_on_exit=False)
        exporter = OTLPSpanExporter(endpoint=endpoint, timeout=PATIENCE_S)
        self._provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=1_000))
        self._tracer = self._provider.get_tracer("greendot")

    def begin(self, name: str, parent: Trace, fields: Mapping[str, object]) -> OtelSpan:
        attributes = {f"greendot.{name}": str(value) for name, value in fields.items() if value is not None}
        return OtelSpan(self._tracer.start_span(name, _context(parent), attributes=attributes))

    def close(self) -> None:
        """Send waiting spans, within CLOSE_S and as far as the collector accepts them."""
        closing = Thread(target=self._provider.shutdown, daemon=True)  # shutdown itself waits up to 30 s
        closing.start()
        closing.join(CLOSE_S)


def _context(parent: Trace) -> Any:
    if not parent.span_id:
        return None
    flags = TraceFlags(parent.flags)
    came_from = SpanContext(int(parent.trace_id, 16), int(parent.span_id, 16), is_remote=True, trace_flags=flags)
    return set_span_in_context(NonRecordingSpan(came_from))
