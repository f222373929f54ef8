"""docs/security.md: each threat has a test, and its tests, settings and commands exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import msgspec
import pytest

from greendot.cli import cli
from greendot.config import Settings
from greendot.protocol.commands import COMMANDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()
THREATS = PAGE.split("\n## Threats\n", 1)[1].split("\n## ", 1)[0]
TEST = re.compile(r"`((?:tests|src)/[\w/]+\.py)::(\w+)`")
BOUNDARIES = PAGE.split("\n## Boundaries\n", 1)[1].split("\n## ", 1)[0]
OPENERS = {
    *(
        "AsyncClient",
        "AsyncConnectionPool",
        "HTTPConnection",
        "HTTPSConnection",
        "OTLPSpanExporter",
        "Popen",
        "urlopen",
    ),
    *("create_connection", "create_server", "create_unix_connection", "create_unix_server", "start_server"),
    *("start_unix_server", "open_connection", "open_unix_connection"),
    *("asyncpg.connect", "asyncpg.create_pool", "socket.socket", "sqlite3.connect"),
}
ROWS = [line.strip("|").split("|") for line in THREATS.splitlines() if re.match(r"\| (?!threat \|)", line)]


@cache
def names_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    found = (node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {name for name in found if name.startswith("test_")}


@pytest.mark.parametrize("path", sorted({path for path, _ in TEST.findall(PAGE)}))
def test_every_test_that_is_named_exists(path: str) -> None:
    assert (ROOT / path).is_file()
    assert {name for found, name in TEST.findall(PAGE) if found == path} <= names_in(path)


def test_every_name_of_a_test_is_written_so_that_it_is_looked_for() -> None:
    assert PAGE.count("::") == len(TEST.findall(PAGE)) > 50


def test_every_threat_has_a_test_that_shows_how_it_is_met() -> None:
    assert len(ROWS) > 40
    for row in ROWS:
        threat, met, shown = (cell.strip() for cell in row)
        assert threat
        assert met
        assert TEST.findall(shown), threat


def boundaries() -> Iterator[tuple[str, list[str], list[tuple[str, str]]]]:
    """Yield each boundary with the code that checks it, as paths of files or folders, and its tests."""
    for line in BOUNDARIES.splitlines():
        if "→" in line:
            boundary, _, checked, held = line.strip("|").split("|")
            yield boundary.strip(), re.findall(r"`([a-z0-9_/]+)`", checked), TEST.findall(held)


def test_every_boundary_has_a_test_and_the_code_that_checks_it() -> None:
    assert len([*boundaries()]) >= 30
    for boundary, checked, held in boundaries():
        assert held, boundary
        for path in checked:
            places = [ROOT / path, ROOT / "src" / "greendot" / path, ROOT / "src" / "greendot" / f"{path}.py"]
            assert any(place.exists() for place in places), path


def opens(path: Path) -> set[str]:
    """Return the calls of a module that listen, connect, start a program or open a database."""
    text = path.read_text()
    if not any(f"{name.rpartition('.')[2]}(" in text for name in OPENERS):
        return set()
    calls = {ast.unparse(node.func) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)}
    return OPENERS & (calls | {call.rpartition(".")[2] for call in calls})


def test_every_module_that_opens_a_connection_belongs_to_a_boundary() -> None:
    checking = {path for _, checked, _ in boundaries() for path in checked}
    source = ROOT / "src" / "greendot"
    found = {}
    for path in sorted(source.rglob("*.py")):
        module = path.relative_to(source).with_suffix("")
        # Clients run in apps, not on a node; the suites in `testing` run in tests.
        if module.parts[0] not in ("client", "sdk", "testing") and (calls := opens(path)):
            found[str(module)] = calls
    assert {"transport/listener", "engine/redis/link", "auth/jwks_fetch", "store/sqlite/thread"} <= found.keys()
    missing = {
        module: calls
        for module, calls in found.items()
        if checking.isdisjoint({module, *map(str, Path(module).parents)})
    }
    assert missing == {}, "add the module to the table of boundaries, with the test that holds it"


def test_a_suite_that_is_named_is_run_on_the_engines_or_stores() -> None:
    """Shipped tests run only through the classes of tests/conformance."""
    suites = {path for path, _ in TEST.findall(PAGE) if path.startswith("src/")}
    assert suites
    run = "".join(path.read_text() for path in (ROOT / "tests" / "conformance").glob("test_*.py"))
    shipped = "".join(path.read_text() for path in (ROOT / "src" / "greendot" / "testing").glob("*.py"))
    assert "StoreSuite" in run
    assert "EngineSuite" in run
    for path in suites:
        module = path.removeprefix("src/").removesuffix(".py").replace("/", ".")
        assert f"from {module} import" in run + shipped, path


def test_every_setting_that_is_named_exists() -> None:
    known = {
        f"{section.name}.{field.name}"
        for section in msgspec.structs.fields(Settings)
        if isinstance(section.type, type) and issubclass(section.type, msgspec.Struct)
        for field in msgspec.structs.fields(section.type)
    }
    named = set(re.findall(r"`([a-z]+\.[a-z_]+)`", PAGE))
    assert "door.origins" in named
    assert named - COMMANDS.keys() - known == set()
    for name in re.findall(r"GREENDOT_[A-Z_]+", PAGE):
        assert name.removeprefix("GREENDOT_").lower().replace("_", ".", 1) in known, name


def test_every_command_that_is_named_exists() -> None:
    named = re.findall(r"`greendot ([a-z][a-z -]*?)`", PAGE)
    assert "check-config" in named
    for words in named:
        command: click.Command = cli
        for word in words.split():
            assert isinstance(command, click.Group), words
            named = command.get_command(click.Context(command), word)
            assert named is not None, words
            command = named
