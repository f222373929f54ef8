"""The package's own source, read and not run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "greendot"


class Module(NamedTuple):
    """One file: `gateway.node` for src/greendot/gateway/node.py, `gateway` for its package, `` for the root's."""

    name: str
    path: Path

    @property
    def part(self) -> str:
        """The package or top-level module it belongs to."""
        return self.name.partition(".")[0]

    @property
    def lines(self) -> list[str]:
        return self.path.read_text().splitlines()

    @property
    def tree(self) -> ast.Module:
        return _parse(self.path)

    def imports(self) -> Iterator[str]:
        """The full names of all modules it imports, wherever in the file: `greendot.core.wheel`, `os.path`."""
        for node in ast.walk(self.tree):
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

    def own_imports(self) -> set[str]:
        """The modules of ours it imports, without the `greendot.`; the root package (its version) is left out."""
        return {name.removeprefix("greendot.") for name in self.imports() if name.startswith("greendot.")}

    def foreign_imports(self) -> set[str]:
        """The top-level names of everybody else's."""
        return {top for name in self.imports() if (top := name.partition(".")[0]) != "greendot"}

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node

    def classes(self) -> Iterator[ast.ClassDef]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ClassDef):
                yield node


@cache
def modules() -> tuple[Module, ...]:
    return tuple(Module(_name(path), path) for path in sorted(SOURCE.rglob("*.py")))


def _name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def _is_module(package: str, name: str) -> bool:
    folder = SOURCE.parent.joinpath(*package.split("."))
    return (folder / f"{name}.py").exists() or (folder / name / "__init__.py").exists()
