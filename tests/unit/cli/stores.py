"""Stores with data, for tests of commands that read them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cli.calls import call
from greendot.store.port import Store
from greendot.store.postgres import PostgresStore
from greendot.store.sqlite import SqliteStore
from greendot.store.webhooks import Hooked
from postgres_server import fresh_schema

both_stores = pytest.mark.parametrize("kind", ["sqlite", "postgres"])


@asynccontextmanager
async def opened(
    kind: str, folder: Path, postgres: str, hooked: Hooked | None = None
) -> AsyncIterator[tuple[str, Store]]:
    """Open a store of this kind and yield its URL and the store."""
    async with fresh_schema(postgres) as place:
        url = place if kind == "postgres" else f"sqlite:///{folder / 'greendot.db'}"
        store: Store = SqliteStore(url[10:], hooked=hooked)
        if kind == "postgres":
            store = PostgresStore(place, migrate=True, hooked=hooked)
        await store.start()
        try:
            yield url, store
        finally:
            await store.close()


async def said(*arguments: str, code: int = 0, **environment: str) -> str:
    """Return the output of a call. The call has an event loop of its own, so it runs in a thread."""
    result = await asyncio.to_thread(lambda: call(*arguments, **environment))
    assert result.exit_code == code, (result.output, result.exception)
    return result.output
