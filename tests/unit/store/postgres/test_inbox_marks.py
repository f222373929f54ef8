"""Marks in PostgreSQL during changes of the same notifications: the counters match the marks."""

from __future__ import annotations

import asyncio

import pytest

from greendot.store.inbox import Inbox, Mark
from greendot.testing.store_harness import NOW, T, notice, recounted
from postgres_server import fresh_schema

from .places import blocked_by, linked, started

# A node of the previous version, whose push has just settled, does not lock the head.
_PUSHED = "UPDATE greendot_notifications SET push_at = 1 WHERE tenant = $1 AND user_id = 'ann' AND seq = 2"


@pytest.mark.parametrize("mark", ["seen", "read", "archive", "ack"])
@pytest.mark.parametrize("by", ["ids", "through"])
async def test_a_mark_holds_and_is_counted_once_though_the_row_changes_meanwhile(
    postgres: str, mark: Mark, by: str
) -> None:
    async with fresh_schema(postgres) as url, started(url) as store, linked(url) as other, linked(url) as watcher:
        made = await store.notify([notice("ann", f"k{n}") for n in range(3)])
        ids = [one.notification.id for one in made]
        await other.execute("BEGIN")
        await other.execute(_PUSHED, T)
        which = {"ids": ids[:2]} if by == "ids" else {"through": 2}
        marking = asyncio.ensure_future(store.mark(T, "ann", mark, at=NOW, **which))  # type: ignore[arg-type]
        await blocked_by(other, watcher, "UPDATE greendot_notifications")
        await other.execute("COMMIT")
        after = Inbox(3, 3 if mark == "seen" else 1, 1)
        assert await marking == (ids[:2], after)
        assert await recounted(store) == after
        again = await store.mark(T, "ann", mark, ids=ids[:2], at=NOW)
        assert again == ([], after)
