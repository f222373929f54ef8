"""Upgrade from the wheel of the previous release: data and connected clients continue, on each store."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from compat.sources import UPGRADED, MissingHistoryError, extract, unpacked
from greendot import __version__
from postgres_server import fresh_schema
from release.artefacts import build_python
from release.upgrade import Installation, build_previous, upgrade

STORES = {"0.1.0-rc.1": "sqlite", "0.1.0-rc.2": "postgres"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel of this version."""
    if shutil.which("node") is None:
        reason = "Node.js is not installed"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    (built,) = build_python(tmp_path_factory.mktemp("wheel"), sdist=False)
    return built


@asynccontextmanager
async def stored(kind: str, request: pytest.FixtureRequest) -> AsyncIterator[dict[str, str]]:
    """Yield the settings of an empty store."""
    if kind == "sqlite":
        yield {}
        return
    async with fresh_schema(request.getfixturevalue("postgres")) as place:
        yield {"GREENDOT_STORE_URL": place, "GREENDOT_STORE_MIGRATE": "true"}


@pytest.mark.timeout(400)
@pytest.mark.parametrize("version", UPGRADED)
async def test_an_upgrade_keeps_the_data_and_the_connected_clients(
    version: str, wheel: Path, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    source = unpacked(version, tmp_path / "source", ".").parent
    previous = build_previous(source, version, tmp_path / "wheel")
    (tmp_path / "installation").mkdir()
    installed = Installation(tmp_path / "installation", previous, registry=False)
    async with stored(STORES[version], request) as settings:
        outcome = await asyncio.to_thread(upgrade, installed, wheel, **settings)
    assert outcome.endswith(f" to {__version__}")


def test_each_upgrade_has_a_store() -> None:
    assert [*STORES] == [*UPGRADED]


def test_a_clone_without_the_history_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = [*UPGRADED][-1]
    monkeypatch.setitem(UPGRADED, version, "0" * 40)  # a shallow clone does not have the commit
    with pytest.raises(MissingHistoryError, match=rf"does not include {version} .*; run: git fetch --unshallow"):
        extract(version, tmp_path)
