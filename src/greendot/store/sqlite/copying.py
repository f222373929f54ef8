"""A store's file copied while others write to it, and looked at: is it whole, is it ours, is it of our version."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from greendot.errors import ConfigError
from greendot.store.schema import steps

PAGES = 256  # at a time: a megabyte
CHUNK = 1 << 20
MAGIC = b"SQLite format 3\0"
COUNTED = ("rooms", "messages", "notifications", "api_keys")
_OPCODES = 100_000  # of SQLite's machine, between looks at whether somebody wants an end

Progress = Callable[[int, int], None]  # how much is done, of how much


class Contents(NamedTuple):
    """What is in a file that is whole."""

    version: int  # of the tables
    size: int  # bytes
    sha256: str
    records: dict[str, int]  # by table, those that people ask for


def copy(source: str, target: Path, progress: Progress) -> None:
    """As the store was at one moment. Servers go on writing meanwhile, and do not wait."""
    with _usable(source), closing(_open(source)) as db, closing(sqlite3.connect(target, isolation_level=None)) as made:
        # One look at all of it: else every write of a server would have the copy begin again.
        db.execute("BEGIN")
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        db.backup(made, pages=PAGES, progress=lambda _, left, total: progress(total - left, total), sleep=0.05)
        made.execute("PRAGMA journal_mode = DELETE")  # one file, with nothing beside it


def contents(path: str, progress: Progress) -> Contents:
    """All of it is read. ConfigError if it is broken, of another program or of a newer Greendot."""
    if not Path(path).is_file():
        raise ConfigError(f"there is no file {path}.")
    with _usable(path), closing(_open(path)) as db:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not version or "messages" not in tables:
            raise ConfigError(f"{path} is a database, but no store of Greendot.")
        if version > steps("sqlite")[-1].number:
            raise ConfigError(f"{path} was written by a newer Greendot (tables {version}): upgrade Greendot first.")
        found = [row[0] for row in db.execute("PRAGMA integrity_check(3)")]
        if found != ["ok"]:
            raise ConfigError(f"{path} is damaged: {'; '.join(found)}")
        records = {name: db.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in COUNTED if name in tables}
    return Contents(version, Path(path).stat().st_size, checksum(path, progress), records)


def checksum(path: str, progress: Progress) -> str:
    """SHA-256 of a file."""
    made, done, size = sha256(), 0, Path(path).stat().st_size
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            made.update(chunk)
            done += len(chunk)
            progress(done, size)
    return made.hexdigest()


def let_go(path: str) -> bool:
    """Everything that is beside the file is put into it. False if another program has it open."""
    with open(path, "rb") as file:
        if file.read(len(MAGIC)) != MAGIC:  # SQLite would remove what is beside it: somebody may still need that
            raise ConfigError(f"{path} is no database.")
    with _usable(path), closing(_open(path)) as db:
        try:
            mode = db.execute("PRAGMA journal_mode = DELETE").fetchone()[0]
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                return False
            raise
        return bool(mode == "delete")


def _open(path: str) -> sqlite3.Connection:
    """Never made: only what is there."""
    db = sqlite3.connect(f"file:{quote(path)}?mode=rw", uri=True, isolation_level=None, timeout=1.0)
    db.set_progress_handler(_look_up, _OPCODES)
    return db


def _look_up() -> int:
    """Ctrl-C is heard between two of these, also in what takes SQLite long."""
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
        raise ConfigError(f"{path} is damaged, or no database: {error}") from None
