"""Report of `make audit` on findings of pip-audit."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

AUDIT = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "audit"))
HOLE = {"id": "PYSEC-2030-1", "aliases": ["CVE-2030-1"], "fix_versions": ["2.0"]}


def package(*holes: dict[str, Any]) -> dict[str, Any]:
    return {"name": "some", "version": "1.0", "vulns": [*holes]}


def test_nothing_found_is_fine_and_what_was_not_looked_at_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert AUDIT["report"]([package()], ["other"]) == 0
    assert "not audited: other" in capsys.readouterr().out


@pytest.mark.parametrize("named", ["PYSEC-2030-1", "CVE-2030-1"])
def test_a_hole_fails_unless_it_is_explained(
    named: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert AUDIT["report"]([package(HOLE)], []) == 1
    assert "some 1.0: PYSEC-2030-1, fixed in 2.0: NOT EXPLAINED" in capsys.readouterr().out
    monkeypatch.setitem(AUDIT["report"].__globals__["EXPLAINED"], named, "not used here")
    assert AUDIT["report"]([package(HOLE)], []) == 0
    assert "not used here" in capsys.readouterr().out
