"""Migrations of PostgreSQL: made once by any server, and only when they are allowed."""

from __future__ import annotations

import asyncio

import pytest

from greendot.errors import ConfigError
from greendot.store.postgres import PostgresStore
from greendot.store.schema import steps
from greendot.testing.store_harness import T
from postgres_server import execute, fresh_schema

from .places import linked

STEPS = steps("postgres")
NAMES = [step.name for step in STEPS]


async def test_missing_tables_are_a_start_refused_with_what_to_do(postgres: str) -> None:
    async with fresh_schema(postgres) as place:
        with pytest.raises(
            ConfigError, match=r"do not exist yet\. Run `greendot migrate`.*GREENDOT_STORE_MIGRATE=true"
        ):
            await PostgresStore(place).start()
        assert await PostgresStore(place).migrate() == NAMES
        assert await PostgresStore(place).migrate() == []
        store = PostgresStore(place)
        await store.start()
        assert await store.rooms(T, None, 5) == []
        await store.close()


async def test_old_tables_are_refused_and_newer_ones_too(postgres: str) -> None:
    async with fresh_schema(postgres) as place:
        await PostgresStore(place).migrate()
        await execute(place, f"DELETE FROM greendot_schema WHERE version = {STEPS[-1].number}")
        with pytest.raises(ConfigError, match="Run `greendot migrate`"):
            await PostgresStore(place).start()
        await execute(place, "UPDATE greendot_schema SET version = 999 WHERE version = 1")
        for store in (PostgresStore(place), PostgresStore(place, migrate=True)):
            with pytest.raises(ConfigError, match="made by a newer Greendot; upgrade Greendot"):
                await store.start()


async def test_nodes_that_start_at_once_make_the_tables_once(postgres: str) -> None:
    async with fresh_schema(postgres) as place:
        stores = [PostgresStore(place, migrate=True, pool=1) for _ in range(6)]
        applied = await asyncio.gather(
            *(store.start() for store in stores), *(s.migrate() for s in [PostgresStore(place)])
        )
        assert applied[:6] == [None] * 6
        await stores[0].put_room(T, "lobby", open=True)
        assert all([await store.room(T, "lobby") is not None for store in stores])
        await asyncio.gather(*(store.close() for store in stores))
        async with linked(place) as link:
            assert [
                row["name"] for row in await link.fetch("SELECT name FROM greendot_schema ORDER BY version")
            ] == NAMES


async def test_every_table_carries_our_name(postgres: str) -> None:
    async with fresh_schema(postgres) as place:
        await PostgresStore(place).migrate()
        async with linked(place) as link:
            tables = await link.fetch(
                "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace"
            )
            assert len(tables) > 15
            assert all(row["relname"].startswith("greendot_") for row in tables)


async def test_a_role_that_may_not_create_tables_is_refused(postgres: str) -> None:
    async with fresh_schema(postgres) as place:
        await execute(postgres, "DROP ROLE IF EXISTS reader; CREATE ROLE reader LOGIN")
        reader = place.replace("postgres@", "reader@")
        with pytest.raises(ConfigError, match=r"cannot use the store postgresql://\S+: (permission denied|no schema)"):
            await PostgresStore(reader).migrate()
