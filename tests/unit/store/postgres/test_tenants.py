"""Erasure of a tenant in PostgreSQL while rows of the tenant change: no row stays."""

from __future__ import annotations

import asyncio

import pytest

from greendot.presence.model import ManualStatus
from greendot.testing.store_harness import T, notice
from postgres_server import fresh_schema

from .places import blocked_by, linked, started

_CHANGES = {
    "notifications": "UPDATE greendot_notifications SET push_at = 1 WHERE tenant = $1 AND seq = 2",
    "status": "UPDATE greendot_status SET text = 'new' WHERE tenant = $1",
}


@pytest.mark.parametrize("table", _CHANGES)
async def test_a_row_that_changes_while_its_tenant_is_erased_is_erased(postgres: str, table: str) -> None:
    async with fresh_schema(postgres) as url, started(url) as store, linked(url) as other, linked(url) as watcher:
        await store.notify([notice("ann", f"k{n}") for n in range(3)])
        await store.put_status(T, "ann", ManualStatus("busy"))
        await other.execute("BEGIN")
        await other.execute(_CHANGES[table], T)
        erasing = asyncio.ensure_future(store.erase_tenant(T, limit=100))
        await blocked_by(other, watcher, f"greendot_{table}")
        await other.execute("COMMIT")
        assert await erasing == 5  # three notifications, their inbox, the status
        assert await store.tenant_rows(T) == {}
