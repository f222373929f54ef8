"""Shared store: PostgreSQL, any number of nodes, concurrent writers in one commit."""

from greendot.store.postgres.app_outbox import PostgresOutbox
from greendot.store.postgres.store import PostgresStore

__all__ = ["PostgresOutbox", "PostgresStore"]
