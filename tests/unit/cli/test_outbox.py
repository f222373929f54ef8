"""`greendot outbox`: installation, status and retry. tests/e2e covers servers that relay the outbox."""

from __future__ import annotations

import re

import msgspec
import pytest

from cli.calls import complaint
from cli.stores import said
from greendot.store.app_outbox import SetAside
from greendot.store.postgres import PostgresOutbox
from postgres_server import execute, fresh_schema

READY = "The outbox is ready. Set outbox.url (GREENDOT_OUTBOX_URL) of the servers to this database.\n"
INSERT = "INSERT INTO greendot_outbox (target, room, user_id, kind, body) VALUES"


async def test_the_outbox_is_installed_once_and_the_output_lists_what_was_created(postgres: str) -> None:
    async with fresh_schema(postgres) as place:
        made = await said("outbox", "install", "--url", place)
        assert made.startswith("Created table greendot_outbox.\n")
        assert made.endswith("Created trigger greendot_outbox_tell.\n" + READY)
        assert await said("outbox", "install", GREENDOT_OUTBOX_URL=place) == READY


async def test_what_waits_and_what_was_set_aside_is_shown_and_tried_again(postgres: str) -> None:
    async with fresh_schema(postgres) as place:
        await said("outbox", "install", GREENDOT_OUTBOX_URL="store", GREENDOT_STORE_URL=place)
        status = ("outbox", "status", "--url", place)
        assert await said(*status) == "No rows are waiting.\n"
        assert msgspec.json.decode(await said(*status, "--json")) == {
            "waiting": 0,
            "oldest_at": None,
            "set_aside": 0,
            "poison": [],
        }
        await execute(
            place, f"{INSERT} ('notification', NULL, 'ann', 'k', '1'), ('message', 'nowhere', 'ann', NULL, '1')"
        )
        async with PostgresOutbox(place).session(lambda: None) as session:
            for shard in await session.waiting(range(16)):
                for row in await session.take(shard, 10):
                    if row.room is not None:
                        await session.settle(shard, [], [SetAside(row.id, "there is no room 'nowhere'")])
        shown = await said(*status)
        assert re.fullmatch(
            r"Waiting rows: 1\. The oldest was written (now|\d+ s ago)\.\n"
            r"Rows that were set aside: 1\n"
            r"ID +TENANT +TARGET +RECIPIENT +ATTEMPTS +FAILED +REASON\n"
            r"2 +default +message +nowhere +1 +(now|\d+ s ago) +there is no room 'nowhere'\n"
            r"Correct the cause, then send them again: greendot outbox retry ID…\n",
            shown,
        ), shown
        (poison,) = msgspec.json.decode(await said(*status, "--json"))["poison"]
        assert (poison["id"], poison["room"], poison["error"]) == (2, "nowhere", "there is no room 'nowhere'")
        retried = await said("outbox", "retry", "1", "2", "--url", place)
        assert retried == "1 row will be sent.\nNot found, or not set aside: 1.\n"
        assert await said("outbox", "retry", "--all", "--url", place) == "No matching rows were set aside.\n"
        assert (await said(*status)).startswith("Waiting rows: 2. The oldest was written ")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["outbox", "status"], "outbox.url is not set"),
        (["outbox", "status", "--url", "store"], "the store is not in PostgreSQL"),
        (["outbox", "install", "--url", "mysql://db"], "outbox.url begins with 'mysql'"),
        (["outbox", "install", "--url", "postgresql://a:b/c@h/d"], "outbox.url has an unencoded / ? # or @"),
        (["outbox", "install", "--url", "postgresql://ann:hush@127.0.0.1:1/db"], "postgresql://127.0.0.1:1/db"),
        (["outbox", "retry"], "--all"),
        (["outbox", "retry", "1", "--all"], "--all"),
        (["outbox", "retry", "one"], "one"),
    ],
)
def test_what_cannot_be_meant_is_named(arguments: list[str], word: str) -> None:
    told = complaint(*arguments)
    assert word in told
    assert "hush" not in told


async def test_a_missing_outbox_is_reported_with_the_command_that_creates_it(postgres: str) -> None:
    async with fresh_schema(postgres) as place:
        with pytest.raises(AssertionError, match="run `greendot outbox install --url URL` once"):
            await said("outbox", "status", "--url", place)
