"""Query plans: pages of a long room or a full inbox are read by an index from their start, without scans or sorts."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from greendot.store.audit import ANY, AuditFilter
from greendot.store.inbox import Filter, Mark
from greendot.store.postgres import (
    PostgresStore,
    api_keys,
    audit,
    inbox,
    inbox_marks,
    inbox_upkeep,
    jobs,
    last_seen,
    markers,
    messages,
    moderation,
    pages,
    presence_modes,
    profiles,
    push,
    reactions,
    restrictions,
    rooms,
    status,
    tenants,
    visibility,
    webhooks,
)
from greendot.store.sqlite import SqliteStore
from greendot.store.sqlite import audit as lite_audit
from greendot.store.sqlite import inbox as lite_inbox
from greendot.store.sqlite import jobs as lite_jobs
from greendot.store.sqlite import last_seen as lite_last_seen
from greendot.store.sqlite import markers as lite_markers
from greendot.store.sqlite import messages as lite_messages
from greendot.store.sqlite import moderation as lite_moderation
from greendot.store.sqlite import presence_modes as lite_presence_modes
from greendot.store.sqlite import profiles as lite_profiles
from greendot.store.sqlite import reactions as lite_reactions
from greendot.store.sqlite import restrictions as lite_restrictions
from greendot.store.sqlite import rooms as lite_rooms
from greendot.store.sqlite import status as lite_status
from greendot.store.sqlite import webhooks as lite_hooks
from postgres_server import fresh_schema

FILTERS: tuple[Filter, ...] = ("all", "unread", "unseen", "archived")
MARKS: tuple[Mark, ...] = ("seen", "read", "archive", "ack")
MANY = 40_000  # rows of one room and one user, among a hundred small ones

# The statement of an export, which reads page by page.
BY_AUTHOR = """
    SELECT * FROM greendot_messages
    WHERE tenant = $1 AND user_id = $2 AND (room, key) > ($3, $4) ORDER BY room, key LIMIT 50
"""
AUDITS = {
    "audit": (ANY, ()),
    "audit of a room": (AuditFilter(room="r1"), ("r1",)),
    "audit of a user": (AuditFilter(user="u1"), ("u1",)),
    "audit of an action": (AuditFilter(action="user.banned"), ("user.banned",)),
}

REACTIONS_OF = """
    SELECT * FROM greendot_reactions
    WHERE tenant = $1 AND user_id = $2 AND (room, ref, reaction) > ($3, $4, $5) ORDER BY room, ref, reaction LIMIT 50
