"""tests/unit mirrors the source: the path of a module gives the path of its test."""

from __future__ import annotations

from pathlib import Path

from .sources import ROOT, modules

UNIT = ROOT / "tests" / "unit"
FILES = sorted(UNIT.rglob("test_*.py"))


def module_of(path: Path) -> str:
    """Return the module that a file of unit tests covers."""
    parts = [*path.relative_to(UNIT).parent.parts, path.stem.removeprefix("test_")]
    if len(parts) > 1 and parts[-1] == parts[-2]:
        parts.pop()  # tests/unit/cli/test_cli.py covers the package itself
    return ".".join(parts)


def test_a_unit_test_names_a_module_that_exists() -> None:
    names = {module.name for module in modules()}

    def is_there(name: str) -> bool:
        # test_model_grants.py covers one aspect of the module `model`.
        part, _, leaf = name.rpartition(".")
        words = leaf.split("_")
        return any(f"{part}.{'_'.join(words[:count])}".lstrip(".") in names for count in range(1, len(words) + 1))

    assert [str(path.relative_to(UNIT)) for path in FILES if not is_there(module_of(path))] == []


def test_there_are_unit_tests() -> None:
    assert len(FILES) > 20
