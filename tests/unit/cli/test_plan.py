"""`greendot plan` on the command line."""

from __future__ import annotations

import json
import re

import pytest

from cli.calls import call, complaint
from greendot.ops.capacity.constants import CONSTANTS


def test_figures_come_with_how_they_are_counted() -> None:
    said = call("plan", "--users", "1000000").output
    assert "1,000,000 users, 10% of them online with 1.2 devices each: 120,000 connections." in said
    assert re.search(r"^nodes: processes of one core +8 \*  ", said, re.MULTILINE)
    assert "users × online × devices ÷ nodes" in said
    assert max(len(line) for line in said.splitlines()) < 200


def test_programs_get_all_of_it() -> None:
    told = json.loads(call("plan", "--users", "5000000", "--online", "0.02", "--messages", "900/s", "--json").output)
    assert (told["given"]["online"], told["given"]["messages_per_s"]) == (0.02, 900.0)
    assert told["nodes"] == 8
    assert {"part", "what", "value", "unit", "formula", "measured"} == told["figures"][0].keys()
    assert told["constants"]["connection"] == {
        "value": CONSTANTS["connection"].value,
        "unit": "KB",
        "source": "bench/RESULTS.md, Targets: memory per idle connection at 15,000",
    }
    assert told["limits"]


def test_messages_may_be_given_by_day_or_by_second() -> None:
    by_day = call("plan", "--messages", "86.4/day", "--peak", "1").output
    assert by_day == call("plan", "--messages", "86.4", "--peak", "1").output
    assert by_day == call("plan", "--messages", "1000/s", "--peak", "1").output


def test_what_is_counted_with_is_shown_with_its_source() -> None:
    said = call("plan", "--constants").output
    assert len(said.splitlines()) == len(CONSTANTS) + 1
    figure = f"{CONSTANTS['connects'].value:,.0f} /s of a core"
    assert f"{figure:<32}bench/RESULTS.md, Targets: connects/s, hello and JWT included" in said


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--online", "200%"), "Write 10% or 0.1"),
        (("--online", "0"), "Write 10% or 0.1"),
        (("--online", "many"), "Write 10% or 0.1"),
        (("--messages", "many"), "Write 20/day (of each user) or 500/s (of all users)"),
        (("--messages", "-1"), "Write 20/day"),
        (("--messages", "nan"), "Write 20/day"),
        (("--users", "0"), "--users"),
        (("--devices", "0.5"), "--devices"),
        (("--peak", "0"), "--peak"),
    ],
)
def test_what_cannot_be_is_refused(flags: tuple[str, ...], words: str) -> None:
    assert words in complaint("plan", *flags)
