"""The embedded store: SQLite in WAL mode, one connection in one thread.

All calls waiting when the thread is free are carried out in one transaction, so a burst of writers shares one
commit. A call that fails is undone alone (savepoint); the others are committed.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any, TypeVar

from greendot.core.presence import Manual
from greendot.errors import ConfigError, StoreUnavailable
from greendot.ids import new_message_id
from greendot.store.base import Draft, Record, Room, Store

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], Any]
_Job = tuple[Work, "asyncio.Future[Any]"]

_BATCH = 512  # calls in one transaction at most


class SqliteStore:
    """See `Store`. `path` is a file, or `:memory:`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # --- life ---

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        opened: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, args=(opened,), name="greendot-sqlite", daemon=True)
        self._thread.start()
        try:
            await opened
        except ConfigError:
            self._thread = None
            raise

    async def close(self) -> None:
        # No call may get behind the end of the queue: nobody would answer it.
        thread, self._thread = self._thread, None
        if thread is not None:
            self._jobs.put(None)
            # Not for ever: another process may hold the file, and what was acknowledged is safe already.
            await asyncio.get_running_loop().run_in_executor(None, thread.join, 1.0)

    async def ping(self) -> None:
        await self._do(lambda db: db.execute("SELECT 1").fetchone())

    # --- rooms ---

    async def put_room(self, tenant: str, room: str, *, open: bool | None) -> Room:
        def work(db: sqlite3.Connection) -> Room:
            db.execute(
                "INSERT INTO rooms (tenant, room, open) VALUES (?1, ?2, ifnull(?3, 0))"
                " ON CONFLICT DO UPDATE SET open = ?3, members_rev = members_rev + 1 WHERE open != ?3",
                (tenant, room, open),
            )
            return _room(db, tenant, room)  # type: ignore[return-value]

        return await self._do(work)

    async def room(self, tenant: str, room: str) -> Room | None:
        return await self._do(lambda db: _room(db, tenant, room))

    async def rooms(self, tenant: str, after: str | None, limit: int) -> list[Room]:
        return await self._rooms("tenant = ? AND room > ? ORDER BY room LIMIT ?", tenant, after or "", limit)

    async def rooms_of(self, tenant: str, user: str) -> list[Room]:
        return await self._rooms(
            "tenant = ?1 AND (open OR room IN (SELECT room FROM members WHERE tenant = ?1 AND user = ?2))"
            " ORDER BY room",
            tenant,
            user,
        )

    async def _rooms(self, condition: str, *values: object) -> list[Room]:
        sql = f"SELECT tenant, room, open, head, members_rev FROM rooms WHERE {condition}"
        return await self._do(lambda db: [Room(t, r, bool(o), h, v) for t, r, o, h, v in db.execute(sql, values)])

    async def add_member(self, tenant: str, room: str, user: str) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            if _room(db, tenant, room) is None:
                return False
            added = db.execute("INSERT OR IGNORE INTO members VALUES (?, ?, ?)", (tenant, room, user)).rowcount
            _new_members(db, tenant, room, added)
            return True

        return await self._do(work)

    async def remove_member(self, tenant: str, room: str, user: str) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            where = "tenant = ? AND room = ? AND user = ?"
            removed = db.execute(f"DELETE FROM members WHERE {where}", (tenant, room, user)).rowcount
            _new_members(db, tenant, room, removed)
            return removed > 0

        return await self._do(work)

    async def is_member(self, tenant: str, room: str, user: str) -> bool:
        sql = "SELECT 1 FROM members WHERE tenant = ? AND room = ? AND user = ?"
        return await self._do(lambda db: db.execute(sql, (tenant, room, user)).fetchone() is not None)

    async def members(self, tenant: str, room: str, after: str | None, limit: int) -> list[str]:
        sql = "SELECT user FROM members WHERE tenant = ? AND room = ? AND user > ? ORDER BY user LIMIT ?"
        return await self._do(lambda db: [u for (u,) in db.execute(sql, (tenant, room, after or "", limit))])

    # --- messages ---

    async def append(self, tenant: str, room: str, draft: Draft) -> tuple[Record, bool] | None:
        return await self._do(lambda db: _append(db, tenant, room, draft))

    async def messages(
        self, tenant: str, room: str, *, after: int | None = None, before: int | None = None, limit: int
    ) -> list[Record]:
        if after is not None:
            return await self._messages("seq > ? ORDER BY seq", tenant, room, after, limit)
        newest = await self._messages(
            "seq < ? ORDER BY seq DESC", tenant, room, 2**62 if before is None else before, limit
        )
        return newest[::-1]

    async def _messages(self, condition: str, *values: object) -> list[Record]:
        sql = f"{_MESSAGE} AND {condition} LIMIT ?"
        return await self._do(lambda db: [Record(*row) for row in db.execute(sql, values)])

    # --- status ---

    async def put_status(self, tenant: str, user: str, manual: Manual) -> Manual:
        def work(db: sqlite3.Connection) -> Manual:
            row = db.execute(
                "INSERT INTO status VALUES (?, ?, ?, ?, ?, 1) ON CONFLICT DO UPDATE SET"
                " status = excluded.status, until = excluded.until, text = excluded.text, rev = rev + 1"
                " RETURNING status, until, text, rev",
                (tenant, user, manual.status, manual.until, manual.text),
            ).fetchone()
            return Manual(*row)

        return await self._do(work)

    async def statuses(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Manual]:
        sql = "SELECT status, until, text, rev FROM status WHERE tenant = ? AND user = ?"

        def work(db: sqlite3.Connection) -> dict[tuple[str, str], Manual]:
            rows = ((key, db.execute(sql, key).fetchone()) for key in keys)
            return {key: Manual(*row) for key, row in rows if row is not None}

        return await self._do(work)

    # --- the thread ---

    async def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._loop is None or self._thread is None:
            raise StoreUnavailable("the store is closed")
        future: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put((work, future))
        return await future

    def _run(self, opened: asyncio.Future[None]) -> None:
        assert self._loop is not None
        try:
            db = _open(self._path)
        except Exception as error:  # whatever it is, the start waits for a word
            self._loop.call_soon_threadsafe(
                opened.set_exception, ConfigError(f"cannot use the store {self._path}: {error}")
            )
            return
        self._loop.call_soon_threadsafe(opened.set_result, None)
        try:
            while (job := self._jobs.get()) is not None:
                batch = [job]
                while len(batch) < _BATCH and not self._jobs.empty():
                    following = self._jobs.get()
                    if following is None:
                        self._jobs.put(None)
                        break
                    batch.append(following)
                results = _transact(db, batch)
                self._loop.call_soon_threadsafe(_answer, results)
        finally:
            db.close()


