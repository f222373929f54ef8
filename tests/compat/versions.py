"""Recorded versions."""

from __future__ import annotations

import importlib.util
import re
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

FIXTURES = Path(__file__).parents[1] / "fixtures" / "protocol"
VERSIONS = sorted(folder.name for folder in FIXTURES.iterdir() if folder.is_dir())


NOTES = (Path(__file__).parents[2] / "docs" / "upgrading.md").read_text().partition("\n## Upgrade notes\n")[2]


def way_back(store: str) -> str:
    """Return the SQL in the upgrade notes that downgrades `PostgreSQL` or `SQLite` tables to the last version."""
    found = re.search(rf"{store}[^:]*:\n\n```sql\n(.*?)```", NOTES, re.DOTALL)
    assert found is not None
    return found[1]


def written(version: str, name: str) -> Any:
    return msgspec.json.decode((FIXTURES / version / name).read_bytes())


@cache
def decoders(version: str) -> ModuleType:
    """Return the bus decoders of that version."""
    path = FIXTURES / version / "decoders.py"
    spec = importlib.util.spec_from_file_location(f"decoders_{version.replace('.', '_')}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # annotations are resolved there
    spec.loader.exec_module(module)
    return module
