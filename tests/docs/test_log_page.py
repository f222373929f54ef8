"""docs/logs.md has each log event with its level and fields, and all log lines are such events."""

from __future__ import annotations

import ast
import functools
import logging
import re
from pathlib import Path

from greendot.telemetry import log_events
from greendot.telemetry.log import LogEvent

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "greendot"
PAGE = (ROOT / "docs" / "logs.md").read_text()
KNOWN = {name: event for name, event in vars(log_events).items() if isinstance(event, LogEvent)}
OF_A_SESSION = {"session", "user", "tenant"}  # fields of `node.session.named`
# Users of `logging` itself: the emitter and renderer of events, and client and integrations, which log within an app.
WITH_LOGGING = {
    "telemetry",
    "client",
    "integrations",
    "cli/_store.py",
    "transport/http2_client.py",
    "transport/http_client.py",
}


@functools.cache
def told() -> dict[str, set[str]]:
    """Return the events that the code logs, with all their fields."""
    found: dict[str, set[str]] = {}
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            for name in _events(node):
                fields = found.setdefault(name, set())
                for keyword in node.keywords if isinstance(node, ast.Call) else ():
                    fields |= OF_A_SESSION if keyword.arg is None else {keyword.arg}
    return found


def _events(node: ast.AST) -> list[str]:
    if not isinstance(node, ast.Call):
        return []
    plain = [argument for argument in node.args if isinstance(argument, ast.Name | ast.Attribute)]
    names = [ast.unparse(argument).removeprefix("log_events.") for argument in plain]
    return [name for name in names if name in KNOWN]


def rows() -> dict[str, tuple[str, set[str]]]:
    """Return the level and fields of each event on the page."""
    found = re.findall(r"^\| `([a-z_.]+)` \| (\w+) \| [^|]+ \| ([^|]*) \|$", PAGE, re.MULTILINE)
    return {name: (level, set(re.findall(r"`(\w+)`", fields))) for name, level, fields in found}


def test_the_page_has_every_event_with_its_level() -> None:
    levels = {event.name: logging.getLevelName(event.level).lower() for event in KNOWN.values()}
    levels["library.said"] = "any"
    assert {name: level for name, (level, _) in rows().items()} == levels


def test_every_log_event_has_a_unique_name_and_is_logged_somewhere() -> None:
    names = [event.name for event in KNOWN.values()]
    assert len({*names}) == len(names)
    assert all(re.fullmatch(r"[a-z]+\.[a-z_]+", name) for name in names)
    assert KNOWN.keys() - told().keys() == {"LIBRARY_SAID"} | WITHOUT_TELL


WITHOUT_TELL = {"JOB_ENDED", "JOB_FAILED"}  # logged through a variable that holds one of the two


def test_the_page_has_the_fields_of_the_logged_events() -> None:
    page = rows()
    for name, fields in told().items():
        event = KNOWN[name]
        given = fields - {"apart", "now"}
        assert given <= page[event.name][1], event.name


def test_sentences_have_no_fields_that_the_page_does_not_know() -> None:
    page = rows()
    for event in KNOWN.values():
        assert {*re.findall(r"%\((\w+)\)", event.text)} <= page[event.name][1], event.name


def test_only_listed_modules_use_logging() -> None:
    users = {
        str(path.relative_to(SOURCES)) for path in SOURCES.rglob("*.py") if re.search(r"\blogging\b", path.read_text())
    }
    strangers = {
        user for user in users if not any(user == place or user.startswith(f"{place}/") for place in WITH_LOGGING)
    }
    assert strangers == set(), "log an event of greendot.telemetry.log_events instead"
