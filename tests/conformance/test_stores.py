"""Every store passes the suite that ships with the package."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from greendot.store.base import Store
from greendot.store.sqlite import SqliteStore
from greendot.testing import StoreSuite


class TestSqlite(StoreSuite):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.path = tmp_path / "store.db"

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Store]:
        store = SqliteStore(str(self.path))
        await store.start()
        try:
            yield store
        finally:
            await store.close()
