"""CONTRIBUTING.md and docs/architecture.md name files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "greendot"
PAGES = ("CONTRIBUTING.md", "docs/architecture.md")


def named(page: str) -> set[str]:
    """Return the paths in backquotes, such as `app/node.py`, `node/hub` and `tests/e2e`, without those with
    placeholders.
    """
    text = (ROOT / page).read_text()
    found = re.findall(r"`([\w.-]+(?:/[\w.-]+)+/?)`", text)
    return {path.rstrip("/") for path in found}


def is_there(path: str) -> bool:
    places = (ROOT, SOURCE, ROOT / "tests")
    return any((place / path).exists() or (place / f"{path}.py").exists() for place in places)


@pytest.mark.parametrize("page", PAGES)
def test_every_path_that_is_named_exists(page: str) -> None:
    paths = named(page)
    assert len(paths) > 15
    made = {path for path in paths if path.startswith("build/")}
    assert {path for path in paths - made if not is_there(path)} == set()
