"""Tests of the JavaScript clients, run here so that `make test` covers them."""

from __future__ import annotations

import json

import pytest

from clients.javascript import CLIENTS, npm, wrong_types

WORKSPACES = json.loads((CLIENTS / "package.json").read_text())["workspaces"]


@pytest.mark.timeout(420)
@pytest.mark.parametrize("workspace", WORKSPACES)
def test_what_is_promised_of_a_client_holds(workspace: str) -> None:
    npm(workspace, "test")


@pytest.mark.timeout(180)
@pytest.mark.parametrize("workspace", WORKSPACES)
def test_types_are_strict_and_right(workspace: str) -> None:
    assert wrong_types(*WORKSPACES)[workspace] == []


def test_no_host_of_a_registry_is_written_down() -> None:
    lock = (CLIENTS / "package-lock.json").read_text()
    assert "http" not in "".join(line for line in lock.splitlines() if '"resolved"' in line)
