"""Embedded store: SQLite in WAL mode, one connection in one thread, concurrent calls in one commit."""

from greendot.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
