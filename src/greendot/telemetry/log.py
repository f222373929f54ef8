"""Log events, for the handlers of Python's `logging`.

The name of an event is a promise: searches and alerts are written against it. Its sentence is for people and may
change. The other arguments of `log` are its fields. A handler may hash ids of people and of their things (`OF_PEOPLE`):
put them into fields and into no other text.
"""

from __future__ import annotations

import logging
from typing import Final

from greendot.ids import Id

DEBUG, INFO, WARNING, ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR
OF_PEOPLE: Final = frozenset(
    ("channel", "room", "session", "tenant", "user")
)  # fields that hold ids, whatever their type

_node = ""  # this process' node, by its incarnation; a process is one node


class LogEvent:
    """One kind of line. `text` is a sentence with fields in it."""

    __slots__ = ("apart", "every", "level", "logger", "name", "text")

    def __init__(self, name: str, level: int, text: str, *, apart: tuple[str, ...] = (), every: bool = False) -> None:
        self.name = name
        self.level = level
        self.text = text
        self.apart = apart  # fields by which repeats of it are told apart
        self.every = every  # repeats are logged too, however many there are
        self.logger = logging.getLogger(f"greendot.{name.partition('.')[0]}")

    @property
    def is_wanted(self) -> bool:
        """Whether anybody reads it: ask before fields are made that cost something."""
        return self.logger.isEnabledFor(self.level)


def log(event: LogEvent, error: BaseException | None = None, /, **fields: object) -> None:
    """It has happened. `error` is logged with its traceback."""
    if event.logger.isEnabledFor(event.level):
        # `logging` takes a single mapping for what the names in the text stand for.
        given = (fields,) if fields else ()
        event.logger.log(event.level, event.text, *given, exc_info=error, extra={"event": event})


def set_node(node: str) -> None:
    """The name under which this process' lines are from now on."""
    global _node
    _node = node


def node() -> str:
    return _node


def event_of(record: logging.LogRecord) -> LogEvent | None:
    """None if somebody else's library said it."""
    found = getattr(record, "event", None)
    return found if isinstance(found, LogEvent) else None


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    return record.args if isinstance(record.args, dict) else {}


def is_id(field: str, value: object) -> bool:
    """Whether it may say who somebody is."""
    return isinstance(value, Id) or (field in OF_PEOPLE and value is not None)