"""

POSTGRES: dict[str, tuple[str, tuple[Any, ...]]] = (
    {
        "room": (rooms.ROOM, ("t", "r1")),
        "rooms": (rooms.ROOMS, ("t", "r1", 10)),
        "heads": (rooms.HEADS, (["t", "t"], ["r1", "r2"])),
        "user_rooms": (rooms.USER_ROOMS, (["t"] * 3, ["r1", "r1", "r2"], ["u1", "u2", "u1"])),
        "role": (rooms.ROLE, ("t", "r1", "u1")),
        "members": (rooms.MEMBERS, ("t", "r1", "u5", 10)),
        "marker": (markers.MARKER, ("t", "r1", "u1")),
        "reading": (markers.PUT_MARKER, ("t", "r1", "u1", 7, 5)),
        "reader": (markers.READERS, (["t"] * 2, ["r1"] * 2, ["u1", "u2"], 5, 20)),
        "receipts": (markers.RECEIPTS, ("t", "r1", "u7", "u1", 40)),
        "count of receipts": (markers.COUNT_RECEIPTS, ("t", "r1", MANY - 20)),
        "message": (messages.MESSAGE, ("t", "r1", 5)),
        "messages to change": (messages.CHANGEABLE, (["t", "t"], ["r1", "r1"], [5, 6])),
        "deletion of a message": (moderation.DELETION, ("t", "r1", 5)),
        "erasure of a message": (moderation.ERASE_MESSAGE, ("t", "r1", 5)),
        "erasure of edits": (moderation.ERASE_EDITS, ("t", "r1", 5)),
        "history, newer": (messages.AFTER, ("t", "r1", 500, 2**62, 50)),
        "history, older": (messages.NEWEST, ("t", "r1", 0, 30_000, 50)),
        "lock of rooms": (messages.LOCK, (["t", "t"], ["r1", "r2"])),
        "messages of an author": (BY_AUTHOR, ("t", "u3", "r1", "k5")),
        "keys of messages and restricted authors": (
            messages.KNOWN_OR_RESTRICTED,
            (["t"] * 3, ["r1"] * 3, ["u1"] * 3, ["k1", "k2", "k3"], ["t"] * 2, ["u1", "u5"]),
        ),
        "last messages in slow mode": (messages.SENDS, (["t"] * 2, ["r1"] * 2, ["u1", "u2"])),
        "states of members": (rooms.MEMBER_STATES, (["t"] * 3, ["r1", "r1", "r2"], ["u1", "u2", "u1"])),
        "restrictions": (restrictions.LIST, ("t", "r1", "mute", "u5", 0, 20)),
        "ended restrictions": (restrictions.PRUNE, (20, 20)),
        "old times of slow mode": (restrictions.PRUNE_SENDS, (20, 20)),
        "keys of messages": (messages.KNOWN, (["t"] * 3, ["r1"] * 3, ["u1"] * 3, ["k1", "k2", "k3"])),
        "history with its room, newer": (pages.ROOM_AFTER, ("t", "r1", 500, 2**62, 50, "u1")),
        "history with its room, older": (pages.ROOM_NEWEST, ("t", "r1", 0, 30_000, 50, "u1")),
        "messages to react to": (
            reactions.LOADED,
            (["t"] * 2, ["r1"] * 2, [29_990, 5], ["u1", "u2"], ["x", "y"]),
        ),
        "removed reactions": (reactions.DELETE, (["t"] * 2, ["r1"] * 2, [29_990, 5], ["u1", "u2"], ["x", "x"])),
        "reactions of a user": (REACTIONS_OF, ("t", "u3", "r1", 5, "w")),
        "unread": (inbox.INBOX, ("t", "u1")),
        "inboxes": (inbox.INBOXES, (["t", "t"], ["u1", "u2"])),
        "lock of inboxes": (inbox.LOCK, (["t", "t"], ["u1", "u2"])),
        "keys of notifications": (inbox.KNOWN, (["t"] * 3, ["u1"] * 3, ["k1", "k2", "k3"])),
        "statuses": (status.STATUSES, (["t", "t"], ["u1", "u2"])),
        "profiles": (profiles.PROFILES, (["t", "t"], ["u1", "u2"])),
        "last seen": (last_seen.LAST_SEEN, (["t", "t"], ["u1", "u2"])),
        "old last seen": (last_seen.PRUNE, (500, 20)),
        "presence modes": (presence_modes.MODES, (["t", "t"], ["u1", "u2"])),
        "presence modes of a tenant": (presence_modes.MODES_IN, (["t2"],)),
        "number of presence modes": (presence_modes.COUNT, ("t2", "u1")),
        "writing last seen": (last_seen.PUT, (["t", "t"], ["u1", "u2"], [5, MANY])),
        "old audit": (audit.PRUNE, (500, 20)),
        "pending": (inbox.PENDING, (["t", "t"], ["u1", "u2"], 10)),
        "delivered": (inbox_marks.delivered_sql("live"), (["t", "t"], ["u1", "u1"], [1, 2], 9)),
        "expired": (inbox_upkeep.EXPIRED, (5, 10)),
        "old": (inbox_upkeep.OLD, (5, 10)),
        "key of a secret": (api_keys.OF_SECRET, ("s1",)),
        "key by name": (api_keys.KEY, ("t", "k1")),
        "keys of a tenant": (api_keys.KEYS_OF, ("t7",)),
        "notifications to push": (push.NOTIFICATIONS, (["t", "t"], ["u1", "u1"], [5, 6])),
        "devices": (push.DEVICES, (["t", "t"], ["u1", "u2"])),
        "choices": (push.CHOICES, (["t", "t"], ["u1", "u2"])),
        "recent pushes": (push.RECENT, (["t", "t"], ["u1", "u2"], 5)),
        "tenants of the oldest pushes": (push.DUE, (MANY, 20)),
        "tenants with a backlog of pushes": (push.BACKLOG, (MANY, 20)),
        "claim of pushes": (push.CLAIM, (MANY, "w1", 2 * MANY, ["t", "t7"], [10, 5])),
        "push of a notification": (push.OF, ("t", "n1")),
        "held pushes of a user": (push.RECHECK, ("t5", "u5", 5)),
        "who has something unread": (jobs.UNREAD, ("t", "u5", 20)),
        "who hides something": (visibility.RESTRICTED, ("t", "u5", 20)),
        "changes of visibility": (visibility.CHANGES, (["t", "t"], ["members", "privacy"], [4_970, 0])),
        "count of hook events": (webhooks.DEPTHS, (["t", "t1", "none"], 50)),
    }
    | {
        f"{name}, {newest}": (audit.page_sql(only, newest=newest), ("t", 0, 2**62, 50, *values))
        for name, (only, values) in AUDITS.items()
        for newest in (False, True)
    }
    | {
        f"inbox, {only}, {order}": (inbox.page_sql(only, order), ("t", "u1", 0, 2**62, 50))
        for only in FILTERS
        for order in ("ASC", "DESC")
    }
    | {
        f"inbox with its head, {only}, {order}": (pages.inbox_page_sql(only, order), ("t", "u1", 0, 2**62, 50))
        for only in FILTERS
        for order in ("ASC", "DESC")
    }
    | {
        f"marking {mark}": (inbox_marks.mark_sql(mark, inbox_marks.THROUGH), ("t", "u1", 9, 0, 39_999, 50))
        for mark in MARKS
    }
    | {
        f"marking these {mark}": (inbox_marks.mark_sql(mark, inbox_marks.IDS), ("t", "u1", 9, [1, 2], ["1-x", "2-x"]))
        for mark in MARKS
    }
)

FILL = f"""
    INSERT INTO greendot_rooms (tenant, room, open, head)
        SELECT 't', 'r' || n, false, {MANY} FROM generate_series(1, 2000) n;
    INSERT INTO greendot_members SELECT 't', 'r' || n % 50, 'u' || n, 'member' FROM generate_series(1, 5000) n;
    INSERT INTO greendot_markers SELECT 't', 'r' || n % 50, 'u' || n, 1 FROM generate_series(1, 5000) n;
    INSERT INTO greendot_receipts SELECT 't', 'r1', 'u' || n, n, '' FROM generate_series(1, {MANY}) n;
    INSERT INTO greendot_receipts SELECT 't', 'r' || n % 50, 'w' || n, 1, 'x' FROM generate_series(1, 5000) n;
    UPDATE greendot_rooms SET receipts = true WHERE room = 'r1';
    INSERT INTO greendot_api_keys SELECT 't' || n % 500, 'k' || n, 'admin', 1 FROM generate_series(1, 2000) n;
    INSERT INTO greendot_api_secrets
        SELECT 's' || n, 't' || n % 500, 'k' || n, '1', 1, NULL, NULL FROM generate_series(1, 2000) n;
    INSERT INTO greendot_presence_modes SELECT 't', 'u' || n, 'poll' FROM generate_series(1, 20000) n;
    INSERT INTO greendot_last_seen SELECT 't', 'u' || n, n FROM generate_series(1, 20000) n;
    INSERT INTO greendot_user_info SELECT 't', 'u' || n, 'name', NULL, n, n FROM generate_series(1, 5000) n;
    INSERT INTO greendot_audit (tenant, number, at, actor, action, room, user_id)
        SELECT 't', n, n, 'k', CASE WHEN n % 100 = 0 THEN 'user.banned' ELSE 'message.deleted' END, 'r' || n % 50,
               'u' || n % 99 FROM generate_series(1, 20000) n;
    INSERT INTO greendot_restrictions
        SELECT 't', 'u' || n, CASE WHEN n % 3 = 0 THEN '' ELSE 'r' || n % 50 END, 'mute', n, n, 'k', NULL
        FROM generate_series(1, 20000) n;
    INSERT INTO greendot_slow_sends SELECT 't', 'u' || n, 'r' || n % 50, n FROM generate_series(1, 20000) n;
    INSERT INTO greendot_revocations SELECT 't', 'user', 'u' || n, n, n, n FROM generate_series(1, 5000) n;
    INSERT INTO greendot_privacy
        SELECT 't', 'u' || n, CASE WHEN n % 100 = 0 THEN 'hidden' ELSE 'shown' END, '', 1
        FROM generate_series(1, 2000) n;
    INSERT INTO greendot_status SELECT 't', 'u' || n, 'busy', NULL, NULL, 1 FROM generate_series(1, 2000) n;
    INSERT INTO greendot_messages
        SELECT 't', 'r1', n, n, 'u' || n % 7, NULL, '1', 'k' || n, n FROM generate_series(1, {MANY}) n;
    UPDATE greendot_messages SET op = 'edit', ref = seq - 1 WHERE seq % 20 = 0;
    INSERT INTO greendot_messages SELECT 't', 'r' || n, 1, n, 'u1', NULL, '1', 'k1', n FROM generate_series(2, 2000) n;
    INSERT INTO greendot_reactions
        SELECT 't', 'r1', n, 'u' || m, 'x', n FROM generate_series(1, {MANY}, 2) n, generate_series(1, 2) m;
    INSERT INTO greendot_reactions SELECT 't', 'r1', 29990, 'u' || n, 'x', n FROM generate_series(1, 5000) n;
    INSERT INTO greendot_inboxes SELECT 't', 'u' || n, {MANY}, 0, 0 FROM generate_series(1, 2000) n;
    INSERT INTO greendot_notifications
        (tenant, user_id, seq, id, kind, body, key, created_at, expires_at, seen_at, read_at, archived_at)
        SELECT 't', 'u1', n, n || '-x', 'k', '1', 'k' || n, n, CASE WHEN n % 9 = 0 THEN n END, 1,
               CASE WHEN n % 500 > 0 THEN 1 END, CASE WHEN n % 100 > 0 THEN 1 END FROM generate_series(1, {MANY}) n;
    INSERT INTO greendot_notifications (tenant, user_id, seq, id, kind, body, key, created_at)
        SELECT 't', 'u' || n, 1, '1-x', 'k', '1', 'k1', n FROM generate_series(2, 2000) n;
    INSERT INTO greendot_push_devices
        SELECT 't', 'u' || n, 'd', 'fcm', 't' || n, 'h' || n, 1, n FROM generate_series(1, 2000) n;
    INSERT INTO greendot_reminders SELECT 't', 'u' || n, n FROM generate_series(1, 2000) n;
    INSERT INTO greendot_push_choices SELECT 't', 'u' || n, 'UTC', 1, 2 FROM generate_series(1, 2000) n;
    INSERT INTO greendot_pushes (tenant, user_id, seq, notification, importance, created_at, due_at, sent_at, over_at)
        SELECT 't', 'u' || n % 2000, n, 'n' || n, 'normal', n, CASE WHEN n % 10 = 0 THEN n END, n, n
        FROM generate_series(1, {MANY}) n;
    INSERT INTO greendot_pushes (tenant, user_id, seq, notification, importance, created_at, due_at)
        SELECT 't' || n % 20, 'u' || n, n, 'n' || n, 'normal', n, n FROM generate_series(1, 1000) n;
    INSERT INTO greendot_hook_events (tenant, phase, type, stream, at)
        SELECT 't', n % 3, 'room.message', 'r1', n FROM generate_series(1, {MANY}) n;
    INSERT INTO greendot_hook_events (tenant, type, stream, at)
        SELECT 't' || n % 50, 'room.message', 'r1', n FROM generate_series(1, 2000) n;
