"""How a server tells what happens in it: lines of the log, and spans."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from greendot.config.mistakes import Mistakes


class Log(Struct, frozen=True, forbid_unknown_fields=True):
    """What lines look like, and which are left out."""

    format: Literal["auto", "json", "text"] = "auto"  # auto: text on a terminal, else JSON
    repeat_s: Annotated[float, Meta(ge=0, le=86_400)] = 60.0  # what comes again within it is summed up; 0: never


class Traces(Struct, frozen=True, forbid_unknown_fields=True):
    """Where spans go."""

    endpoint: str = ""  # of a collector that takes OTLP over HTTP, as http://HOST:4318/v1/traces; empty: no spans
    share: Annotated[float, Meta(ge=0, le=1)] = 0.0  # of what comes without a trace that gets one
    service: Annotated[str, Meta(min_length=1, max_length=200)] = "greendot"  # the name spans are found by


def check_traces(traces: Traces) -> Mistakes:
    """What does not go together."""
    if traces.endpoint and not traces.endpoint.startswith(("http://", "https://")):
        yield (
            "traces.endpoint must be a URL of a collector that takes OTLP over HTTP, such as "
            "http://127.0.0.1:4318/v1/traces."
        )
    if traces.share and not traces.endpoint:
        yield (
            f"traces.share is {traces.share:g}, and traces.endpoint is not set: spans would go nowhere. "
            "Set both, or neither."
        )
