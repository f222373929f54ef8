"""Tests of the JavaScript clients, run here so that `make test` covers them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from clients.javascript import CLIENTS, installed, npm, wrong_types
from release.artefacts import build_npm
from release.check import try_npm

WORKSPACES = json.loads((CLIENTS / "package.json").read_text())["workspaces"]


@pytest.mark.timeout(420)
@pytest.mark.parametrize("workspace", WORKSPACES)
def test_what_is_promised_of_a_client_holds(workspace: str) -> None:
    npm(workspace, "test")


@pytest.mark.timeout(180)
@pytest.mark.parametrize("workspace", WORKSPACES)
def test_types_are_strict_and_right(workspace: str) -> None:
    assert wrong_types(*WORKSPACES)[workspace] == []


# In this file, because the tests of one file run one after the other, and the test above builds the packages, too.
@pytest.mark.timeout(180)
def test_the_readme_of_each_package_runs_from_its_installed_form_within_its_budget(tmp_path: Path) -> None:
    installed()
    first, second = build_npm(tmp_path / "first"), build_npm(tmp_path / "second")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    sizes = try_npm(tmp_path / "first", tmp_path / "app", Path(sys.executable), registry=False)
    for name in ("client", "react", "vue", "server"):
        assert f"@greendot/{name}" in sizes


def test_no_host_of_a_registry_is_written_down() -> None:
    lock = (CLIENTS / "package-lock.json").read_text()
    assert "http" not in "".join(line for line in lock.splitlines() if '"resolved"' in line)
