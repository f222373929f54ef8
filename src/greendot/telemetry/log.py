"""Log events for the handlers of Python's `logging`.

The name of an event is a contract: searches and alerts depend on it. Its sentence is for people and may change. The
other arguments of `log` are the fields of the event. A handler may hash ids of people and of their things
(`OF_PEOPLE`): put ids into fields and into no other text.
"""

from __future__ import annotations

import logging
from typing import Final

from greendot.ids import Id

DEBUG, INFO, WARNING, ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR
OF_PEOPLE: Final = frozenset(
    ("channel", "room", "session", "tenant", "user")
)  # fields that contain ids, whatever their type

_node = ""  # node of this process, by its incarnation; a process is one node


class LogEvent:
    """Log event: one kind of log line. `text` is a sentence with fields."""

    __slots__ = ("apart", "every", "level", "logger", "name", "text")

    def __init__(self, name: str, level: int, text: str, *, apart: tuple[str, ...] = (), every: bool = False) -> None:
        self.name = name
        self.level = level
        self.text = text
        self.apart = apart  # fields by which repeats of the event are distinguished
        self.every = every  # every repeat is logged
        self.logger = logging.getLogger(f"greendot.{name.partition('.')[0]}")

    @property
    def is_wanted(self) -> bool:
        """Return whether the event is logged: check it before computing costly fields."""
        return self.logger.isEnabledFor(self.level)


def log(event: LogEvent, error: BaseException | None = None, /, **fields: object) -> None:
    """Log `event` with its fields, and `error` with its traceback."""
    if event.logger.isEnabledFor(event.level):
        # `logging` accepts a single mapping for the names in the text.
        given = (fields,) if fields else ()
        event.logger.log(event.level, event.text, *given, exc_info=error, extra={"event": event})


def set_node(node: str) -> None:
    """Set the node name of all later log lines of this process."""
    global _node
    _node = node


def node() -> str:
    return _node


def event_of(record: logging.LogRecord) -> LogEvent | None:
    """Return the log event of a record; None for a record of a library."""
    found = getattr(record, "event", None)
    return found if isinstance(found, LogEvent) else None


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    return record.args if isinstance(record.args, dict) else {}


def is_id(field: str, value: object) -> bool:
    """Return whether a field may identify a person."""
    return isinstance(value, Id) or (field in OF_PEOPLE and value is not None)
