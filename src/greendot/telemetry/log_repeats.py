"""What happens again and again is said once, then counted and summed up. Pure: the time is an argument.

Of what is at level `debug` everything is logged: whoever asks for it wants each. The table is bounded: where it is
full, what is new of an event is counted with all else of that event.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from time import monotonic
from typing import NamedTuple

from greendot.telemetry.log import LogEvent, event_of, fields_of, log

MOST = 256  # told apart at once


class Summed(NamedTuple):
    """What was not logged within a window."""

    record: logging.LogRecord  # the last of them
    times: int
    over_s: float


class _Window:
    __slots__ = ("began", "last", "times")

    def __init__(self, began: float) -> None:
        self.began = began
        self.times = 0  # since then, that were not logged
        self.last: logging.LogRecord | None = None


class Repeats:
    """With a window of 0 seconds everything is logged."""

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self._windows: dict[tuple[Hashable, ...], _Window] = {}

    def __bool__(self) -> bool:
        """Whether some window is open, and `over` is to be asked again."""
        return bool(self._windows)

    def is_first(self, record: logging.LogRecord, now: float) -> bool:
        """Whether it is to be logged. If not, it is counted."""
        event = event_of(record)
        if record.levelno <= logging.DEBUG or not self.window_s or (event is not None and event.every):
            return True
        key = self._key(event, record)
        window = self._windows.get(key)
        if window is None or (not window.times and now - window.began >= self.window_s):
            self._windows[key] = _Window(now)
            return True
        window.times += 1
        record.exc_info = None  # it would keep alive whatever the frames of it hold
        window.last = record
        return False

    def forget(self) -> None:
        self._windows.clear()

    def over(self, now: float, *, all: bool = False) -> list[Summed]:
        """Of windows that are over. One in which nothing came again is forgotten, any other is followed by the next."""
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
        if event is None:  # a library's: what it says without what it says it of
            name, apart = record.name, [str(record.msg)]
        else:
            fields = fields_of(record)
            name, apart = event.name, [str(fields.get(field)) for field in event.apart]
        key = (name, *apart, *_where(record))
        return key if key in self._windows or len(self._windows) < MOST else (name,)


def _where(record: logging.LogRecord) -> tuple[Hashable, ...]:
    """Of a failure, what it is and where it was raised: one that comes again and again must not hide another."""
    if not record.exc_info or record.exc_info[1] is None:
        return ()
    _, error, trace = record.exc_info
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return type(error).__name__, *(() if trace is None else (trace.tb_frame.f_code.co_filename, trace.tb_lineno))


class Outage:
    """Of one thing, which `fields` name."""

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
        """It answers, as ever or again."""
        if self._since is not None:
            away_s, self._since = self._now() - self._since, None
            log(self._back, away_s=round(away_s, 3), **self._fields)
