"""Repair of inbox counters that were corrupted by hand."""

from __future__ import annotations

from greendot.store.inbox import Inbox
from greendot.testing.store_harness import T, notice
from postgres_server import execute, fresh_schema

from .places import started


async def test_drift_is_reported_and_repaired(postgres: str) -> None:
    async with fresh_schema(postgres) as place, started(place) as store:
        await store.notify([notice(user, f"k{n}") for user in ("ann", "bob", "cy") for n in range(3)])
        assert await store.recount(fix=True) == []
        await execute(place, "UPDATE greendot_inboxes SET unread = 7, unseen = 1 WHERE user_id = 'bob'")
        await execute(place, "DELETE FROM greendot_inboxes WHERE user_id = 'cy'")
        wrong = [((T, "bob"), Inbox(3, 7, 1), Inbox(3, 3, 3)), ((T, "cy"), Inbox(), Inbox(3, 3, 3))]
        assert await store.recount(fix=False) == wrong
        assert await store.recount(fix=True) == wrong
        assert await store.recount(fix=False) == []
        assert await store.inbox(T, "bob") == Inbox(3, 3, 3)
        (created,) = await store.notify([notice("cy", "new")])
        assert created.notification.seq == 4
