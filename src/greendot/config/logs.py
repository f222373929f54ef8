"""How a server tells what happens in it: lines of the log, and spans."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from greendot.config.fields import Mistakes, about


class Log(Struct, frozen=True, forbid_unknown_fields=True):
    """What lines look like, and which are left out."""

    format: Annotated[Literal["auto", "json", "text"], about("auto: text on a terminal, else JSON")] = "auto"
    repeat_s: Annotated[float, Meta(ge=0, le=86_400), about("what comes again within it is summed up; 0: never")] = 60.0


class Traces(Struct, frozen=True, forbid_unknown_fields=True):
    """Where spans go."""

    endpoint: Annotated[
        str, about("of a collector that takes OTLP over HTTP, as http://HOST:4318/v1/traces; empty: no spans")
    ] = ""
    share: Annotated[float, Meta(ge=0, le=1), about("of what comes without a trace that gets one")] = 0.0
    service: Annotated[str, Meta(min_length=1, max_length=200), about("the name spans are found by")] = "greendot"


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
