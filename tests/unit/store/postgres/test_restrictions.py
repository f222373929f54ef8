"""Mutes and bans in PostgreSQL while other transactions write to rooms."""

from __future__ import annotations

import asyncio

import pytest

from greendot.errors import StoreUnavailable
from greendot.store.postgres.messages import LOCK
from greendot.store.restrictions import EVERYWHERE
from greendot.testing import hold
from greendot.testing.restriction_suite import made, restrict
from greendot.testing.store_harness import T
from postgres_server import fresh_schema

from .places import QUICK, linked, started


async def test_a_mute_in_the_tenant_waits_for_writers_that_may_not_have_seen_it_and_for_no_later_ones(
    postgres: str,
) -> None:
    async with fresh_schema(postgres) as place, started(place) as store, linked(place) as early, linked(place) as late:
        for room in ("r1", "r2"):
            await store.put_room(T, room)
        await early.execute("BEGIN")
        await early.fetch(LOCK, [T], ["r1"])  # as an append that has read the restrictions and has not committed
        async with hold(store, "_writers", at="after") as listed:
            muting = asyncio.ensure_future(restrict(store, made("mute", EVERYWHERE)))
            await listed.reached()
            await late.execute("BEGIN")
            await late.fetch(LOCK, [T], ["r2"])
        done, _ = await asyncio.wait([muting], timeout=0.1)
        assert not done, "the early writer may still commit a message"
        await early.execute("COMMIT")
        written = await asyncio.wait_for(muting, 5)
        assert written is not None
        assert written.changed
        await late.execute("COMMIT")


async def test_a_writer_that_does_not_end_makes_the_mute_fail_and_it_can_be_repeated(postgres: str) -> None:
    async with fresh_schema(postgres) as place, started(place, QUICK) as store, linked(place) as writer:
        await store.put_room(T, "r1")
        await writer.execute("BEGIN")
        await writer.fetch(LOCK, [T], ["r1"])
        with pytest.raises(StoreUnavailable, match="does not end"):
            await restrict(store, made("mute", EVERYWHERE))
        await writer.execute("COMMIT")
        again = await restrict(store, made("mute", EVERYWHERE))
        assert again is not None
        assert (again.changed, again.entry is None) == (False, False)
