"""Thread that owns the database connection.

All calls that wait when the thread is free run in one transaction, so a burst of writers shares one commit. A call
that fails is rolled back alone (savepoint); the other calls are committed.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

from greendot.errors import ConfigError, StoreUnavailable, Unstorable
from greendot.store.schema import steps

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], Any]
_Job = tuple[Work, "asyncio.Future[Any]"]

_BATCH = 512  # maximum of calls in one transaction


class DatabaseThread:
    """Thread with one connection, which takes calls from one event loop."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> None:
        """Open the file and apply missing migrations. ConfigError if the file cannot be used."""
        self._loop = asyncio.get_running_loop()
        opened: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, args=(opened,), name="greendot-sqlite", daemon=True)
        self._thread.start()
        try:
            await opened
        except ConfigError:
            self._thread = None
            raise

    def migrate(self) -> list[str]:
        """Apply missing migrations in the caller's thread; return their names."""
        try:
            db, applied = _open(self.path)
        except (sqlite3.Error, ConfigError, ValueError) as error:
            raise self._unusable(error) from None
        db.close()
        return applied

    async def close(self) -> None:
        # No call may be queued behind the end marker: its future would never be resolved.
        thread, self._thread = self._thread, None
        if thread is not None:
            self._jobs.put(None)
            # The wait is bounded: another process may hold the file, and acknowledged writes are already committed.
            await asyncio.get_running_loop().run_in_executor(None, thread.join, 1.0)

    async def do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in a transaction shared with other calls; return its result after the commit."""
        if self._loop is None or self._thread is None:
            raise StoreUnavailable("the store is closed")
        future: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put((work, future))
        return await future

    def _run(self, opened: asyncio.Future[None]) -> None:
        assert self._loop is not None
        try:
            db, _ = _open(self.path)
        except Exception as error:  # any error, because `start` waits for the future
            self._loop.call_soon_threadsafe(opened.set_exception, self._unusable(error))
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

    def _unusable(self, error: Exception) -> ConfigError:
        return ConfigError(f"cannot use the store {self.path}: {error}")


def _open(path: str) -> tuple[sqlite3.Connection, list[str]]:
    """Open the database and apply missing migrations; return the connection and their names."""
    _refuse_lone_log(path)
    _make_private(path)
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        db.execute("PRAGMA busy_timeout = 5000")
        _write_ahead(db)
        # With NORMAL a power cut may lose the last commits of the WAL; an acknowledged record must not be lost.
        db.execute("PRAGMA synchronous = FULL")
        applied = _migrate(db)
    except BaseException:
        db.close()
        raise
    return db, applied


def _refuse_lone_log(path: str) -> None:
    """Raise ConfigError if a log exists without its database: SQLite would remove it, with the last commits."""
    log = f"{path}-wal"
    try:
        size = os.stat(log).st_size
    except OSError:
        return
    if size and not os.path.exists(path):
        raise ConfigError(
            f"the file does not exist, but its log {log} does, with the last commits of a database that was moved or "
            "removed. Put the file back, restore a backup (greendot restore), or remove the log for an empty store"
        )


def _make_private(path: str) -> None:
    """Create a new file for its owner only: it has all that users write. SQLite gives its logs the same mode."""
    if path != ":memory:":
        with suppress(OSError):  # SQLite reports the error
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def _write_ahead(db: sqlite3.Connection) -> None:
    """Switch to WAL, with retries: the busy timeout does not cover this when processes open a new file together."""
    for left in reversed(range(500)):
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or not left:
                raise
            time.sleep(0.01)


def _migrate(db: sqlite3.Connection) -> list[str]:
    """Apply missing migrations; return their names. Safe when two processes start at once."""
    all_steps = steps("sqlite")
    wanted = all_steps[-1].number
    db.execute("BEGIN IMMEDIATE")
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version > wanted:
        db.execute("ROLLBACK")
        raise ConfigError("the file was written by a newer Greendot; upgrade Greendot, or use another file")
    missing = [step for step in all_steps if step.number > version]
    for step in missing:
        for statement in _statements(step.sql):
            db.execute(statement)
    db.execute(f"PRAGMA user_version = {wanted}")
    db.execute("COMMIT")
    return [step.name for step in missing]


def _statements(sql: str) -> Iterator[str]:
    """Yield the statements of a migration. Statements of a trigger belong to the trigger."""
    statement = ""
    for part in sql.split(";"):
        statement += f"{part};"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _transact(db: sqlite3.Connection, batch: list[_Job]) -> list[tuple[asyncio.Future[Any], Any]]:
    """Run the batch in one transaction; return each call's result, or the error that rolled it back."""
    results: list[tuple[asyncio.Future[Any], Any]] = []
    try:
        # Not deferred: a call that reads before it writes would fail at once after a write of another process.
        db.execute("BEGIN IMMEDIATE")
        for work, future in batch:
            db.execute("SAVEPOINT call")
            try:
                results.append((future, work(db)))
            except Exception as error:  # any error, also a value SQLite cannot hold: the thread must not end
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
    if isinstance(error, sqlite3.OperationalError):
        return StoreUnavailable(str(error))
    # OverflowError: a number above 64 bits. UnicodeEncodeError: half a surrogate pair.
    if isinstance(error, sqlite3.Error | OverflowError | UnicodeEncodeError):
        return Unstorable(str(error))
    return error


def _answer(results: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, result in results:
        if future.done():  # its caller was cancelled
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)
