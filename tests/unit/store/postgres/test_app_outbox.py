"""App outbox in PostgreSQL: valid rows, installation, and wake-ups. tests/unit/app_outbox covers relays."""

from __future__ import annotations

import asyncio
import re

import asyncpg
import pytest

from greendot.errors import ConfigError, StoreUnavailable
from greendot.store.app_outbox import SHARDS
from greendot.store.postgres import PostgresOutbox
from greendot.store.postgres.app_outbox import COUNT, OLDEST, TAKE, WAITING
from greendot.store.postgres.migrations import outbox_sql
from postgres_server import execute, fresh_schema

from .places import linked

INSERT = "INSERT INTO greendot_outbox (target, room, user_id, kind, body)"
MADE = [
    "table greendot_outbox",
    "index greendot_outbox_pkey",
    "index greendot_outbox_set_aside",
    "index greendot_outbox_waiting",
    "trigger greendot_outbox_tell",
]


def older_sql() -> str:
    """Return the SQL of an outbox as earlier versions installed it."""
    return re.sub(r"^ALTER TABLE greendot_outbox\n.*?;", "", outbox_sql(), flags=re.MULTILINE | re.DOTALL)


async def test_the_outbox_can_be_installed_anywhere_and_again_and_wakes_who_listens_once(postgres: str) -> None:
    async with fresh_schema(postgres) as place, linked(place) as app, linked(place) as relay:
        for _ in range(2):
            await app.execute(outbox_sql())
        heard: asyncio.Queue[str] = asyncio.Queue()
        await relay.add_listener("greendot_outbox", lambda *told: heard.put_nowait(told[2]))
        async with app.transaction():
            for number in range(3):
                await app.execute(
                    "INSERT INTO greendot_outbox (target, user_id, kind, body) VALUES ('notification', 'ann', 'k', $1)",
                    f'{{"n": {number}}}',
                )
            await app.execute(
                "INSERT INTO greendot_outbox (target, room, user_id, body) VALUES ('message', 'lobby', 'ann', '1')"
            )
        async with asyncio.timeout(10):
            await heard.get()
        rows = await relay.fetch("SELECT tenant, target, attempts, failed_at FROM greendot_outbox ORDER BY id")
        assert [tuple(row) for row in rows] == [("default", "notification", 0, None)] * 3 + [
            ("default", "message", 0, None)
        ]
        await relay.execute("SELECT 1")
        assert heard.empty()


@pytest.mark.parametrize(
    "values",
    [
        "('message', NULL, 'ann', 'k', '1')",
        "('notification', 'r', 'ann', NULL, '1')",
        "('letter', 'r', 'ann', 'k', '1')",
    ],
)
async def test_what_could_never_be_sent_does_not_get_into_the_outbox(postgres: str, values: str) -> None:
    async with fresh_schema(postgres) as place, linked(place) as app:
        await app.execute(outbox_sql())
        with pytest.raises(asyncpg.CheckViolationError):
            await app.execute(f"{INSERT} VALUES {values}")


async def test_a_body_that_is_not_json_fails_in_the_apps_own_transaction(postgres: str) -> None:
    async with fresh_schema(postgres) as place, linked(place) as app:
        await app.execute(outbox_sql())
        with pytest.raises(asyncpg.InvalidTextRepresentationError):
            await app.execute(f"{INSERT} VALUES ('notification', NULL, 'ann', 'k', '{{')")


async def test_an_install_lists_what_it_created_and_may_run_several_times_at_once(postgres: str) -> None:
    async with fresh_schema(postgres) as place:
        outbox = PostgresOutbox(place)
        with pytest.raises(ConfigError, match=r"there is no table greendot_outbox at postgresql://127.*outbox install"):
            await outbox.check()
        made = await asyncio.gather(*(outbox.install() for _ in range(5)))
        assert sorted(made, key=len) == [[], [], [], [], MADE]
        await outbox.check()
        await execute(place, "DROP TRIGGER greendot_outbox_tell ON greendot_outbox; DROP INDEX greendot_outbox_waiting")
        assert await outbox.install() == [MADE[3], MADE[4]]


async def test_an_install_adds_the_new_columns_to_an_older_table_and_keeps_its_rows(postgres: str) -> None:
    async with fresh_schema(postgres) as place, linked(place) as app:
        outbox = PostgresOutbox(place)
        await app.execute(older_sql())
        await app.execute(f"{INSERT} VALUES ('notification', NULL, 'ann', 'k', '1')")
        assert not await outbox.check()
        made = await asyncio.gather(*(outbox.install() for _ in range(3)))
        assert sorted(made, key=len) == [[], [], ["column collapse_key", "column importance", "column push"]]
        assert await outbox.check()
        row = await app.fetchrow("SELECT user_id, importance, collapse_key, push, failed_at FROM greendot_outbox")
        assert tuple(row) == ("ann", None, None, None, None)


