"""`greendot migrate`. tests/e2e/test_postgres.py covers servers that wait for it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from cli.calls import call, complaint
from greendot.store.schema import steps
from postgres_server import fresh_schema

UP_TO_DATE = "The tables are up to date.\n"


async def in_postgres(url: str, *arguments: str, **environment: str) -> str:
    """Return the output of a call. The call has an event loop of its own, so it runs in a thread."""
    result = await asyncio.to_thread(lambda: call(*arguments, GREENDOT_STORE_URL=url, **environment))
    assert result.exit_code == 0, result.output
    return result.output


def applied(store: str) -> str:
    return "".join(f"Applied {step.name}.\n" for step in steps(store))


async def test_tables_in_postgres_are_made_once(postgres: str) -> None:
    async with fresh_schema(postgres) as place:
        assert await in_postgres(place, "migrate") == applied("postgres") + UP_TO_DATE
        assert await in_postgres("", "migrate", "--store", place) == UP_TO_DATE


def test_a_file_is_made_with_its_tables(tmp_path: Path) -> None:
    path = tmp_path / "new" / "greendot.db"
    said = call("migrate", "--store", f"sqlite:///{path}").output
    assert said.startswith("Applied 0001_rooms_and_status.\nApplied 0002_roles_markers_inbox.\n")
    assert said == applied("sqlite") + UP_TO_DATE
    assert call("migrate", "--store", f"sqlite:///{path}").output == UP_TO_DATE


def test_a_store_that_is_not_there_is_named_without_its_password() -> None:
    said = complaint("migrate", "--store", "postgresql://ann:hush@127.0.0.1:1/db")
    assert said.startswith("cannot use the store postgresql://127.0.0.1:1/db: ")


def test_the_password_of_the_store_is_not_shown() -> None:
    result = call("check-config", GREENDOT_STORE_URL="postgresql://ann:hush@localhost/db?sslmode=require")
    assert 'url = "postgresql://localhost/db?sslmode=require"\n' in result.output
    assert "hush" not in result.output
    assert "ann:" not in result.output
