"""Erasure of a user covers every table with data of users."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import asyncpg

from greendot.store.postgres import PostgresStore
from greendot.store.postgres.user_data import _COLUMNS
from greendot.store.sqlite import SqliteStore
from greendot.store.sqlite.user_data import _tables
from greendot.store.user_data import tables_of
from postgres_server import fresh_schema

# Tables without data of users, each with the reason. A new table must be listed here, or have a column `user`
# (`user_id`). Rows with such a column are erased automatically.
OF_NOBODY = {
    "rooms": "names and numbers of rooms",
    "reaction_counts": "numbers of users",
    "tenants": "names of tenants",
    "api_keys": "keys of apps",
    "api_secrets": "hashes of keys of apps",
    "hooks": "state of a tenant's webhook",
    "hook_events": "events that wait for apps; those of a user's inbox are erased with it",
    "revocations": "kept until they expire, or revoked tokens of the user would be valid again",
    "revocations_head": "a number",
    "visibility_heads": "numbers of changes",
    "audit_heads": "numbers of entries",
    "room_deletions": "names of rooms that are being deleted",
    "jobs": "due times; the cursor of a running job names a user until the run ends",
    "job_runs": "outcomes of runs",
    "schema": "the version of the tables",
    "sqlite_sequence": "internal table of SQLite",
}
PEOPLE = {
    "audit",
    "contacts",
    "inboxes",
    "last_seen",
    "markers",
    "members",
    "messages",
    "notifications",
    "presence_modes",
    "privacy",
    "push_devices",
    "pushes",
    "reactions",
    "reminders",
    "status",
    "visibility_changes",
}


async def test_every_table_in_sqlite_has_a_user_column_or_is_known_to_hold_no_user_data(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "store.db"))
    await store.start()
    await store.close()
    db = sqlite3.connect(tmp_path / "store.db")
    try:
        names = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        of_users = {table.plain for table in _tables(db)}
    finally:
        db.close()
    assert names - of_users - OF_NOBODY.keys() == set()
    assert of_users >= PEOPLE
    assert not of_users & OF_NOBODY.keys()


async def test_every_table_in_postgres_has_a_user_column_or_is_known_to_hold_no_user_data(postgres: str) -> None:
    async with fresh_schema(postgres) as url:
        store = PostgresStore(url, migrate=True)
        await store.start()
        await store.close()
        link = await asyncpg.connect(url)
        try:
            found = await link.fetch(_COLUMNS)
        finally:
            await link.close()
    without_key = {row[0] for row in found if not row[2]}  # rows are erased by their primary key
    assert without_key == {"greendot_revocations_head"}  # which holds no data of users
    tables = tables_of({row[0]: row[1] for row in found}, {row[0]: row[2] or [] for row in found}, "greendot_")
    of_users = {table.plain for table in tables}
    assert {row[0].removeprefix("greendot_") for row in found} - of_users - OF_NOBODY.keys() == set()
    assert of_users >= PEOPLE
    assert not of_users & OF_NOBODY.keys()
