"""Trace context: the header and field `traceparent` (https://www.w3.org/TR/trace-context/), and the current trace.

A malformed value is ignored and never an error: traces help to understand, and nothing depends on them.
"""

from __future__ import annotations

import re
from contextvars import ContextVar, Token
from typing import NamedTuple

TRACEPARENT = "traceparent"  # name of the header
SAMPLED = 1  # flag: the caller records the trace

_match = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?\Z").match


class Trace(NamedTuple):
    """Trace, with the span that led here."""

    trace_id: str  # 32 hexadecimal digits
    span_id: str  # 16 hexadecimal digits
    flags: int = 0

    @property
    def is_sampled(self) -> bool:
        return bool(self.flags & SAMPLED)

    @property
    def parent(self) -> str:
        """Return the `traceparent` for callees."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags & SAMPLED:02x}"


def read(text: object) -> Trace | None:
    """Parse a `traceparent`; return None if malformed. Fields of later versions are ignored."""
    found = _match(text) if isinstance(text, str) and len(text) <= 128 else None
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == "ff" or (version == "00" and more) or set(trace_id) == {"0"} or set(span_id) == {"0"}:
        return None
    return Trace(trace_id, span_id, int(flags, 16))


_current: ContextVar[Trace | None] = ContextVar("greendot_trace", default=None)


def current() -> Trace | None:
    """Return the trace of the running code."""
    return _current.get()


def enter(trace: Trace | None) -> Token[Trace | None]:
    """Make `trace` current for the following code and the tasks it starts, until an optional `leave`."""
    return _current.set(trace)


def leave(before: Token[Trace | None]) -> None:
    _current.reset(before)
