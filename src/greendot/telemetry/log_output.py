"""Log output of a server: text on a terminal, JSON otherwise; ids as configured."""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import os
import sys
from collections.abc import Callable
from time import gmtime, monotonic, strftime, time
from typing import IO, Any

from greendot.config import Log
from greendot.ids import hashed
from greendot.telemetry.log import event_of, fields_of, is_id, node
from greendot.telemetry.log_events import LIBRARY_SAID
from greendot.telemetry.log_repeats import Repeats, Summed
from greendot.telemetry.traceparent import current

LogFields = dict[str, Any]


def set_up_logging(level: str, log: Log, hash_ids_with: bytes | None) -> None:
    """Log to standard error. With a key, ids in log lines are replaced by hashes made with it."""
    handler = LogHandler(sys.stderr, Repeats(log.repeat_s))
    is_text = log.format == "text" or (log.format == "auto" and sys.stderr.isatty())
    handler.setFormatter(Rendered(is_text=is_text, colors=sys.stderr.isatty()))
    if hash_ids_with is not None:
        handler.addFilter(HashedIds(hash_ids_with))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("urllib3").setLevel(logging.ERROR)  # used to send spans; its delivery problems are not logged
    logging.getLogger("asyncpg").setLevel(logging.ERROR)  # Greendot itself logs once that the store is away
    atexit.register(handler.sum_up, all=True)
    os.register_at_fork(after_in_child=handler.forget)  # the parent logs the repeats that it counted


class LogHandler(logging.StreamHandler[IO[str]]):
    """Handler that writes new lines and sums up repeated ones."""

    def __init__(self, stream: IO[str], repeats: Repeats, now: Callable[[], float] = monotonic) -> None:
        super().__init__(stream)
        self._repeats = repeats
        self._now = now
        self._loop: asyncio.AbstractEventLoop | None = None  # loop with the timer of the next summary

    def emit(self, record: logging.LogRecord) -> None:
        if self._repeats.is_first(record, self._now()):
            super().emit(record)
        self._sum_up_later()

    def sum_up(self, *, all: bool = False) -> None:
        """Log summaries of windows that are over; with `all`, of every window."""
        self._loop = None
        self._log_sums(all=all)
        if not all:
            self._sum_up_later()

    def _log_sums(self, *, all: bool = False) -> None:
        for summed in self._repeats.over(self._now(), all=all):
            super().emit(_sum(summed))

    def forget(self) -> None:
        self._repeats.forget()
        self._loop = None

    def _sum_up_later(self) -> None:
        """Schedule the next summary on the running loop.

        Without a running loop, as in a thread, log due summaries at once. The rest wait for the next line, or for the
        end of the process.
        """
        if not self._repeats or (self._loop is not None and not self._loop.is_closed()):
            return
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            self._log_sums()
            return
        self._loop.call_later(self._repeats.window_s, self.sum_up)


def _sum(summed: Summed) -> logging.LogRecord:
    record = summed.record
    record.created = time()  # without it, the summary would have an older time than the lines before it
    record.msecs = record.created % 1 * 1000 // 1
    record.repeated, record.over_s = summed.times, round(summed.over_s, 1)
    return record


class HashedIds(logging.Filter):
    """Filter that replaces ids by hashes. Every line passes."""

    def __init__(self, key: bytes) -> None:
        super().__init__()
        self._key = key

    def filter(self, record: logging.LogRecord) -> bool:
        if fields := fields_of(record):
            record.args = {field: self._shown(field, value) for field, value in fields.items()}
        return True

    def _shown(self, field: str, value: object) -> object:
        return f"#{hashed(self._key, str(value))}" if is_id(field, value) else value


class Rendered(logging.Formatter):
    """Formatter of lines: JSON, or text for people."""

    def __init__(self, *, is_text: bool, colors: bool = False) -> None:
        super().__init__()
        self._line = _as_sentence if is_text else _as_fields
        self._render: Callable[[LogFields], str] = _for_people(colors=colors) if is_text else json.dumps

    def format(self, record: logging.LogRecord) -> str:
        line = self._line(record)
        if (exc_info := line.pop("exc_info", None)) and exc_info[0] is not None:
            line["exception"] = self.formatException(exc_info)
        return self._render(line)


def _for_people(*, colors: bool) -> Callable[[LogFields], str]:
    from structlog.dev import ConsoleRenderer  # imported here: it is slow to load, and a service writes JSON

    renderer = ConsoleRenderer(colors=colors)
    return lambda line: str(renderer(None, "", line))


def _as_fields(record: logging.LogRecord) -> LogFields:
    """Return one flat object: common fields, then the fields of the event, then the sentence."""
    event = event_of(record)
    line = {"time": _time(record), "level": record.levelname.lower(), "event": (event or LIBRARY_SAID).name}
    line |= _around(record) | {field: _plain(value) for field, value in fields_of(record).items() if value is not None}
    if event is None:
        line["logger"] = record.name
    line["text"] = record.getMessage()
    return line | _rest(record)


def _as_sentence(record: logging.LogRecord) -> LogFields:
    """Return the sentence with the name of the event, and the fields that the sentence does not contain."""
    event = event_of(record)
    said = "" if event is None else event.text
    beside = {f: _plain(v) for f, v in fields_of(record).items() if v is not None and f"%({f})" not in said}
    name = record.name if event is None else event.name
    line = {"timestamp": _time(record), "level": record.levelname.lower(), "logger": name}
    line["event"] = record.getMessage()
    return line | _around(record) | beside | _rest(record)


def _around(record: logging.LogRecord) -> LogFields:
    """Return the node and the trace of a line."""
    trace = None if hasattr(record, "repeated") else current()  # a summary covers many traces
    found = {"node": node(), "trace": None if trace is None else trace.trace_id}
    return {name: value for name, value in found.items() if value}


def _rest(record: logging.LogRecord) -> LogFields:
    found = {name: getattr(record, name, None) for name in ("repeated", "over_s")}
    return {name: value for name, value in (found | {"exc_info": record.exc_info}).items() if value is not None}


def _time(record: logging.LogRecord) -> str:
    return f"{strftime('%Y-%m-%dT%H:%M:%S', gmtime(record.created))}.{record.msecs:03.0f}Z"


def _plain(value: object) -> object:
    return value if isinstance(value, str | int | float | bool) else str(value)
