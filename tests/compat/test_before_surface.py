"""Interfaces of earlier versions still work; the upgrade notes list the exceptions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compat import surface
from compat.versions import NOTES, VERSIONS, written
from greendot import __version__

ROOT = Path(__file__).parents[2]
every_version = pytest.mark.parametrize("version", VERSIONS)


def then_and_now(version: str, part: str) -> tuple[Any, Any]:
    return written(version, "surface.json")[part], surface.all_of_it()[part]


@every_version
def test_settings_keep_their_defaults_unless_the_release_notes_mention_them(version: str) -> None:
    then, now = then_and_now(version, "settings")
    other = [name for name, default in then.items() if name not in now or now[name] != default]
    assert [name for name in other if f"`{name}`" not in NOTES] == []


@every_version
def test_commands_are_there_with_their_options(version: str) -> None:
    then, now = then_and_now(version, "commands")
    assert [(name, option) for name, options in then.items() for option in options if option not in now[name]] == []


@every_version
def test_requests_are_taken_as_they_were_and_answers_have_in_them_what_they_had(version: str) -> None:
    then, now = then_and_now(version, "http")
    for route, (old, new) in {route: (old, now[route]) for route, old in then.items()}.items():
        assert {*old["given"]} <= {*new["given"]}, route
        assert {name for name, needed in new["given"].items() if needed and not old["given"].get(name)} == set(), route
        for status, fields in old["answers"].items():
            assert {*fields} <= {*new["answers"][status]}, (route, status)


@every_version
def test_frames_have_in_them_what_they_had_and_need_no_more(version: str) -> None:
    then, now = then_and_now(version, "frames")
    for kind, fields in then["commands"].items():
        assert fields.keys() <= now["commands"][kind].keys(), kind
        needed = {name for name, needed in now["commands"][kind].items() if needed}
        assert needed <= {name for name, needed in fields.items() if needed}, kind
    for kind, names in then["events"].items():
        assert {*names} <= {*now["events"][kind]}, kind
        assert {*then["versions"][kind]} <= {*now["versions"][kind]}, kind


@every_version
def test_codes_mean_what_they_meant(version: str) -> None:
    then, now = then_and_now(version, "closes")
    assert then.items() <= now.items()
    then, now = then_and_now(version, "errors")
    assert {*then} <= {*now}


@every_version
def test_steps_of_the_tables_are_as_they_were_and_new_ones_come_after_them_and_are_in_the_notes(version: str) -> None:
    then, now = then_and_now(version, "tables")
    for store, steps in then.items():
        assert dict([*now[store].items()][: len(steps)]) == steps
        assert [step for step in now[store].keys() - steps.keys() if f"`{step}`" not in NOTES] == []


def test_this_version_is_a_semantic_one_and_comes_after_those_that_were_written_down() -> None:
    def parts(version: str) -> tuple[list[int], bool]:
        number, _, candidate = version.partition("-")
        return [int(part) for part in number.split(".")], not candidate

    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)
    assert all(parts(version) <= parts(__version__) for version in VERSIONS)


@pytest.mark.parametrize("name", ["js", "react", "vue", "server"])
def test_the_clients_have_the_version_of_the_server(name: str) -> None:
    package = msgspec.json.decode((ROOT / "clients" / name / "package.json").read_bytes())
    assert package["version"] == __version__
    assert {f"^{__version__}"} >= {
        given
        for kind in ("dependencies", "peerDependencies", "devDependencies")
        if (given := package.get(kind, {}).get("@greendot/client"))
    }


def test_the_changelog_begins_with_this_version_and_the_notes_mention_it() -> None:
    first = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first is not None
    assert first[1] == __version__
    assert f"to {__version__}" in NOTES
