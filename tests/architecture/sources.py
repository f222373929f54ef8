"""The package's own source, read and not run."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "greendot"


class Module(NamedTuple):
    """One file: `app.node` for src/greendot/app/node.py, `app` for its package, `` for the root's."""

    name: str
    path: Path

    @property
    def part(self) -> str:
        """The package or top-level module it belongs to."""
        return self.name.partition(".")[0]

    @property
    def lines(self) -> list[str]:
        return _text(self.path).splitlines()

    @property
    def tree(self) -> ast.Module:
        return _parse(self.path)

    @property
    def nodes(self) -> list[ast.AST]:
        """Every node of the tree."""
        return _nodes(self.path)

    def imports(self) -> Iterator[str]:
        """The full names of all modules it imports, wherever in the file: `greendot.node.timer_model`, `os.path`."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{self.path}:{node.lineno}: imports are absolute here"
                assert node.module is not None
                yield node.module
                # `from greendot.protocol import commands` imports a module too.
                yield from (
                    f"{node.module}.{alias.name}" for alias in node.names if _is_module(node.module, alias.name)
                )

    @cache  # noqa: B019  (modules live as long as the tests)
    def own_imports(self) -> set[str]:
        """Return the imported modules of the package, without `greendot.`; the root package is left out."""
        return {name.removeprefix("greendot.") for name in self.imports() if name.startswith("greendot.")}

    @cache  # noqa: B019
    def foreign_imports(self) -> set[str]:
        """Return the top-level names of third-party imports."""
        return {top for name in self.imports() if (top := name.partition(".")[0]) != "greendot"}

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        for node in self.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node

    def classes(self) -> Iterator[ast.ClassDef]:
        for node in self.nodes:
            if isinstance(node, ast.ClassDef):
                yield node


@cache
def modules() -> tuple[Module, ...]:
    return tuple(Module(_name(path), path) for path in sorted(SOURCE.rglob("*.py")))


@cache
def modules_of_tests() -> tuple[Module, ...]:
    """Return the modules of `tests`, `bench` and `clients/behaviour`, such as `tests.unit.test_ids`.

    Recordings of old versions, and the peers that `make bench` installs, are left out.
    """
    others = {ROOT / "tests" / "fixtures", ROOT / "bench" / "build"}
    paths = [
        path for folder in ("bench", "clients/behaviour", "tests") for path in sorted((ROOT / folder).rglob("*.py"))
    ]
    return tuple(Module(_name(path, ROOT), path) for path in paths if others.isdisjoint(path.parents))


def _name(path: Path, root: Path = SOURCE) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def offences(check: Callable[[Module], Any], among: Iterable[Module] | None = None) -> dict[str, Any]:
    """Apply a check to modules, by default to all of the package, and return the findings by module."""
    checked = modules() if among is None else among
    return {module.name or "greendot": found for module in checked if (found := check(module))}


@cache
def _text(path: Path) -> str:
    return path.read_text()


@cache
def _parse(path: Path) -> ast.Module:
    return ast.parse(_text(path), str(path))


@cache
def _nodes(path: Path) -> list[ast.AST]:
    return [*ast.walk(_parse(path))]


@cache
def _is_module(package: str, name: str) -> bool:
    folder = SOURCE.parent.joinpath(*package.split("."))
    return (folder / f"{name}.py").exists() or (folder / name / "__init__.py").exists()
