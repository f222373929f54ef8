"""The header and field `traceparent` (https://www.w3.org/TR/trace-context/), and the trace things are done under.

What is malformed is ignored, never an error: a trace helps to understand, and nobody depends on it.
"""

from __future__ import annotations

import re
from contextvars import ContextVar, Token
from typing import NamedTuple

TRACEPARENT = "traceparent"  # the header
SAMPLED = 1  # the flag that says: whoever began it records it

_match = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?\Z").match


class Trace(NamedTuple):
    """A trace, and the span in it that led here."""

    trace_id: str  # 32 hexadecimal digits
    span_id: str  # 16
    flags: int = 0

    @property
    def is_sampled(self) -> bool:
        return bool(self.flags & SAMPLED)

    @property
    def parent(self) -> str:
        """As `traceparent` for whoever is called from here."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags & SAMPLED:02x}"


def read(text: object) -> Trace | None:
    """None for what is no `traceparent`. One of a later version is read as far as this one goes."""
    found = _match(text) if isinstance(text, str) and len(text) <= 128 else None
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == "ff" or (version == "00" and more) or set(trace_id) == {"0"} or set(span_id) == {"0"}:
        return None
    return Trace(trace_id, span_id, int(flags, 16))


_current: ContextVar[Trace | None] = ContextVar("greendot_trace", default=None)


def current() -> Trace | None:
    """What the code that asks is done in the course of."""
    return _current.get()


def enter(trace: Trace | None) -> Token[Trace | None]:
    """What is done from here on, and tasks that are begun, is in the course of it; until `leave`, if that is said."""
    return _current.set(trace)


def leave(before: Token[Trace | None]) -> None:
    _current.reset(before)
