"""Commented TOML file of all settings: it contains the defaults and explains each setting."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec
import pytest
from msgspec import Struct
from msgspec.structs import fields

from greendot.config import Settings, commented, load
from greendot.config.fields import description, split


def kinds(kind: type[Struct]) -> list[type[Struct]]:
    """Return a section's type and the types of all sections inside it."""
    found = [kind]
    for field in fields(kind):
        inner = (field.type, *get_args(split(field.type)[0]))
        found += [one for part in inner if isinstance(part, type) and issubclass(part, Struct) for one in kinds(part)]
    return found


def uncommented(text: str) -> dict[str, Any]:
    """Read the file with its commented examples switched on."""
    lines = []
    for line in text.splitlines():
        example = re.fullmatch(r"#(\[.*|\w+ = .*)", line)
        lines.append(line if example is None else example[1].replace("= …", '= "given"'))
    return tomllib.loads("\n".join(lines))


def test_read_it_gives_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "greendot.toml"
    file.write_text(commented("1.2.3"))
    assert load(file, {}, {}) == Settings()
    written = tomllib.loads(file.read_text())
    named = {"kinds", "tenants"}  # sections with user-defined names: none exist by default
    assert written.keys() == {field.name for field in fields(Settings)} - named
    for section, keys in written.items():
        kind = type(getattr(Settings(), section))
        left_out = {f.name for f in fields(kind) if f.name not in keys}
        assert {name for name in left_out if getattr(getattr(Settings(), section), name)} == set()
    assert "Greendot 1.2.3" in file.read_text()


def test_sections_by_name_are_shown_as_examples_with_all_their_settings() -> None:
    shown = uncommented(commented("1"))
    for place, kind in (
        (shown["kinds"]["NAME"], "Kind"),
        (shown["tenants"]["NAME"], "Tenant"),
        (shown["push"]["kinds"]["NAME"], "PushKind"),
        (shown["auth"]["keys"][0], "AuthKey"),
    ):
        (wanted,) = {one for one in kinds(Settings) if one.__name__ == kind}
        assert place.keys() == {field.name for field in fields(wanted) if get_origin(split(field.type)[0]) is not dict}


@pytest.mark.parametrize("kind", sorted({*kinds(Settings)}, key=lambda kind: kind.__name__), ids=lambda k: k.__name__)
def test_every_setting_has_a_description(kind: type[Struct]) -> None:
    plain = [field for field in fields(kind) if not isinstance(field.default, Struct)]
    allowed = {"kid", "alg", "promise", "active_hold_s", "idle_hold_s", "least"}  # name and type explain these
    assert {field.name for field in plain if not description(field.type)} - allowed == set()


def test_the_reference_has_the_valid_values_of_a_setting_where_the_default_does_not_show_them() -> None:
    text = commented("1")
    assert (
        "# how long a session continues after its socket was lost · a number from 0 to 2592000\ngrace_s = 30.0\n"
        in text
    )
    assert "one of refuse, accept\nwhen_away" in text
    assert all(len(line) < 160 for line in text.splitlines() if line.startswith("# "))


def test_a_setting_that_may_be_left_out_is_refused_with_what_it_may_be(tmp_path: Path) -> None:
    file = tmp_path / "greendot.toml"
    file.write_text("[push.kinds.alarm]\nactive_hold_s = 'long'\nleast = 'loud'\n")
    with pytest.raises(Exception, match="must be a number from 0 to 86400") as caught:
        load(file, {}, {})
    assert "one of low, normal, high, critical" in str(caught.value)


def test_defaults_are_written_as_toml_writes_them() -> None:
    assert msgspec.toml.decode(commented("1").encode())["auth"]["token_in_query"] is False