async def test_a_relay_reads_an_older_table_and_the_new_columns_once_they_are_added(postgres: str) -> None:
    """The session is open all the time: another server, or an operator, upgrades the table."""
    columns = "(target, user_id, kind, body, importance, collapse_key, push)"
    async with fresh_schema(postgres) as place, linked(place) as app:
        outbox = PostgresOutbox(place)
        await app.execute(older_sql())
        async with outbox.session(lambda: None) as session:
            for number in range(12):  # prepared statements get a generic plan after some executions
                await app.execute(f"{INSERT} VALUES ('notification', NULL, 'ann', 'k', $1)", str(number))
                ((shard,),) = await app.fetch("SELECT DISTINCT shard FROM greendot_outbox")
                rows = await session.take(shard, 100)
                assert [row.body for row in rows] == [str(at) for at in range(number + 1)]
                assert {(row.importance, row.collapse_key, row.push) for row in rows} == {(None, None, None)}
            await outbox.install()
            await app.execute(
                f"INSERT INTO greendot_outbox {columns} VALUES ('notification', 'ann', 'k', '12', 'high', 'c', false)"
            )
            *older, newest = await session.take(shard, 100)
            assert (newest.importance, newest.collapse_key, newest.push) == ("high", "c", False)
            assert {(row.importance, row.collapse_key, row.push) for row in older} == {(None, None, None)}


async def test_rows_set_aside_are_listed_in_the_order_they_were_inserted(postgres: str) -> None:
    async with fresh_schema(postgres) as place, linked(place) as app:
        outbox = PostgresOutbox(place)
        await outbox.install()
        for _ in range(4):
            await app.execute(f"{INSERT} VALUES ('message', 'lobby', 'ann', NULL, '1')")
        ids = [row[0] for row in await app.fetch("SELECT id FROM greendot_outbox ORDER BY id")]
        for number in (ids[2], ids[0], ids[1]):
            await app.execute("UPDATE greendot_outbox SET failed_at = clock_timestamp() WHERE id = $1", number)
        status = await outbox.status(2)
        assert [row.id for row in status.poison] == ids[:2]
        assert (status.waiting, status.set_aside) == (1, 3)


async def test_an_app_that_may_only_insert_can_use_it(postgres: str) -> None:
    async with fresh_schema(postgres) as place:
        await PostgresOutbox(place).install()
        schema = place.rpartition("=")[2]
        await execute(postgres, "DROP ROLE IF EXISTS outbox_app; CREATE ROLE outbox_app LOGIN")
        await execute(
            place, f"GRANT USAGE ON SCHEMA {schema} TO outbox_app; GRANT INSERT ON greendot_outbox TO outbox_app"
        )
        try:
            await execute(
                place.replace("postgres@", "outbox_app@"), f"{INSERT} VALUES ('notification', NULL, 'ann', 'k', '1')"
            )
        finally:
            await execute(place, "DROP OWNED BY outbox_app; DROP ROLE outbox_app")
        assert (await PostgresOutbox(place).status(1)).waiting == 1


async def test_an_older_table_is_refused_with_what_to_do(postgres: str) -> None:
    async with fresh_schema(postgres) as place:
        await execute(place, "CREATE TABLE greendot_outbox (id bigserial)")
        for call in (PostgresOutbox(place).check, PostgresOutbox(place).install):
            with pytest.raises(ConfigError, match=r"is outdated.* DROP it"):
                await call()


async def test_an_outbox_that_cannot_be_used_is_named_without_its_password() -> None:
    outbox = PostgresOutbox("postgresql://ann:hush@127.0.0.1:1/db")
    for call in (outbox.install(), outbox.status(1), outbox.retry(None)):
        with pytest.raises(ConfigError) as caught:
            await call
        assert str(caught.value).startswith("cannot use the outbox at postgresql://127.0.0.1:1/db: ")


async def test_an_unreachable_outbox_is_distinguished_from_one_with_a_wrong_url() -> None:
    with pytest.raises(StoreUnavailable):
        await PostgresOutbox("postgresql://127.0.0.1:1/db").check()
    with pytest.raises(ConfigError, match=r"cannot use the outbox at postgresql://127\.0\.0\.1:1/db: .*sslmode"):
        await PostgresOutbox("postgresql://ann:hush@127.0.0.1:1/db?sslmode=perhaps").check()


async def test_streams_are_spread_over_the_shards_and_found_by_an_index(postgres: str) -> None:
    async with fresh_schema(postgres) as place, linked(place) as app:
        await app.execute(outbox_sql())
        await app.execute(
            f"{INSERT} SELECT 'notification', NULL, 'u' || n % 500, 'k', '1' FROM generate_series(1, 20000) n"
        )
        assert (
            await app.fetchval(
                "SELECT max(c) FROM (SELECT count(DISTINCT shard) c FROM greendot_outbox GROUP BY user_id) x"
            )
            == 1
        )
        counts = await app.fetch("SELECT shard, count(*) FROM greendot_outbox GROUP BY shard")
        assert {row[0] for row in counts} == {*range(SHARDS)}
        await app.execute("ANALYZE greendot_outbox")
        looks = (
            (TAKE, "int, int", "(3, 10)"),
            (WAITING, "int[]", "('{1,2}')"),
            (OLDEST, "int[]", "('{1,2}')"),
            (COUNT, "int[], int", "('{1,2}', 100)"),
        )
        for sql, types, values in looks:
            await app.execute(f"PREPARE looked ({types}) AS {sql}")
            plan = "\n".join(row[0] for row in await app.fetch(f"EXPLAIN EXECUTE looked {values}"))
            assert "greendot_outbox_waiting" in plan, plan
            assert "Seq Scan" not in plan, plan
            assert "Bitmap" not in plan, plan
            assert "Sort" not in plan, plan
            await app.execute("DEALLOCATE looked")
