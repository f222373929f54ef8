"""Spans: how long the parts of something took, for whoever collects them. Nothing is recorded until `record_with`.

Of a trace that came from outside as sampled everything is recorded. Of what came with none, a share is. What is not
sampled costs what asking for it costs, and what is in no trace next to nothing: on the way of commands, two looks at
whether there is one.
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
ROOT = Trace("", "", SAMPLED)  # the parent of a trace that begins here


class Recorded(Protocol):
    """A span that goes on."""

    @property
    def trace(self) -> Trace:
        """As the parent of what is done within it."""
        ...

    def failed(self, error: BaseException) -> None: ...
    def end(self) -> None: ...


class Recorder(Protocol):
    """Who keeps spans."""

    share: float  # of what comes without a trace, from 0 to 1

    def begin(self, name: str, parent: Trace, fields: Mapping[str, object]) -> Recorded: ...


_recorder: Recorder | None = None
sampling = False  # whether traces begin here by themselves


def record_with(recorder: Recorder | None) -> None:
    """Of this process. None: nothing is recorded."""
    global _recorder, sampling
    _recorder, sampling = recorder, recorder is not None and recorder.share > 0


def began(traceparent: object = None) -> Trace | None:
    """What is done from here on is in the course of: the trace that was given, or a new one, by chance; mostly none."""
    found = None if traceparent is None else read(traceparent)
    if found is None and _recorder is not None and random() < _recorder.share:
        return ROOT
    return found


def parent() -> str | None:
    """As `traceparent` for whoever is told of this."""
    trace = current()
    return None if trace is None else trace.parent


class Course:
    """Something in the course of a trace, with its span if that is recorded. `told` hears once what became of it."""

    __slots__ = ("_before", "_goes_on", "_on_done", "_outcome", "_recorded", "trace")

    def __init__(
        self, name: str, trace: Trace, fields: Mapping[str, object], told: Callable[[str], None] | None = None
    ) -> None:
        self._recorded = _recorder.begin(name, trace, fields) if _recorder is not None and trace.is_sampled else None
        self.trace = trace if self._recorded is None else self._recorded.trace
        self._on_done = told
        self._outcome = "done"
        self._goes_on = False
        self._before: Token[Trace | None] | None = None

    def enter(self) -> Self:
        """What is done from here on, until `leave`, is in the course of it."""
        self._before = enter(self.trace)
        return self

    def leave(self) -> None:
        """It is over, unless work goes on that it was told of."""
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
        """The same work: it is over when that is done."""
        self._goes_on = True
        return self._through(work)

    def _end(self) -> None:
        if self._recorded is not None:
            self._recorded.end()
        if self._on_done is not None:
            self._on_done(self._outcome)


@contextmanager
def span(name: str, trace: Trace | None = None, /, **fields: object) -> Iterator[None]:
    """What is done within is a part of the trace, or of the one that this is done in the course of."""
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
    """Within it spans are recorded, if they are to go anywhere. ConfigError if what sends them is not installed."""
    if not traces.endpoint:
        yield
        return
    from greendot.telemetry.otel import OtelRecorder  # an extra, and a while to import

    recorder = OtelRecorder(traces.endpoint, traces.service, traces.share, **{"service.version": __version__})
    record_with(recorder)
    try:
        yield
    finally:
        record_with(None)
        recorder.close()
