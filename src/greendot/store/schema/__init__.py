"""Migrations: numbered SQL files that are applied once each and never changed again. One folder per store."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Step(NamedTuple):
    """Migration file: brings the tables from the version of the previous step to `number`."""

    number: int
    name: str
    sql: str


def steps(store: str) -> list[Step]:
    """Return all steps of one store, in order. Numbers may have gaps; the last one is the version of the tables."""
    files = sorted((Path(__file__).parent / store).iterdir(), key=lambda file: file.name)
    found = [Step(int(f.name[:4]), f.name.removesuffix(".sql"), f.read_text()) for f in files if f.name[0].isdigit()]
    numbers = [step.number for step in found]
    assert numbers == sorted({*numbers}), "two steps have the same number"
    return found
