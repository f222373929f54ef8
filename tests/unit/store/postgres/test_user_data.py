"""Erasure of a user in PostgreSQL while rows of the user change: no row stays."""

from __future__ import annotations

import asyncio

import pytest

from greendot.presence.model import ManualStatus
from greendot.store.user_data import ExportCursor
from greendot.testing.store_harness import T, draft, notice, recounted
from postgres_server import fresh_schema

from .places import blocked_by, linked, started

_CHANGES = {
    "notifications": "UPDATE greendot_notifications SET push_at = 1 WHERE tenant = $1 AND user_id = 'ann' AND seq = 2",
    "status": "UPDATE greendot_status SET text = 'new' WHERE tenant = $1 AND user_id = 'ann'",
    "markers": "UPDATE greendot_markers SET seq = 1 WHERE tenant = $1 AND user_id = 'ann'",
    "messages": "UPDATE greendot_messages SET traceparent = 'x' WHERE tenant = $1 AND user_id = 'ann' AND seq = 1",
    "members": "UPDATE greendot_members SET role = 'admin' WHERE tenant = $1 AND user_id = 'ann'",
}


@pytest.mark.parametrize("table", _CHANGES)
async def test_a_row_that_changes_while_its_user_is_erased_is_erased(postgres: str, table: str) -> None:
    async with fresh_schema(postgres) as url, started(url) as store, linked(url) as other, linked(url) as watcher:
        await store.notify([notice("ann", f"k{n}") for n in range(3)])
        await store.put_status(T, "ann", ManualStatus("busy"))
        await store.put_room(T, "r1")
        await store.put_member(T, "r1", "ann")
        await store.append(T, "r1", draft())
        await store.put_marker(T, "r1", "ann", 1)
        await other.execute("BEGIN")
        await other.execute(_CHANGES[table], T)
        erasing = asyncio.ensure_future(store.erase_user(T, "ann", ExportCursor(table), limit=100))
        await blocked_by(other, watcher, f"greendot_{table}")
        await other.execute("COMMIT")
        assert (await erasing).rows == (3 if table == "notifications" else 1)
        assert (await store.rows_of(T, "ann", ExportCursor(table), limit=100)).rows == []
        assert (await store.inbox(T, "ann")).unread == (0 if table == "notifications" else 3)
        await recounted(store)
        assert (await store.messages(T, "r1", limit=1))[0].body == (b"null" if table == "messages" else draft().body)
