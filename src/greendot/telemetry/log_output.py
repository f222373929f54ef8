"""What a server logs, and how: lines for people on a terminal, JSON otherwise; ids as the settings want them."""

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
    """To standard error. With a key, ids in log lines are hashes made with it."""
    handler = LogHandler(sys.stderr, Repeats(log.repeat_s))
    is_text = log.format == "text" or (log.format == "auto" and sys.stderr.isatty())
    handler.setFormatter(Rendered(is_text=is_text, colors=sys.stderr.isatty()))
    if hash_ids_with is not None:
        handler.addFilter(HashedIds(hash_ids_with))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("urllib3").setLevel(logging.ERROR)  # it sends spans; whether they come through is not our affair
    logging.getLogger("asyncpg").setLevel(logging.ERROR)  # that the store is away is told once, by us
    atexit.register(handler.sum_up, all=True)
    os.register_at_fork(after_in_child=handler.forget)  # what the parent has counted, the parent tells


class LogHandler(logging.StreamHandler[IO[str]]):
    """Writes what is new, and sums up what came again."""

    def __init__(self, stream: IO[str], repeats: Repeats, now: Callable[[], float] = monotonic) -> None:
        super().__init__(stream)
        self._repeats = repeats
        self._now = now
        self._loop: asyncio.AbstractEventLoop | None = None  # on which the next summing up waits

    def emit(self, record: logging.LogRecord) -> None:
        if self._repeats.is_first(record, self._now()):
            super().emit(record)
        self._sum_up_later()

    def sum_up(self, *, all: bool = False) -> None:
        """Where the time has come."""
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
        """A timer of the loop this is said on. What is said in a thread waits for the next line, or for the end."""
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
    record.created = time()  # else it would stand behind lines that are younger
    record.msecs = record.created % 1 * 1000 // 1
    record.repeated, record.over_s = summed.times, round(summed.over_s, 1)
    return record


class HashedIds(logging.Filter):
    """Puts hashes in the place of ids. It lets every line through."""

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
    """A line of JSON, or one for people."""

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
    from structlog.dev import ConsoleRenderer  # here: it takes a while to load, and a service writes JSON

    renderer = ConsoleRenderer(colors=colors)
    return lambda line: str(renderer(None, "", line))


def _as_fields(record: logging.LogRecord) -> LogFields:
    """One flat object: what every line has first, then the event's own fields, and the sentence at the end."""
    event = event_of(record)
    line = {"time": _time(record), "level": record.levelname.lower(), "event": (event or LIBRARY_SAID).name}
    line |= _around(record) | {field: _plain(value) for field, value in fields_of(record).items() if value is not None}
    if event is None:
        line["logger"] = record.name
    line["text"] = record.getMessage()
    return line | _rest(record)


def _as_sentence(record: logging.LogRecord) -> LogFields:
    """The sentence with the event's name, and what is not in the sentence."""
    event = event_of(record)
    said = "" if event is None else event.text
    beside = {f: _plain(v) for f, v in fields_of(record).items() if v is not None and f"%({f})" not in said}
    name = record.name if event is None else event.name
    line = {"timestamp": _time(record), "level": record.levelname.lower(), "logger": name}
    line["event"] = record.getMessage()
    return line | _around(record) | beside | _rest(record)


def _around(record: logging.LogRecord) -> LogFields:
    """Whose node it is on, and in the course of what."""
    trace = None if hasattr(record, "repeated") else current()  # many are of many
    found = {"node": node(), "trace": None if trace is None else trace.trace_id}
    return {name: value for name, value in found.items() if value}


def _rest(record: logging.LogRecord) -> LogFields:
    found = {name: getattr(record, name, None) for name in ("repeated", "over_s")}
    return {name: value for name, value in (found | {"exc_info": record.exc_info}).items() if value is not None}


def _time(record: logging.LogRecord) -> str:
    return f"{strftime('%Y-%m-%dT%H:%M:%S', gmtime(record.created))}.{record.msecs:03.0f}Z"


def _plain(value: object) -> object:
    return value if isinstance(value, str | int | float | bool) else str(value)