def _open(path: str) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        db.execute("PRAGMA busy_timeout = 5000")
        _write_ahead(db)
        # A power cut may lose the last commits of WAL at NORMAL; a record that was acknowledged must not be lost.
        db.execute("PRAGMA synchronous = FULL")
        _migrate(db)
    except BaseException:
        db.close()
        raise
    return db


def _write_ahead(db: sqlite3.Connection) -> None:
    """Switch to WAL. The busy timeout does not hold for this: of processes that open a fresh file at once, some must
    try again."""
    for left in reversed(range(500)):
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or not left:
                raise
            time.sleep(0.01)


def _migrate(db: sqlite3.Connection) -> None:
    """Apply the numbered files that are newer than the database. Safe when two processes start at once."""
    files = [f for f in resources.files("greendot.store.schema").iterdir() if f.name.endswith(".sql")]
    files.sort(key=lambda file: file.name)
    db.execute("BEGIN IMMEDIATE")
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version > len(files):
        db.execute("ROLLBACK")
        raise ConfigError("it was written by a newer Greendot; upgrade Greendot, or use another file")
    for number, file in enumerate(files, start=1):
        if number > version:
            for statement in file.read_text().split(";"):
                db.execute(statement)
    db.execute(f"PRAGMA user_version = {len(files)}")
    db.execute("COMMIT")


def _transact(db: sqlite3.Connection, batch: list[_Job]) -> list[tuple[asyncio.Future[Any], Any]]:
    """Carry out the batch in one transaction; each call's result, or the error that undid it."""
    results: list[tuple[asyncio.Future[Any], Any]] = []
    try:
        # Not deferred: a call that reads before it writes would fail at once if another process wrote in between.
        db.execute("BEGIN IMMEDIATE")
        for work, future in batch:
            db.execute("SAVEPOINT call")
            try:
                results.append((future, work(db)))
            except Exception as error:  # also a value SQLite cannot hold: nothing may end the thread
                db.execute("ROLLBACK TO call")
                results.append((future, _translated(error)))
            db.execute("RELEASE call")
        db.execute("COMMIT")
    except sqlite3.Error as error:
        if db.in_transaction:
            db.execute("ROLLBACK")
        return [(future, _translated(error)) for _, future in batch]
    return results


def _translated(error: Exception) -> Exception:
    return StoreUnavailable(str(error)) if isinstance(error, sqlite3.Error) else error


def _answer(results: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, result in results:
        if future.done():  # its caller was cancelled
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)


_MESSAGE = "SELECT room, seq, id, user, name, body, at FROM messages WHERE tenant = ? AND room = ?"


def _room(db: sqlite3.Connection, tenant: str, room: str) -> Room | None:
    sql = "SELECT open, head, members_rev FROM rooms WHERE tenant = ? AND room = ?"
    row = db.execute(sql, (tenant, room)).fetchone()
    return None if row is None else Room(tenant, room, bool(row[0]), row[1], row[2])


def _new_members(db: sqlite3.Connection, tenant: str, room: str, changed: int) -> None:
    sql = "UPDATE rooms SET members_rev = members_rev + ? WHERE tenant = ? AND room = ?"
    db.execute(sql, (min(changed, 1), tenant, room))


def _append(db: sqlite3.Connection, tenant: str, room: str, draft: Draft) -> tuple[Record, bool] | None:
    first = db.execute(f"{_MESSAGE} AND user = ? AND key = ?", (tenant, room, draft.user, draft.key)).fetchone()
    if first is not None:
        return Record(*first), False
    sql = "UPDATE rooms SET head = head + 1 WHERE tenant = ? AND room = ? RETURNING head"
    head = db.execute(sql, (tenant, room)).fetchone()
    if head is None:
        return None
    record = Record(room, head[0], new_message_id(), draft.user, draft.name, draft.body, draft.at)
    db.execute(
        "INSERT INTO messages (tenant, room, seq, id, user, name, body, key, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (tenant, room, record.seq, record.id, draft.user, draft.name, draft.body, draft.key, draft.at),
    )
    return record, True


_: type[Store] = SqliteStore
