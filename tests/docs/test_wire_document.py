"""Validity of the AsyncAPI document, and its agreement with docs/protocol.md."""

from __future__ import annotations

import copy
import json
import re

import jsonschema_rs
import msgspec

from clients.javascript import CLIENTS, installed
from docs.test_documents import DOCS, table, words
from greendot import __version__
from greendot.protocol.commands import COMMANDS
from greendot.protocol.replies import REPLIES, Reply
from wire_described import DOCUMENT, heard, said

META = CLIENTS / "node_modules" / "@asyncapi" / "specs" / "schemas" / "3.0.0.json"


def test_it_is_a_valid_asyncapi_document_of_this_version() -> None:
    installed()
    meta = jsonschema_rs.Draft7Validator(json.loads(META.read_text()))
    assert [error.message for error in meta.iter_errors(DOCUMENT)] == []
    assert DOCUMENT["info"]["version"] == __version__
    wrong = copy.deepcopy(DOCUMENT)
    wrong["operations"]["watch"]["action"] = "publish"  # as version 2 had it
    assert not meta.is_valid(wrong)


def test_what_a_command_is_answered_with_is_the_same_on_the_page_and_in_the_code() -> None:
    rows = table("protocol.md", "## Commands")
    for name, kind in COMMANDS.items():
        if name in ("hello", "heartbeat"):  # answered with an event
            continue
        fields = [field.encode_name for field in msgspec.structs.fields(REPLIES.get(kind, Reply))]
        assert words(rows[name][1]) == fields, name


def test_the_examples_of_the_page_fit() -> None:
    text = (DOCS / "protocol.md").read_text()
    frames = [
        json.loads(found.replace("{…}", "{}"))
        for found in re.findall(r"^```json\n(.*?)```", text, re.DOTALL | re.MULTILINE)
        + re.findall(r'`(\{"type"[^`]+\})`', text)
    ]
    assert {frame["type"] for frame in frames} == {"watch", "reply", "error", "presence.changed", "hello"}
    for frame in frames:
        if frame["type"] in COMMANDS:
            said(frame)
        elif frame.get("data") != {}:  # which is where the page leaves out what is in it
            heard(frame)
