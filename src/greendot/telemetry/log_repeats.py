"""Repeats of log lines: the first is logged, the rest are counted and summed up. Pure: the time is an argument.

Lines at level `debug` are always logged, because a reader of `debug` wants each one. The table is bounded. When it is
full, a new line is counted together with the other lines of its event.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from time import monotonic
from typing import NamedTuple

from greendot.telemetry.log import LogEvent, event_of, fields_of, log

MOST = 256  # distinct lines at a time


class Summed(NamedTuple):
    """Summary of the lines that were not logged within a window."""

    record: logging.LogRecord  # last of the lines
    times: int
    over_s: float


class _Window:
    __slots__ = ("began", "last", "times")

    def __init__(self, began: float) -> None:
        self.began = began
        self.times = 0  # lines since then that were not logged
        self.last: logging.LogRecord | None = None


class Repeats:
    """Windows of repeated lines. With a window of 0 seconds every line is logged."""

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self._windows: dict[tuple[Hashable, ...], _Window] = {}

    def __bool__(self) -> bool:
        """Return whether a window is open, so that `over` must be called again."""
        return bool(self._windows)

    def is_first(self, record: logging.LogRecord, now: float) -> bool:
        """Return whether to log `record`; otherwise count it."""
        event = event_of(record)
        if record.levelno <= logging.DEBUG or not self.window_s or (event is not None and event.every):
            return True
        key = self._key(event, record)
        window = self._windows.get(key)
        if window is None or (not window.times and now - window.began >= self.window_s):
            self._windows[key] = _Window(now)
            return True
        window.times += 1
        record.exc_info = None  # a traceback would keep alive all objects of its frames
        window.last = record
        return False

    def forget(self) -> None:
        self._windows.clear()

    def over(self, now: float, *, all: bool = False) -> list[Summed]:
        """Return the summaries of windows that are over.

        A window without repeats is removed; any other is followed by a new window.
        """
        summed = []
        for key, window in [*self._windows.items()]:
            passed = now - window.began
            if passed < self.window_s and not all:
                continue
            if window.last is None:
                del self._windows[key]
            else:
                summed.append(Summed(window.last, window.times, passed))
                self._windows[key] = _Window(now)
        return summed

    def _key(self, event: LogEvent | None, record: logging.LogRecord) -> tuple[Hashable, ...]:
        if event is None:  # of a library: its message without the arguments
            name, apart = record.name, [str(record.msg)]
        else:
            fields = fields_of(record)
            name, apart = event.name, [str(fields.get(field)) for field in event.apart]
        key = (name, *apart, *_where(record))
        return key if key in self._windows or len(self._windows) < MOST else (name,)


def _where(record: logging.LogRecord) -> tuple[Hashable, ...]:
    """Return type and place of an error: a repeated failure must not hide a different one."""
    if not record.exc_info or record.exc_info[1] is None:
        return ()
    _, error, trace = record.exc_info
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return type(error).__name__, *(() if trace is None else (trace.tb_frame.f_code.co_filename, trace.tb_lineno))


class Outage:
    """Outage of one component, which `fields` name. Begin and end are logged once each."""

    def __init__(self, lost: LogEvent, back: LogEvent, now: Callable[[], float] = monotonic, **fields: object) -> None:
        self._lost = lost
        self._back = back
        self._now = now
        self._fields = fields
        self._since: float | None = None

    @property
    def is_away(self) -> bool:
        return self._since is not None

    def began(self, reason: object) -> None:
        if self._since is None:
            self._since = self._now()
            log(self._lost, reason=reason, **self._fields)

    def ended(self) -> None:
        """Log the end of an outage, if there was one."""
        if self._since is not None:
            away_s, self._since = self._now() - self._since, None
            log(self._back, away_s=round(away_s, 3), **self._fields)
