"""Settings of dashboard, metrics, log and traces, which operators use, and their checks."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from greendot.config.fields import Mistakes, Port, Secret, about, check_length


class Admin(Struct, frozen=True, forbid_unknown_fields=True):
    """Dashboard for operators, at `/admin`."""

    enabled: Annotated[bool, about("serve the dashboard at /admin; on with --dev")] = False
    host: Annotated[str, about("address of the dashboard's own port; empty: that of the server")] = ""
    port: Annotated[Port, about("own port of the dashboard; 0: the server's port")] = 0
    key: Annotated[Secret, about("key that opens the dashboard for all tenants and nodes; empty: API keys only")] = ""


def check_admin(admin: Admin, server_port: int) -> Mistakes:
    """Yield the mistakes in `[admin]`."""
    yield from check_length("admin.key", admin.key)
    if admin.port and admin.port == server_port:
        yield (
            f"admin.port ({admin.port}) is also server.port. Choose another port, or leave admin.port out to serve the "
            "dashboard on the server's port."
        )
    if admin.host and not admin.port:
        yield "admin.host is set but admin.port is not. Set admin.port too, or leave admin.host out."


class Metrics(Struct, frozen=True, forbid_unknown_fields=True):
    """Address and port of `/metrics`."""

    host: Annotated[str, about("address of the metrics' own port; empty: that of the server")] = ""
    port: Annotated[
        Port, about("own port of the metrics; further workers use the next ports; 0: the server's port")
    ] = 0


def check_metrics(metrics: Metrics, taken: dict[str, int], workers: int) -> Mistakes:
    """Yield the mistakes in `[metrics]`. `taken` are the ports of other settings, by the setting's name."""
    last = metrics.port + workers - 1
    for name, port in taken.items():
        if metrics.port and metrics.port <= port <= last:
            ports = f"{metrics.port}" if workers == 1 else f"{metrics.port} to {last}, one for each worker"
            yield (
                f"metrics.port ({ports}) conflicts with {name} ({port}). "
                "Choose another port, or leave metrics.port out."
            )
    if metrics.port and last > 65535:
        yield (
            f"metrics.port {metrics.port} is too high for {workers} workers, which use one port each. Choose a lower "
            "port."
        )
    if metrics.host and not metrics.port:
        yield "metrics.host is set but metrics.port is not. Set metrics.port too, or leave metrics.host out."


class Log(Struct, frozen=True, forbid_unknown_fields=True):
    """Format of log lines, and the time in which repeated lines are summed up."""

    format: Annotated[Literal["auto", "json", "text"], about("auto: text on a terminal, else JSON")] = "auto"
    repeat_s: Annotated[
        float, Meta(ge=0, le=86_400), about("repeated lines within this time are summed up in one; 0: never")
    ] = 60.0


class Traces(Struct, frozen=True, forbid_unknown_fields=True):
    """Collector of spans, and the share of work that is traced."""

    endpoint: Annotated[
        str, about("URL of an OTLP/HTTP collector, such as http://HOST:4318/v1/traces; empty: no spans")
    ] = ""
    share: Annotated[float, Meta(ge=0, le=1), about("share of requests and commands without a trace that get one")] = (
        0.0
    )
    service: Annotated[str, Meta(min_length=1, max_length=200), about("service name in the spans")] = "greendot"


def check_traces(traces: Traces) -> Mistakes:
    """Yield the mistakes in `[traces]`."""
    if traces.endpoint and not traces.endpoint.startswith(("http://", "https://")):
        yield (
            "traces.endpoint must be the http:// or https:// URL of an OTLP/HTTP collector, such as "
            "http://127.0.0.1:4318/v1/traces."
        )
    if traces.share and not traces.endpoint:
        yield (
            f"traces.share is {traces.share:g} but traces.endpoint is not set, so spans would be lost. "
            "Set both, or neither."
        )
