"""Migrations of the tables in PostgreSQL: numbered steps, forward only, once each."""

from __future__ import annotations

from importlib import resources

from greendot.errors import ConfigError
from greendot.store.postgres.pool import Link, Pool
from greendot.store.schema import steps

LOCK = 0x677265656E646F74  # "greendot": advisory lock that serialises nodes that start at once
_TABLE = """
    CREATE TABLE IF NOT EXISTS greendot_schema (
        version    integer PRIMARY KEY,
        name       text NOT NULL,
        applied_at timestamptz NOT NULL DEFAULT now()
    )
"""
_LIMIT_S = 3600.0


async def version(links: Pool) -> int:
    """Return the version of the tables; 0 if there are none."""
    if (await links.fetch("SELECT to_regclass('greendot_schema') IS NULL"))[0][0]:
        return 0
    found = (await links.fetch("SELECT coalesce(max(version), 0) FROM greendot_schema"))[0][0]
    return int(found)


async def check(links: Pool) -> None:
    """Raise ConfigError unless the tables have the version that this Greendot needs."""
    found, wanted = await version(links), steps("postgres")[-1].number
    if found > wanted:
        raise ConfigError("the tables in PostgreSQL were made by a newer Greendot; upgrade Greendot.")
    if found < wanted:
        there = f"are of version {found}, and {wanted} is needed" if found else "do not exist yet"
        raise ConfigError(
            f"the tables in PostgreSQL {there}. Run `greendot migrate` once, with the same settings, or let the server "
            "do it when it starts: GREENDOT_STORE_MIGRATE=true."
        )


async def migrate(links: Pool) -> list[str]:
    """Apply missing steps, all or none; return their names. Safe when two nodes start at once."""

    async def work(link: Link) -> list[str]:
        await link.execute("SET LOCAL statement_timeout = 0")
        await link.execute("SET LOCAL lock_timeout = 0")
        await link.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
        await link.execute(_TABLE)
        found = await link.fetchval("SELECT coalesce(max(version), 0) FROM greendot_schema")
        missing = [step for step in steps("postgres") if step.number > found]
        for step in missing:
            await link.execute(step.sql)
            await link.execute("INSERT INTO greendot_schema (version, name) VALUES ($1, $2)", step.number, step.name)
        if missing:
            await link.execute(outbox_sql())
        return [step.name for step in missing]

    return await links.transact_once(work, _LIMIT_S)


def outbox_sql() -> str:
    """Return the SQL that creates the outbox, in the store or in the app's database. Safe to run again."""
    return resources.files(__package__).joinpath("outbox.sql").read_text()
