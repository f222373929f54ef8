"""Requests to earlier versions get the same replies, and their stored data can be read."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from compat import talk
from compat.versions import FIXTURES, VERSIONS, way_back, written
from greendot.testing import serving

every_version = pytest.mark.parametrize("version", VERSIONS)


@every_version
async def test_a_client_of_an_older_version_reads_the_frames_of_this_version(version: str) -> None:
    then = written(version, "talk.json")
    async with serving(limits={"enabled": False}) as served:
        now = await talk.have(served, then["steps"])
    said = {step["say"]["type"] for step in then["steps"] if "say" in step} | {"hello", "heartbeat"}
    assert said == {*then["commands"]} | {"no.such.command"}
    assert [*talk.differences(then["steps"], now, events=frozenset(then["events"]) | {"closed"})] == []


@every_version
async def test_a_store_of_then_is_opened_and_everything_is_there(version: str, tmp_path: Path) -> None:
    then = written(version, "after.json")
    with closing(sqlite3.connect(tmp_path / "store.db")) as db, db:
        db.executescript((FIXTURES / version / "store.sql").read_text())
    db.close()
    async with serving(limits={"enabled": False}, store={"url": f"sqlite:///{tmp_path}/store.db"}) as served:
        now = await talk.have(served, then["steps"])
    assert [*talk.differences(then["steps"], now, events=frozenset(written(version, "talk.json")["events"]))] == []


async def test_a_migrated_store_can_be_downgraded_as_the_release_notes_describe(tmp_path: Path) -> None:
    then = (FIXTURES / VERSIONS[-1] / "store.sql").read_text()
    place = tmp_path / "store.db"
    with closing(sqlite3.connect(place)) as db, db:
        db.executescript(then)
    before = tables(place)
    for _ in range(2):  # upgrade and downgrade, twice
        async with serving(store={"url": f"sqlite:///{place}"}) as served:
            assert (await served.client("ann", resume={"rooms": {"hall": 0}})).welcome["rooms"]["hall"]["head"] > 4
        assert tables(place) != before
        with closing(sqlite3.connect(place)) as db, db:
            db.executescript(way_back("SQLite"))
        db.close()
        assert tables(place) == before


def tables(place: Path) -> list[object]:
    db = sqlite3.connect(place)
    try:
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1")]
        columns = [db.execute("SELECT name, type FROM pragma_table_info(?)", (name,)).fetchall() for name in names]
        return [db.execute("PRAGMA user_version").fetchone(), *zip(names, columns, strict=True)]
    finally:
        db.close()


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
