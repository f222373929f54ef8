"""Check of WebSocket frames against the AsyncAPI document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import jsonschema_rs

from greendot.http.asyncapi import document
from greendot.testing import WireClient

Frame = dict[str, Any]
DOCUMENT = document()
MESSAGES = DOCUMENT["components"]["messages"]
MOST = 200  # checked frames per type: some tests send very many


def is_command(frame: Frame) -> bool:
    """Return whether the document has the frame as a command of clients."""
    return frame["type"] in MESSAGES and _validator(frame["type"]).is_valid(frame)


def said(frame: Frame) -> None:
    """Raise AssertionError if the frame is not a valid command of its type."""
    assert [error.message for error in _validator(frame["type"]).iter_errors(frame)] == [], frame


def heard(frame: Frame, command: str | None = None) -> str:
    """Return the document's name for a frame of the server.

    Raise AssertionError if the document does not have the frame or one of its fields. `command` is the type of the
    command that a reply answers.
    """
    name = _name(frame, command)
    assert name in MESSAGES, frame
    assert [error.message for error in _validator(name).iter_errors(frame)] == [], frame
    payload = _resolved(MESSAGES[name]["payload"])
    assert frame.keys() <= payload["properties"].keys(), frame
    if "data" in payload["properties"]:
        assert frame["data"].keys() <= _resolved(payload["properties"]["data"])["properties"].keys(), frame
    return name


@contextmanager
def listening() -> Iterator[None]:
    """Check all frames that WireClients receive in this block against the document."""
    told, say = WireClient._next, WireClient.send
    looked_at: Counter[str] = Counter()

    def send(self: WireClient, **command: Any) -> None:
        asked = vars(self).setdefault("asked", {})
        if command.get("type") == "hello" and "key" in command:
            vars(self)["asked"] = None  # the dashboard's socket has other frames
        elif asked is not None and isinstance(command.get("id"), str | int):
            asked[command["id"]] = command.get("type")
        say(self, **command)

    async def receive(self: WireClient) -> Frame:
        frame = await told(self)
        asked = vars(self).get("asked")
        kind = str(frame.get("type"))
        if asked is None or (kind == "reply" and frame.get("id") not in asked):
            return frame  # a dashboard frame, or the reply to a command sent as bytes
        command = asked.pop(frame["id"]) if kind == "reply" else None
        if looked_at[command or kind] < MOST:
            looked_at[command or kind] += 1
            heard(frame, command)
        return frame

    WireClient._next, WireClient.send = receive, send  # type: ignore[method-assign]
    try:
        yield
    finally:
        WireClient._next, WireClient.send = told, say  # type: ignore[method-assign]


def _name(frame: Frame, command: str | None) -> str:
    if frame["type"] == "reply":
        answers = DOCUMENT["operations"][command]["reply"]["messages"] if command else []
        names = [answer["$ref"].rpartition("/")[2] for answer in answers]
        return next((name for name in names if MESSAGES[name]["name"] == "reply"), "Reply")
    version = frame.get("v", 1)
    return str(frame["type"]) if version == 1 else f"{frame['type']}.v{version}"


def _resolved(schema: Frame) -> Frame:
    name = schema.get("$ref", "").rpartition("/")[2]
    found: Frame = DOCUMENT["components"]["schemas"][name] if name else schema
    return found


@cache
def _validator(name: str) -> jsonschema_rs.Validator:
    # AsyncAPI: a payload without a schema format is JSON Schema draft 7.
    return jsonschema_rs.Draft7Validator(MESSAGES[name]["payload"] | {"components": DOCUMENT["components"]})
