"""`greendot repair counters`: planted drift is found and corrected, and none occurs without it."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec

from cli.stores import both_stores, opened, said
from greendot.store.inbox import Filter, Mark, Notice
from greendot.store.port import Store
from postgres_server import execute

T = "default"
RIGHT = "All counters are correct.\n"


async def plant(url: str, sql: str) -> None:
    if url.startswith("postgresql"):
        await execute(url, sql)
    else:
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as db, db:
            db.execute(sql.replace("greendot_", "").replace("user_id", "user"))
        db.close()


@both_stores
async def test_drift_is_found_and_set_right(kind: str, tmp_path: Path, postgres: str) -> None:
    async with opened(kind, tmp_path, postgres) as (url, store):
        repair = ("repair", "counters", "--store", url)
        assert await said(*repair) == RIGHT
        await store.notify([Notice(T, user, "k", b"1", f"k{n}", 1) for user in ("alice", "bob") for n in range(3)])
        assert await said(*repair) == RIGHT
        await plant(url, "UPDATE greendot_inboxes SET unread = 7, unseen = 0 WHERE user_id = 'bob'")
        table = "TENANT   USER  HEAD  UNREAD  UNSEEN\ndefault  bob   3     7 → 3   0 → 3\n"
        assert await said(*repair, "--dry-run", code=1) == table + "1 inbox would be corrected.\n"
        assert msgspec.json.decode(await said(*repair, "--dry-run", "--json", code=1)) == {
            "wrong": [
                {
                    "tenant": "default",
                    "user": "bob",
                    "kept": {"head": 3, "unread": 7, "unseen": 0},
                    "counted": {"head": 3, "unread": 3, "unseen": 3},
                }
            ],
            "fixed": False,
        }
        assert (await store.inbox(T, "bob")).unread == 7
        assert await said(*repair) == table + "1 inbox corrected.\n"
        assert (await store.inbox(T, "bob")).unread == 3
        assert await said(*repair, "--json") == '{"wrong":[],"fixed":true}\n'


@both_stores
async def test_there_is_no_drift_after_anything_users_do_at_once(kind: str, tmp_path: Path, postgres: str) -> None:
    async with opened(kind, tmp_path, postgres) as (url, store):
        dice = random.Random(4)
        await asyncio.gather(*(life(store, dice, number) for number in range(12)))
        assert await said("repair", "counters", "--dry-run", "--store", url) == RIGHT
        assert any([(await store.inbox(T, user)).head for user in USERS])


USERS = [f"u{n}" for n in range(4)]
MARKS: list[Mark] = ["seen", "read", "archive", "ack"]
FILTERS: list[Filter] = ["all", "unread", "unseen", "archived"]


async def life(store: Store, dice: random.Random, number: int) -> None:
    for step in range(25):
        user, at = dice.choice(USERS), number * 100 + step
        match dice.randrange(4):
            case 0:
                keys = [f"{number}-{step}-{dice.randrange(3)}" for _ in range(dice.randrange(1, 6))]
                expires_at = at + 500 if dice.random() < 0.3 else None
                await store.notify([Notice(T, dice.choice(USERS), "k", b"1", key, at, expires_at) for key in keys])
            case 1:
                await store.mark(T, user, dice.choice(MARKS), through=dice.randrange(1, 40), at=at)
            case 2:
                page = await store.notifications(T, user, limit=5, only=dice.choice(FILTERS))
                await store.mark(T, user, dice.choice(MARKS), ids=[entry.id for entry in page], at=at)
            case _:
                await store.prune(at, keep_ms=800, limit=3)
