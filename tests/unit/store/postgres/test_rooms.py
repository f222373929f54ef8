"""Markers in PostgreSQL: a mark returns the marker and the head of the same moment."""

from __future__ import annotations

import asyncio

from greendot.testing.store_harness import T, draft
from postgres_server import fresh_schema

from .places import blocked_by, linked, started

_READ = "UPDATE greendot_markers SET seq = 2 WHERE tenant = $1 AND room = 'r1' AND user_id = 'ann'"


async def test_a_marker_that_another_device_moved_meanwhile_comes_with_a_head_not_older_than_it(postgres: str) -> None:
    async with fresh_schema(postgres) as url, started(url) as store, linked(url) as other, linked(url) as watcher:
        await store.put_room(T, "r1", open=True)
        for key in ("k1", "k2"):
            await store.append(T, "r1", draft(key=key))
        assert (await store.put_marker(T, "r1", "ann", 1))[:2] == (1, 2)
        await other.execute("BEGIN")
        await other.execute(_READ, T)
        marking = asyncio.ensure_future(store.put_marker(T, "r1", "ann", 1))
        await blocked_by(other, watcher, "greendot_markers")  # the statement has begun: it has read the head
        for key in ("k3", "k4", "k5"):
            await store.append(T, "r1", draft(key=key))
        await other.execute("COMMIT")
        assert (await marking)[:2] == (2, 5)