"""


@pytest.fixture(scope="module")
def filled(postgres: str) -> Iterator[str]:
    """Yield a schema with one long room and one full inbox among many small ones."""
    with asyncio.Runner() as runner:
        place = fresh_schema(postgres)
        url = runner.run(place.__aenter__())
        try:
            runner.run(fill(url))
            yield url
        finally:
            runner.run(place.__aexit__(None, None, None))


async def fill(url: str) -> None:
    await PostgresStore(url).migrate()
    link = await asyncpg.connect(url)
    try:
        await link.execute(FILL)
        await link.execute("ANALYZE")
    finally:
        await link.close()


@asynccontextmanager
async def linked(url: str) -> AsyncIterator[asyncpg.Connection]:
    link = await asyncpg.connect(url)  # with the server's own settings, which allow sequential scans
    try:
        yield link
    finally:
        await link.close()


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes(below)


@pytest.mark.parametrize("generic", [False, True], ids=["these values", "any values"])
@pytest.mark.parametrize("name", POSTGRES)
async def test_postgres_reads_by_index_and_no_more_than_it_answers(filled: str, name: str, generic: bool) -> None:
    sql, values = POSTGRES[name]
    async with linked(filled) as link:
        await link.execute(f"SET plan_cache_mode = {'force_generic_plan' if generic else 'force_custom_plan'}")
        await link.execute("BEGIN")  # never committed: some of these write
        plan = json.loads(await link.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", *values))[0]["Plan"]
        for node in nodes(plan):
            assert node["Node Type"] != "Seq Scan", plan
            if node["Node Type"] in ("Sort", "Bitmap Heap Scan", "Index Scan", "Index Only Scan"):
                assert node["Actual Rows"] <= 50, plan
                assert node.get("Rows Removed by Filter", 0) <= 10, plan


LARGE = (
    "rooms",
    "members",
    "markers",
    "receipts",
    "messages",
    "reactions",
    "reaction_counts",
    "inboxes",
    "notifications",
    "status",
    "api_secrets",
    "api_keys",
)
ERASED = [(f"greendot_{name}", part) for name in LARGE for part in tenants.PARTS.get(f"greendot_{name}", ("",))]


@pytest.mark.parametrize("generic", [False, True], ids=["these values", "any values"])
@pytest.mark.parametrize(("name", "part"), ERASED)
async def test_what_is_a_small_tenants_is_erased_without_a_look_at_anothers(
    filled: str, name: str, part: str, generic: bool
) -> None:
    async with linked(filled) as link:
        await link.execute(f"SET plan_cache_mode = {'force_generic_plan' if generic else 'force_custom_plan'}")
        for way in ("seqscan", "hashjoin", "mergejoin"):
            await link.execute(f"SET enable_{way} = off")  # as the store sets it
        (key,) = [row[1] for row in await link.fetch(tenants._TABLES) if row[0] == name]
        sql = f"EXPLAIN (ANALYZE, FORMAT JSON) {tenants.erase_sql(name, key, part)}"
        await link.execute("BEGIN")
        plan = json.loads(await link.fetchval(sql, "small", 50))[0]["Plan"]
        for node in nodes(plan):
            assert node["Node Type"] != "Seq Scan", plan
            assert node.get("Rows Removed by Filter", 0) == 0, plan


@pytest.mark.timing
@pytest.mark.parametrize("only", FILTERS)
async def test_a_page_far_back_takes_no_longer_than_the_newest(filled: str, only: Filter) -> None:
    store = PostgresStore(filled)
    await store.start()
    try:
        newest_s = 0.0
        for before in (None, None, 20_000, 700):  # the first one opens a connection
            start = time.perf_counter()
            page = await store.notifications("t", "u1", before=before, limit=50, only=only)
            took_s = time.perf_counter() - start
            newest_s = newest_s if before else took_s
            assert took_s < max(1.0, 10 * newest_s)
            assert len(page) <= 50
    finally:
        await store.close()


def test_no_statement_finds_rows_by_their_place() -> None:
    """A row that another transaction changes gets another place. So statements join by key."""
    for file in Path(webhooks.__file__).parent.iterdir():
        if file.suffix in (".py", ".sql"):
            assert not re.search(r"ctid (=|IN)|SELECT (\w+\.)?ctid", file.read_text()), file


# --- SQLite ---

LITE_BY_AUTHOR = (
    "SELECT * FROM messages WHERE tenant = ? AND user = ? AND (room, key) > (?, ?) ORDER BY room, key LIMIT 9"
)
SQLITE: dict[str, tuple[str, int]] = (
    {
        "room": (f"{lite_rooms.ROOM} WHERE tenant = ? AND room = ?", 2),
        "rooms": (lite_rooms.ROOMS, 3),
        "user_room": (lite_rooms.USER_ROOM, 3),
        "members": (lite_rooms.MEMBERS, 4),
        "count of members": (lite_rooms.COUNT, 2),
        "rooms of a user": (lite_rooms.ROOMS_OF, 3),
        "reader": (lite_markers.READER, 5),
        "receipts": (lite_markers.RECEIPTS, 5),
        "count of receipts": (lite_markers.COUNT_RECEIPTS, 3),
        "history, newer": (lite_messages.AFTER, 5),
        "history, older": (lite_messages.NEWEST, 5),
        "reactions of a page": (lite_reactions.PAGE, 5),
        "deletion of a message": (lite_moderation.DELETION, 3),
        "erasure of a message": (lite_moderation.ERASE_MESSAGE, 3),
        "erasure of edits": (lite_moderation.ERASE_EDITS, 3),
        "restricted author": (lite_messages.RESTRICTED, 3),
        "last message in slow mode": (lite_messages.LAST_SEND, 3),
        "state of a member": (lite_rooms.MEMBER_STATE, 3),
        "restrictions": (lite_restrictions.LIST, 6),
        "ended restrictions": (lite_restrictions.PRUNE, 2),
        "old times of slow mode": (lite_restrictions.PRUNE_SENDS, 2),
        "key of a message": (f"{lite_messages.MESSAGE} AND user = ? AND key = ?", 4),
        "messages of an author": (LITE_BY_AUTHOR, 4),
        "unread": (lite_inbox.INBOX, 2),
        "inboxes": (lite_inbox.INBOXES, 2),
        "statuses": (lite_status.STATUSES, 2),
        "profiles": (lite_profiles.PROFILES, 2),
        "last seen": (lite_last_seen.LAST_SEEN, 2),
        "old last seen": (lite_last_seen.PRUNE, 2),
        "presence mode": (lite_presence_modes.MODE, 2),
        "presence modes of a tenant": (lite_presence_modes.MODES, 1),
        "number of presence modes": (lite_presence_modes.OTHERS, 2),
        "writing last seen": (lite_last_seen.PUT, 3),
        "old audit": (lite_audit.PRUNE, 2),
        "pending": (lite_inbox.PENDING, 3),
        "expired": (lite_inbox.EXPIRED, 2),
        "old": (lite_inbox.OLD, 2),
        "who has something unread": (lite_jobs.UNREAD, 3),
        "count of hook events": (lite_hooks.DEPTH, 4),
        "first of hook events": (lite_hooks.FIRST, 2),
    }
    | {
        f"{name}, {newest}": (lite_audit.page_sql(only, newest=newest), 4 + len(values))
        for name, (only, values) in AUDITS.items()
        for newest in (False, True)
    }
    | {
        f"inbox, {only}, {order}": (lite_inbox.page_sql(only, order), 5)
        for only in FILTERS
        for order in ("ASC", "DESC")
    }
    | {f"to be marked {mark}": (lite_inbox.unmarked_sql(mark), 5) for mark in MARKS}
)


@pytest.mark.parametrize("name", SQLITE)
async def test_sqlite_reads_by_index(tmp_path: Path, name: str) -> None:
    path = tmp_path / "store.db"
    await SqliteStore(str(path)).migrate()
    sql, count = SQLITE[name]
    db = sqlite3.connect(path)
    try:
        plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", (1,) * count)]
    finally:
        db.close()
    searched = [line for line in plan if line.startswith("SEARCH")]
    assert searched, plan
    # Some statements gather a few rows first and scan those: the rooms of one user, the first unread notifications,
    # and counts with a limit.
    gathered = dict.fromkeys(("who has something unread", "count of hook events"), "SCAN (subquery-")
    row = ("SCAN CONSTANT ROW", "SCAN (subquery-")
    gathered["state of a member"] = row[0]
    gathered |= dict.fromkeys(("inboxes", "statuses"), "SCAN asked")  # the list of users
    gathered |= {"rooms of a user": "SCAN", "writing last seen": row[0], "receipts": row[1]}
    few = row if name == "reader" else gathered.get(name, "-")
    assert not [line for line in plan if line.startswith("SCAN") and not line.startswith(few)], plan
    is_sorted = name in ("rooms of a user", "receipts")  # a few rows, or one page
    assert not [line for line in plan if "TEMP B-TREE" in line and not is_sorted], plan
    if name.startswith("inbox,"):
        assert f"USING INDEX notifications_{name.split(', ')[1]} " in plan[0]
