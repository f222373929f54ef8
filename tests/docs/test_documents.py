"""Documents match the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest

from greendot.auth.model import SCOPES
from greendot.cli import cli
from greendot.config import AuthKey, Kind, Settings, Tenant
from greendot.http.scopes import NEEDED
from greendot.protocol.codes import Close, Err
from greendot.protocol.commands import COMMANDS
from greendot.protocol.events import EVENTS
from greendot.protocol.versions import ESSENTIAL, VERSIONS
from http_routes import uncalled_app

DOCS = Path(__file__).parents[2] / "docs"


def table(document: str, heading: str) -> dict[str, list[str]]:
    """Return the rows of the first table after a heading: first cell → other cells."""
    text = f"\n{(DOCS / document).read_text()}".split(f"\n{heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")][2:]
    return {cells[0].strip().strip("`"): [cell.strip() for cell in cells[1:]] for cells in rows}


def words(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def fields(struct: type, *, without: tuple[str, ...] = ()) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(struct) if field.name not in without}


def test_every_command_is_documented_with_its_fields() -> None:
    documented = table("protocol.md", "## Commands")
    assert documented.keys() == COMMANDS.keys()
    for name, struct in COMMANDS.items():
        assert set(words(documented[name][0])) == fields(struct, without=("id", "trace", "traceparent")), name


def test_every_event_is_documented_with_its_fields() -> None:
    documented = table("protocol.md", "## Events")
    assert documented.keys() == EVENTS.keys()
    for name, struct in EVENTS.items():
        assert set(words(documented[name][0])) == fields(struct), name


def test_every_version_of_an_event_is_documented() -> None:
    documented = table("protocol.md", "## Versions")
    assert documented.pop("all others") == ["1"]
    assert documented == {kind: [", ".join(map(str, found))] for kind, found in VERSIONS.items() if len(found) > 1}
    text = (DOCS / "protocol.md").read_text()
    (essential,) = re.findall(r"\nevents are required: (.*?)\.\n", text, re.DOTALL)
    assert {*words(essential)} == ESSENTIAL


def test_every_code_is_documented() -> None:
    assert table("protocol.md", "## Errors").keys() == {str(code) for code in Err}
    assert table("protocol.md", "## Close codes").keys() == {str(int(code)) for code in Close}


def test_every_route_is_documented() -> None:
    documented = set(re.findall(r"`((?:GET|PUT|POST|PATCH|DELETE) /[^`?]*)", (DOCS / "http.md").read_text()))
    app = uncalled_app()
    routes = {f"{method} {route.path}" for route in app.routes for method in route.methods - {"HEAD"}}
    dev = {"GET /", "GET /dev/token", "GET /playground", "GET /dev/periods", "POST /dev/notify", "POST /dev/cut"}
    files = {route for route in routes if route.startswith("GET /docs/")}  # files of the page
    assert routes - files == documented - dev - {"GET /admin"}


def test_every_scope_is_documented_where_it_is_needed() -> None:
    rows = table("http.md", "# The HTTP API")
    documented = {name.split("?")[0]: words(cells[0])[0] for name, cells in rows.items() if " /" in name}
    assert documented == NEEDED
    assert table("http.md", "## Keys").keys() == {*SCOPES}


def defaults(kind: type) -> Iterator[tuple[str, object]]:
    """Yield the defaults of a section. Settings of a nested section have both names."""
    for field in msgspec.structs.fields(kind):
        if isinstance(field.default, msgspec.Struct):
            yield from ((f"{field.name}.{name}", default) for name, default in defaults(field.type))
        else:
            yield field.name, {} if field.default_factory is dict else field.default


def test_every_setting_is_documented_with_its_default() -> None:
    text = (DOCS / "settings.md").read_text()
    for section in msgspec.structs.fields(Settings):
        rows = table("settings.md", f"## {section.name}")
        kind = Kind if section.name == "kinds" else section.type
        if section.name == "tenants":  # tenants have the settings of another section
            assert rows.keys() == fields(Tenant)
            continue
        known = dict(defaults(kind))
        assert rows.keys() == known.keys(), section.name
        for key, default in known.items():
            assert rows[key][0].strip("`") == msgspec.json.encode(default).decode(), f"{section.name}.{key}"
    text = re.sub(r"\nMisspelt variables.*?\n\n", "", text, flags=re.DOTALL)  # it shows invalid names
    for name in re.findall(r"GREENDOT_[A-Z_]+", text):
        _, section, key = name.lower().split("_", 2)
        assert key in {one.replace(".", "_") for one, _ in defaults(type(getattr(Settings(), section)))}, name


def test_all_that_can_be_set_of_a_key_is_documented() -> None:
    text = (DOCS / "settings.md").read_text().split("\n## auth\n", 1)[1].split("\n## ", 1)[0]
    (shown,) = re.findall(r"```toml\n\[\[auth.keys\]\](.*?)```", text, re.DOTALL)
    assert {field for field in fields(AuthKey) if not re.search(rf"\b{field} = ", shown)} == set()


def test_every_command_of_the_command_line_is_documented() -> None:
    known: list[list[str]] = []
    for name, command in cli.all().items():
        known += [[name, part] for part in command.commands] if isinstance(command, click.Group) else [[name]]
    documented = [name.split()[1:] for name in table("cli.md", "## Commands")]
    # Arguments after the name of a command are in capitals.
    assert sorted([word for word in words if word.islower()] for words in documented) == sorted(known)


@pytest.mark.parametrize("document", [*DOCS.glob("**/*.md"), *DOCS.parent.glob("*.md")], ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text()):
        if not target.startswith("http"):
            assert (document.parent / target).exists(), target
