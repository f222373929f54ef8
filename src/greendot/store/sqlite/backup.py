"""Backup of a store's file while servers write to it, and checks of a file: integrity, origin and version."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, NamedTuple
from urllib.parse import quote

from greendot.errors import ConfigError
from greendot.store.schema import steps

PAGES = 256  # copied in one step: a megabyte
CHUNK = 1 << 20
MAGIC = b"SQLite format 3\0"
COUNTED = ("rooms", "messages", "notifications", "api_keys")
_OPCODES = 100_000  # SQLite VM instructions between two checks for Ctrl-C

Progress = Callable[[int, int], None]  # amount done, total


class Contents(NamedTuple):
    """Contents of an intact file."""

    version: int  # of the tables
    size: int  # bytes
    sha256: str
    records: dict[str, int]  # row counts of the tables in `COUNTED`


def copy(source: str, target: Path, progress: Progress) -> None:
    """Copy the store as it is at one moment. Servers keep writing during the copy and are not blocked."""
    with _usable(source), closing(_open(source)) as db, closing(sqlite3.connect(target, isolation_level=None)) as made:
        # One read snapshot: without it every write of a server would restart the copy.
        db.execute("BEGIN")
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        db.backup(made, pages=PAGES, progress=lambda _, left, total: progress(total - left, total), sleep=0.05)
        made.execute("PRAGMA journal_mode = DELETE")  # one file, without WAL files


def copy_bytes(source: Path, target: BinaryIO, progress: Progress) -> str:
    """Copy a file unchanged; return the SHA-256 of the copied bytes."""
    made, size = sha256(), source.stat().st_size
    with source.open("rb") as file:
        while chunk := file.read(CHUNK):
            target.write(chunk)
            made.update(chunk)
            progress(file.tell(), size)
    return made.hexdigest()


def check_backup_file(path: Path) -> None:
    """Raise ConfigError if the file is no SQLite database, or if a log beside it has commits that it lacks."""
    if not path.is_file():
        raise ConfigError(f"file {path} not found.")
    if not is_database(path):
        raise ConfigError(f"{path} is damaged or not a database: it does not begin like a SQLite file.")
    for suffix in ("-wal", "-journal"):
        log = Path(f"{path}{suffix}")
        if log.exists() and log.stat().st_size:
            raise ConfigError(
                f"{path} is not a complete backup: {log.name} beside it has further changes. If both belong to one "
                f"database, back it up (greendot backup FILE --store sqlite:///{path}) and restore that backup. "
                f"Otherwise move {log.name} to another folder."
            )


def is_database(path: Path) -> bool:
    """Return whether the file begins with the magic bytes of SQLite."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def contents(path: str, digest: str, name: str | None = None) -> Contents:
    """Open the database and check all of it.

    ConfigError if it is damaged, of another program or of a newer Greendot. `name`: name of the file in errors, if not
    its path.
    """
    name = name or path
    with _usable(name), closing(_open(path)) as db:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > steps("sqlite")[-1].number:
            raise ConfigError(f"{name} was written by a newer Greendot (tables {version}). Upgrade Greendot first.")
        tables = _columns(db)
        expected = _expected(version)
        if not expected or any(columns - tables.get(table, set()) for table, columns in expected.items()):
            raise ConfigError(f"{name} is a database, but not a Greendot store.")
        pages, size = (db.execute(f"PRAGMA {what}").fetchone()[0] for what in ("page_count", "page_size"))
        length = pages * size
        if Path(path).stat().st_size < length:
            raise ConfigError(f"{name} is damaged: it is truncated. It should have {length} bytes.")
        found = [row[0] for row in db.execute("PRAGMA integrity_check(3)")]
        if found != ["ok"]:
            raise ConfigError(f"{name} is damaged: {'; '.join(found)}")
        counted = [table for table in COUNTED if table in tables]
        records = {table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in counted}
    return Contents(version, Path(path).stat().st_size, digest, records)


def _columns(db: sqlite3.Connection) -> dict[str, set[str]]:
    tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {
        table: {row[0] for row in db.execute("SELECT name FROM pragma_table_info(?)", (table,))} for table in tables
    }


def _expected(version: int) -> dict[str, set[str]]:
    """Return the tables and columns of a store of this version."""
    with closing(sqlite3.connect(":memory:")) as db:
        for step in steps("sqlite"):
            if step.number <= version:
                db.executescript(step.sql)
        return _columns(db)


def make_single_file(path: str, name: str) -> None:
    """Switch the database to a journal mode without files beside it. `name`: name of the file in errors."""
    with _usable(name), closing(_open(path)) as db:
        db.execute("PRAGMA journal_mode = DELETE")


def checksum(path: str, progress: Progress) -> str:
    """Return the SHA-256 of a file."""
    made, done, size = sha256(), 0, Path(path).stat().st_size
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            made.update(chunk)
            done += len(chunk)
            progress(done, size)
    return made.hexdigest()


@contextmanager
def sole_use(path: Path) -> Iterator[None]:
    """Lock a database exclusively, with the logs beside it merged into it. A damaged one is neither locked nor changed.

    Meanwhile no other program can read the database. A program that opens it now and waits cannot write to it after the
    file was replaced. To keep a log, that program would have to change the journal mode, and SQLite refuses this for a
    file that was moved. ConfigError if another program has the database open.
    """
    if not is_database(path):  # SQLite would remove the files beside it, which may still be needed
        yield
        return
    with closing(_open(str(path))) as db:
        try:
            _take_alone(db, path)
        except sqlite3.OperationalError as error:
            hint = f"Move it, {path.name}-wal and {path.name}-shm to another folder, and restore again."
            raise ConfigError(f"cannot use {path}: {error}. {hint}") from None
        except sqlite3.DatabaseError:
            pass
        yield


def _take_alone(db: sqlite3.Connection, path: Path) -> None:
    try:
        mode = db.execute("PRAGMA journal_mode = DELETE").fetchone()[0]
        if mode == "delete":
            db.execute("BEGIN EXCLUSIVE")
            return
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
            raise
    raise ConfigError(f"another program has {path} open. Stop it first.")


def _open(path: str) -> sqlite3.Connection:
    """Open an existing file; a missing one is not created."""
    db = sqlite3.connect(f"file:{quote(path)}?mode=rw", uri=True, isolation_level=None, timeout=1.0)
    db.set_progress_handler(_look_up, _OPCODES)
    return db


def _look_up() -> int:
    """Let the interpreter handle Ctrl-C during a long SQLite statement; 0 means continue."""
    return 0


@contextmanager
def _usable(path: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
            raise KeyboardInterrupt from None
        raise ConfigError(f"cannot use {path}: {error}") from None
    except sqlite3.DatabaseError as error:
        raise ConfigError(f"{path} is damaged or not a database: {error}") from None
