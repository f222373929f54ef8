"""Spans: durations of the parts of a trace, for a collector. Nothing is recorded until `record_with`.

A trace that arrives as sampled is recorded completely. Of work that arrives without a trace, a share is recorded. Work
that is not sampled costs only the sampling decision. Work without a trace costs next to nothing: on the path of
commands, two checks for a trace.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Token
from random import random
from typing import Protocol, Self, TypeVar

from greendot import __version__
from greendot.config import Traces
from greendot.telemetry.traceparent import SAMPLED, Trace, current, enter, leave, read

T = TypeVar("T")
ROOT = Trace("", "", SAMPLED)  # parent of a trace that begins on this node


class Recorded(Protocol):
    """Span in progress."""

    @property
    def trace(self) -> Trace:
        """Return the trace context for work within the span."""
        ...

    def failed(self, error: BaseException) -> None: ...
    def end(self) -> None: ...


class Recorder(Protocol):
    """Recorder of spans."""

    share: float  # share of work without a trace that is sampled, from 0 to 1

    def begin(self, name: str, parent: Trace, fields: Mapping[str, object]) -> Recorded: ...


_recorder: Recorder | None = None
sampling = False  # this node begins traces of its own


def record_with(recorder: Recorder | None) -> None:
    """Set the recorder of this process. None: nothing is recorded."""
    global _recorder, sampling
    _recorder, sampling = recorder, recorder is not None and recorder.share > 0


def began(traceparent: object = None) -> Trace | None:
    """Return the trace of new work: the given trace, or by chance a new one, or None (the usual case)."""
    found = None if traceparent is None else read(traceparent)
    if found is None and _recorder is not None and random() < _recorder.share:
        return ROOT
    return found


def parent() -> str | None:
    """Return the `traceparent` for messages about the current work; None without a trace."""
    trace = current()
    return None if trace is None else trace.parent


class Course:
    """Work under a trace, with its span if the trace is recorded. `on_done` is called once with the outcome."""

    __slots__ = ("_before", "_goes_on", "_on_done", "_outcome", "_recorded", "trace")

    def __init__(
        self, name: str, trace: Trace, fields: Mapping[str, object], on_done: Callable[[str], None] | None = None
    ) -> None:
        self._recorded = _recorder.begin(name, trace, fields) if _recorder is not None and trace.is_sampled else None
        self.trace = trace if self._recorded is None else self._recorded.trace
        self._on_done = on_done
        self._outcome = "done"
        self._goes_on = False
        self._before: Token[Trace | None] | None = None

    def enter(self) -> Self:
        """Make the trace current until `leave`."""
        self._before = enter(self.trace)
        return self

    def leave(self) -> None:
        """Restore the previous trace, and end the span unless awaited work continues (`through`)."""
        if not self._goes_on:
            self._end()
        if self._before is not None:
            leave(self._before)

    def failed(self, error: BaseException) -> None:
        self._outcome = str(getattr(error, "code", type(error).__name__))
        if self._recorded is not None:
            self._recorded.failed(error)

    async def _through(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except BaseException as error:
            self.failed(error)
            raise
        finally:
            self._end()

    def through(self, work: Awaitable[T]) -> Awaitable[T]:
        """Return `work`, wrapped so that the span ends when the work is done."""
        self._goes_on = True
        return self._through(work)

    def _end(self) -> None:
        if self._recorded is not None:
            self._recorded.end()
        if self._on_done is not None:
            self._on_done(self._outcome)


@contextmanager
def span(name: str, trace: Trace | None = None, /, **fields: object) -> Iterator[None]:
    """Record the block as a span of `trace`, or of the current trace."""
    trace = current() if trace is None else trace
    if trace is None:
        yield
        return
    course = Course(name, trace, fields).enter()
    try:
        yield
    except BaseException as error:
        course.failed(error)
        raise
    finally:
        course.leave()


@contextmanager
def recording(traces: Traces) -> Iterator[None]:
    """Record spans within the block, if an endpoint is set. Raise ConfigError if OpenTelemetry is not installed."""
    if not traces.endpoint:
        yield
        return
    from greendot.telemetry.otel import OtelRecorder  # an extra, and slow to import

    recorder = OtelRecorder(traces.endpoint, traces.service, traces.share, **{"service.version": __version__})
    record_with(recorder)
    try:
        yield
    finally:
        record_with(None)
        recorder.close()
