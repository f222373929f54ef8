"""Pushes and devices in PostgreSQL during other changes of the same rows.

A push that settles locks the head of its inbox, like every change of notifications. A row that expired is checked again
once it is locked.
"""

from __future__ import annotations

import asyncio

from greendot.store.postgres import PostgresStore
from greendot.store.push import Device, PushResult, Settled
from greendot.testing.store_harness import NOW, T, notice, recounted
from postgres_server import fresh_schema

from .places import blocked_by, linked, started

_LOCK = "SELECT FROM greendot_inboxes WHERE tenant = $1 AND user_id = 'ann' FOR UPDATE"


async def test_a_push_settles_after_the_transaction_that_holds_the_head_of_its_inbox(postgres: str) -> None:
    async with fresh_schema(postgres) as url, linked(url) as other, linked(url) as watcher:
        store = PostgresStore(url, migrate=True, pushed=[T])
        await store.start()
        try:
            await store.notify([notice("ann")])
            (push,) = await store.claim_pushes("w1", NOW, 10_000, 10, since=NOW)
            await other.execute("BEGIN")
            await other.execute(_LOCK, T)
            done = Settled(push.id, "", results=[PushResult("phone", "fcm", "sent", NOW)], tried=True, sent=["phone"])
            settling = asyncio.ensure_future(store.settle_pushes("w1", [done], [], NOW))
            await blocked_by(other, watcher, "greendot_inboxes")
            # The settling push holds no lock while it waits. The owner of the head can lock the push and the
            # notification.
            await other.execute("SELECT FROM greendot_pushes WHERE id = $1 FOR UPDATE NOWAIT", push.id)
            await other.execute("COMMIT")
            assert await settling == {push.id}
            assert (await store.notifications(T, "ann", limit=1))[0].push_at == NOW
            await recounted(store)
        finally:
            await store.close()


async def test_a_device_that_is_used_while_unused_ones_are_removed_stays(postgres: str) -> None:
    async with fresh_schema(postgres) as url, started(url) as store, linked(url) as other, linked(url) as watcher:
        await store.put_device(Device(T, "ann", "phone", "fcm", "t1", NOW, NOW))
        await store.put_device(Device(T, "ann", "tablet", "fcm", "t2", NOW, NOW))
        await other.execute("BEGIN")
        await other.execute("UPDATE greendot_push_devices SET used_at = used_at + 9 WHERE device = 'phone'")
        removing = asyncio.ensure_future(store.drop_unused_devices(NOW + 5, 10))
        await blocked_by(other, watcher, "greendot_push_devices")
        await other.execute("COMMIT")
        assert await removing == 1
        assert [device.device for device in await store.devices(T, "ann")] == ["phone"]


async def test_a_push_that_is_replayed_while_old_ones_are_removed_stays(postgres: str) -> None:
    async with fresh_schema(postgres) as url, linked(url) as other, linked(url) as watcher:
        store = PostgresStore(url, migrate=True, pushed=[T])
        await store.start()
        try:
            await store.notify([notice("ann", "k1"), notice("ann", "k2")])
            pushes = await store.claim_pushes("w1", NOW, 10_000, 10, since=NOW)
            dead = [Settled(push.id, "refused", results=[], tried=True, is_dead=True) for push in pushes]
            await store.settle_pushes("w1", dead, [], NOW)
            await other.execute("BEGIN")
            replay = "UPDATE greendot_pushes SET dead = false, over_at = NULL, due_at = 1 WHERE id = $1"
            await other.execute(replay, pushes[0].id)
            removing = asyncio.ensure_future(store.prune_pushes(NOW + 5, 10))
            await blocked_by(other, watcher, "greendot_pushes")
            await other.execute("COMMIT")
            assert await removing == 1
            assert [push.id for push in await store.claim_pushes("w2", NOW, 10_000, 10, since=NOW)] == [pushes[0].id]
        finally:
            await store.close()
