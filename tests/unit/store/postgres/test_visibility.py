"""Changes of visibility in PostgreSQL: no change is missed, whatever the order of the commits."""

from __future__ import annotations

import asyncio

from greendot.store.visibility import Changes, Revision
from greendot.testing.store_harness import T
from postgres_server import fresh_schema

from .places import blocked_by, linked, started

_HIDE = "INSERT INTO greendot_privacy VALUES ($1, $2, 'hidden', '', 1)"


async def test_a_change_with_a_number_is_committed_before_any_later_number(postgres: str) -> None:
    async with fresh_schema(postgres) as url, started(url) as store, linked(url) as slow, linked(url) as watcher:
        await slow.execute("BEGIN")
        await slow.execute(_HIDE, T, "slow")
        await slow.execute("SET CONSTRAINTS ALL IMMEDIATE")  # as at the start of a commit: the change has its number
        hiding = asyncio.ensure_future(store.put_privacy(T, "fast", last_seen="hidden"))
        await blocked_by(slow, watcher, "greendot_privacy")
        await store.put_privacy("t2", "eve", last_seen="hidden")  # other tenants do not wait
        assert await store.changes([(T, "privacy", Revision())]) == [Changes(Revision(), frozenset())]
        await slow.execute("COMMIT")
        await hiding
        (found,) = await store.changes([(T, "privacy", Revision())])
        assert (found.users, found.revision.number) == ({"slow", "fast"}, 2)


async def test_a_transaction_that_takes_long_gets_its_number_at_its_commit(postgres: str) -> None:
    async with fresh_schema(postgres) as url, started(url) as store, linked(url) as slow:
        await slow.execute("BEGIN")
        await slow.execute(_HIDE, T, "slow")
        await store.put_privacy(T, "fast", last_seen="hidden")  # does not wait
        (first,) = await store.changes([(T, "privacy", Revision())])
        await slow.execute("COMMIT")
        (second,) = await store.changes([(T, "privacy", first.revision)])
        assert (first.users, second.users) == ({"fast"}, {"slow"})


async def test_a_change_that_is_rolled_back_has_no_number(postgres: str) -> None:
    async with fresh_schema(postgres) as url, started(url) as store, linked(url) as other:
        await other.execute("BEGIN")
        await other.execute(_HIDE, T, "slow")
        await other.execute("SET CONSTRAINTS ALL IMMEDIATE")
        await other.execute("ROLLBACK")
        await store.put_privacy(T, "ann", last_seen="hidden")
        (found,) = await store.changes([(T, "privacy", Revision())])
        assert (found.users, found.revision.number) == ({"ann"}, 1)


async def test_rows_that_another_program_writes_without_a_search_path_are_changes_too(postgres: str) -> None:
    async with fresh_schema(postgres) as url, started(url) as store, linked(url) as other:
        schema = await other.fetchval("SELECT current_schema()")
        await other.execute("SET search_path = ''")  # as pg_restore does
        await other.execute(_HIDE.replace("greendot_privacy", f"{schema}.greendot_privacy"), T, "ann")
        (found,) = await store.changes([(T, "privacy", Revision())])
        assert found.users == {"ann"}
