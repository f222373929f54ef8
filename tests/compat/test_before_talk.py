"""What was said to the versions before is answered as it was, and what they stored is read."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from compat import talk
from compat.versions import FIXTURES, VERSIONS, written
from greendot.testing import serving

every_version = pytest.mark.parametrize("version", VERSIONS)


@every_version
async def test_a_client_of_then_reads_what_it_is_told_now(version: str) -> None:
    then = written(version, "talk.json")
    async with serving(limits={"enabled": False}) as served:
        now = await talk.have(served, then["steps"])
    said = {step["say"]["type"] for step in then["steps"] if "say" in step} | {"hello", "heartbeat"}
    assert said == {*then["commands"]} | {"no.such.command"}
    assert [*talk.differences(then["steps"], now, events=frozenset(then["events"]) | {"closed"})] == []


@every_version
async def test_a_store_of_then_is_opened_and_everything_is_there(version: str, tmp_path: Path) -> None:
    then = written(version, "after.json")
    with sqlite3.connect(tmp_path / "store.db") as db:
        db.executescript((FIXTURES / version / "store.sql").read_text())
    db.close()
    async with serving(limits={"enabled": False}, store={"url": f"sqlite:///{tmp_path}/store.db"}) as served:
        now = await talk.have(served, then["steps"])
    assert [*talk.differences(then["steps"], now, events=frozenset(written(version, "talk.json")["events"]))] == []


def test_a_field_that_is_gone_or_another_is_found_and_more_fields_are_not() -> None:
    then = {"answer": {"seq": 1, "id": "abc", "name": None}, "heard": [{"type": "a", "v": 1, "data": {"x": 1}}]}
    more = {"answer": {"seq": 1, "id": "def", "name": None, "new": 2}, "heard": [{"type": "b", "v": 1}, *then["heard"]]}
    assert [*talk.differences(then, more, events=frozenset({"a"}))] == []
    for other in (
        {"answer": {"id": "abc", "name": None}, "heard": then["heard"]},
        {"answer": {"seq": "1", "id": "abc", "name": None}, "heard": then["heard"]},
        {"answer": {"seq": 1, "id": 5, "name": None}, "heard": then["heard"]},
        {"answer": then["answer"], "heard": []},
    ):
        assert len([*talk.differences(then, other, events=frozenset({"a"}))]) == 1
