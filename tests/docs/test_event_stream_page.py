"""Section on event streams of docs/protocol.md: its example is sent, and its figures are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

from greendot.app.http import document
from greendot.connect.http import MAX_POST, MOST_COMMANDS
from greendot.testing import serving
from greendot.testing.event_stream import EventStreamClient
from greendot.transport.event_stream_model import MAX_PADDING

DOCS = Path(__file__).parents[2] / "docs"
SECTION = (DOCS / "protocol.md").read_text().partition("## Event streams\n")[2].partition("\n## ")[0]


async def test_the_example_opens_a_session() -> None:
    first, body = re.findall(r"^```\n(.*?)```", SECTION, re.DOTALL | re.MULTILINE)
    assert first.startswith('event: stream\ndata: {"stream":')
    async with serving() as served, await EventStreamClient.connect(served.port) as client:
        assert await client.post(body.replace("…", served.token("ann")).encode()) == 202
        assert (await client.receive("welcome"))["data"]["user"] == "ann"
        assert re.match(r'event: stream\ndata: {"stream":"[^"]+"}', first)


def test_the_answers_are_those_of_the_openapi_document() -> None:
    shown = {*re.findall(r"^\| (\d+) \|", SECTION, re.MULTILINE)}
    known = document()["paths"]["/v1/events/{stream}"]["post"]["responses"].keys()
    assert shown == known - {"408", "431"}  # any request may get these


def test_the_figures_are_those_of_the_code() -> None:
    assert f"up to {MOST_COMMANDS} commands" in SECTION
    assert f"at most {MAX_POST // 1024} KiB" in SECTION
    assert f"at most\n{MAX_PADDING:,}" in SECTION
