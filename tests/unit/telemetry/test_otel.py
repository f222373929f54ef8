"""Export of spans to a collector by OTLP over HTTP."""

from __future__ import annotations

import socket

import pytest

from collector import collecting
from greendot.telemetry import otel
from greendot.telemetry.otel import OtelRecorder
from greendot.telemetry.spans import ROOT
from greendot.telemetry.traceparent import Trace
from waited import Lap

PARENT = Trace("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", 1)


def test_a_span_has_its_trace_its_parent_and_no_word_of_an_error() -> None:
    with collecting() as collector:
        recorder = OtelRecorder(collector.url, "chat", 0.0)
        outer = recorder.begin("POST /v1/notifications", PARENT, {"kind": "room", "none": None})
        inner = recorder.begin("store.commit", outer.trace, {})
        inner.failed(ValueError("what somebody said"))
        inner.end()
        outer.end()
        root = recorder.begin("command", ROOT, {})
        root.end()
        recorder.close()
    spans = {span.name: span for span in collector.spans}
    request, commit = spans["POST /v1/notifications"], spans["store.commit"]
    assert (request.trace_id, request.parent_id) == (PARENT.trace_id, PARENT.span_id)
    assert (commit.trace_id, commit.parent_id) == (PARENT.trace_id, request.span_id)
    assert request.attributes == {"greendot.kind": "room"}
    assert commit.error == "ValueError"
    assert spans["command"].parent_id == ""
    assert spans["command"].service == "chat"
    assert outer.trace == Trace(PARENT.trace_id, request.span_id, 1)


def test_an_unreachable_collector_causes_no_error() -> None:
    recorder = OtelRecorder("http://127.0.0.1:9/v1/traces", "chat", 0.0)
    recorder.begin("command", ROOT, {}).end()
    recorder.close()


def test_a_collector_that_hangs_does_not_keep_a_process_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otel, "CLOSE_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts data and never answers
        recorder = OtelRecorder(f"http://127.0.0.1:{silent.getsockname()[1]}/v1/traces", "chat", 0.0)
        recorder.begin("command", ROOT, {}).end()
        lap = Lap()
        recorder.close()
        assert lap.seconds < otel.PATIENCE_S / 2
