"""AsyncAPI document: valid, and equal to the code for every command, event, reply and code."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from greendot.errors import Refused
from greendot.http.asyncapi import RULES, document, event_name
from greendot.protocol import commands
from greendot.protocol.codec import decode_command, encode_error
from greendot.protocol.codes import CLOSED, REFUSED, RETRYABLE, Close, Err, invites_return
from greendot.protocol.commands import COMMANDS
from greendot.protocol.events import EVENTS
from greendot.protocol.replies import REPLIES
from greendot.protocol.versions import VERSIONS
from undescribed import undescribed
from wire_described import DOCUMENT, heard, is_command

CHANNEL = DOCUMENT["channels"]["connect"]


def tagged(tag: str) -> set[str]:
    return {name for name, one in DOCUMENT["components"]["messages"].items() if one["tags"] == [{"name": tag}]}


def test_every_reference_leads_somewhere() -> None:
    for path in re.findall(r'"\$ref": "#/([^"]+)"', json.dumps(DOCUMENT)):
        found: Any = DOCUMENT
        for part in path.split("/"):
            found = found[part]


def test_it_has_every_command_event_and_version_and_no_other() -> None:
    assert tagged("command") == COMMANDS.keys()
    versions = {f"{kind}.v{v}" if v > 1 else kind for kind, found in VERSIONS.items() for v in found}
    assert tagged("event") == versions >= {event_name(kind) for kind in EVENTS.values()}
    assert tagged("reply") == {"Reply", *(kind.__name__ for kind in REPLIES.values())}
    assert CHANNEL["messages"].keys() == DOCUMENT["components"]["messages"].keys()
    assert DOCUMENT["operations"].keys() == COMMANDS.keys() | {f"send.{name}" for name in versions}


def test_it_has_every_code() -> None:
    assert CLOSED.keys() == {*Close}
    assert {one["code"]: one["come_back"] for one in CHANNEL["x-close-codes"]} == {
        int(code): invites_return(code) for code in Close
    }
    assert REFUSED.keys() == {*Err}
    assert DOCUMENT["components"]["schemas"]["Error"]["properties"]["code"]["enum"] == [str(code) for code in Err]


def test_every_message_has_a_summary_of_one_sentence() -> None:
    for name, one in DOCUMENT["components"]["messages"].items():
        assert 5 < len(one["summary"]) < 140, name
        assert re.search(r"[.`]$", one["summary"]), name


def test_every_message_schema_and_field_has_a_description() -> None:
    assert undescribed(DOCUMENT) == []


def test_a_field_without_a_description_is_found() -> None:
    silent = document()
    del silent["components"]["schemas"]["Watch"]["properties"]["users"]["description"]
    del silent["components"]["schemas"]["Limits"]["description"]
    del silent["components"]["messages"]["watch"]["summary"]
    assert undescribed(silent) == ["Limits", "Watch.users", "Welcome.limits", "message watch"]


@pytest.mark.parametrize("code", Err)
@pytest.mark.parametrize("number", [None, 7, "x"])
def test_errors_are_as_the_codec_makes_them(code: Err, number: str | int | None) -> None:
    for wait in (None, 100):
        frame = encode_error(Refused(code, "why", retry_in_ms=wait), number)
        said = json.loads(frame[2:])
        heard(said)
        assert said["retry"] == (code in RETRYABLE)


# --- the schema and the code accept and refuse the same frames ---

WRONG = [
    {"type": "watch"},
    {"type": "watch", "users": []},
    {"type": "watch", "users": ["a b"]},
    {"type": "watch", "users": ["a\n"]},
    {"type": "typing.start", "room": ""},
    {"type": "room.send", "room": "r"},
    {"type": "room.read", "room": "r", "seq": -1},
    {"type": "room.history", "room": "r", "limit": 301},
    {"type": "status.set", "status": "away"},
    {"type": "status.set", "text": "x" * 201},
    {"type": "hello", "supports": {"signal": [0]}},
    {"type": "hello", "resume": {"rooms": {"r": "17"}}},
    {"type": "device.register", "provider": "pigeon", "token": "t"},
    {"type": "room.list", "id": 1.5},
    {"type": "room.list", "trace": "x" * 129},
]


@pytest.mark.parametrize("frame", WRONG, ids=str)
def test_what_the_code_refuses_does_not_fit(frame: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        decode_command(json.dumps(frame))
    assert not is_command(frame)


@pytest.mark.parametrize(
    "frame", [{"type": "room.list", "id": 1, "new": 2}, {"type": "bye"}, {"type": "hello"}], ids=str
)
def test_what_the_code_takes_fits(frame: dict[str, Any]) -> None:
    decode_command(json.dumps(frame))
    assert is_command(frame)


def test_fields_that_exclude_each_other_are_in_the_schema() -> None:
    for body, fits in [({}, False), ({"room": "r"}, True), ({"user": "u"}, True), ({"room": "r", "user": "u"}, False)]:
        assert is_command({"type": "signal.send", "kind": "k"} | body) == fits
    for mark in ("seen", "read", "archive", "ack"):
        for body, fits in [
            ({}, False),
            ({"through": 1}, True),
            ({"ids": ["i"]}, True),
            ({"ids": ["i"], "through": 1}, False),
        ]:
            assert is_command({"type": f"inbox.{mark}"} | body) == fits
    assert is_command({"type": "room.history", "room": "r", "before": 3, "after": None})
    assert not is_command({"type": "room.history", "room": "r", "before": 3, "after": 1})
    assert RULES.keys() == {commands.SignalSend, commands.RoomHistory, *commands.MARKS}


def test_it_is_made_anew_each_time() -> None:
    """A caller may change the returned document."""
    document()["components"]["schemas"].clear()
    assert document() == DOCUMENT
