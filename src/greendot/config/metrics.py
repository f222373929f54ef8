"""Where numbers for Prometheus are read: what can be set, and what is wrong with it."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from greendot.config.fields import Mistakes, Port, about


class Metrics(Struct, frozen=True, forbid_unknown_fields=True):
    """`/metrics`, for who collects them."""

    host: Annotated[str, about("with a port of its own: the address to listen on; empty: that of the server")] = ""
    port: Annotated[Port, about("of its own, the next ones for further workers; 0: on the server's")] = 0


def check_metrics(metrics: Metrics, taken: dict[str, int], workers: int) -> Mistakes:
    """All that is wrong; `taken` are the ports of other settings, by their names."""
    last = metrics.port + workers - 1
    for name, port in taken.items():
        if metrics.port and metrics.port <= port <= last:
            ports = f"{metrics.port}" if workers == 1 else f"{metrics.port} to {last}, one for each worker"
            yield f"metrics.port ({ports}) takes that of {name} ({port}): choose another, or leave it out."
    if metrics.port and last > 65535:
        yield (
            f"metrics.port {metrics.port} leaves no room for {workers} workers, which take one port each: choose a "
            "lower one."
        )
    if metrics.host and not metrics.port:
        yield "metrics.host is set, and metrics.port is not: give it a port of its own."
