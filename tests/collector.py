"""OpenTelemetry collector: receives OTLP over HTTP on loopback and keeps the spans."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Span(NamedTuple):
    """Fields of a span that tests check."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, str]
    error: str


class Collector:
    """Collector that keeps the spans of all senders in `spans`."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["Content-Length"]))
                collector.take(gzip.decompress(data) if self.headers["Content-Encoding"] == "gzip" else data)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/traces"

    def take(self, data: bytes) -> None:
        for of in ExportTraceServiceRequest.FromString(data).resource_spans:
            about = {attribute.key: attribute.value.string_value for attribute in of.resource.attributes}
            for scope in of.scope_spans:
                for span in scope.spans:
                    attributes = {found.key: found.value.string_value for found in span.attributes}
                    ids = (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())
                    found = Span(about["service.name"], span.name, *ids, attributes, span.status.message)
                    self.spans.append(found)


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()
    thread = Thread(target=collector.server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield collector
    finally:
        collector.server.shutdown()
        thread.join()
        collector.server.server_close()
