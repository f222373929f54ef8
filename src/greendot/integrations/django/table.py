"""Table of the outbox in the app's database, for migrations."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from django.db import ProgrammingError

NEEDED = {"id", "tenant", "target", "user_id", "room", "kind", "name", "body", "key", "expires_at", "created_at"} | {
    "attempts",
    "error",
    "failed_at",
    "shard",
    "importance",
    "collapse_key",
    "push",
}
_COLUMNS = """
    SELECT attname::text FROM pg_attribute
    WHERE attrelid = to_regclass('greendot_outbox') AND attnum > 0 AND NOT attisdropped
"""
_DROP = "DROP TABLE IF EXISTS greendot_outbox; DROP FUNCTION IF EXISTS greendot_outbox_tell()"


def outbox_sql() -> str:
    """Return the SQL of `greendot outbox install`, read as a file: the store itself is not loaded."""
    return files("greendot").joinpath("store", "postgres", "outbox.sql").read_text(encoding="utf-8")


def create_table(apps: Any, editor: Any) -> None:
    """Create the table in PostgreSQL, or add missing columns. A complete table may belong to another role.

    Other databases are left as they are: the system check greendot.W001 gives the reason.
    """
    if editor.connection.vendor != "postgresql":
        return
    if _columns(editor.connection) >= NEEDED:
        return
    try:
        editor.execute(outbox_sql())
    except ProgrammingError as error:
        remedy = "Run it once as the owner of the table, or of the schema: greendot outbox install --url URL"
        raise ProgrammingError(f"{error} {remedy}") from error


def drop_table(apps: Any, editor: Any) -> None:
    """Drop the table if it has no rows. Rows are notifications that were promised to users."""
    if editor.connection.vendor != "postgresql" or not _columns(editor.connection):
        return
    with editor.connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM greendot_outbox")
        (rows,) = cursor.fetchone()
    if rows:
        raise ProgrammingError(
            f"greendot_outbox still has {rows} rows. Wait until Greendot has sent them, or delete them; "
            "see: greendot outbox status"
        )
    editor.execute(_DROP)


def _columns(connection: Any) -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute(_COLUMNS)
        return {row[0] for row in cursor.fetchall()}
