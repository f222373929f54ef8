"""Port for the app outbox: rows that an app writes in its own transactions for Greendot to send.

Rows belong to streams (an inbox, a room), streams to shards. A session holds some of the shards. While the session is
alive and responsive, no other session holds its shards. When the session ends, for whatever reason, other sessions may
claim its shards.

Rows of a shard are read in the order they were written, without a cursor. A row that is committed late is read later,
and no row is skipped. A row may be read twice but must be sent once: the row's key makes a repeat recognisable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from msgspec import Struct

SHARDS = 16
MOST_BODY = 128 * 1024  # characters of a body that are read; above the send limit, whatever whitespace the body has


class OutboxRow(Struct, frozen=True, gc=False):
    """Outbox row as the app wrote it; no field has been checked."""

    id: int
    tenant: str
    target: str  # "notification" or "message"
    user: str
    room: str | None
    kind: str | None
    name: str | None
    body: str  # JSON, truncated to MOST_BODY
    key: str | None
    created_s: float  # seconds since 1970; may be infinite
    expires_s: float | None
    importance: str | None = None
    collapse_key: str | None = None
    push: bool | None = None


class SetAside(NamedTuple):
    """Row that can never be sent, with the reason."""

    id: int
    reason: str


class Poison(NamedTuple):
    """Row that was set aside, for operators."""

    id: int
    tenant: str
    target: str
    user: str
    room: str | None
    attempts: int
    error: str | None
    failed_at: int


class OutboxStatus(NamedTuple):
    """Counts of the outbox, for operators."""

    waiting: int
    oldest_at: int | None  # creation time of the oldest waiting row
    set_aside: int
    poison: list[Poison]  # the first of the rows set aside


class OutboxSession(Protocol):
    """Hold of a relay on its shards. StoreUnavailable from any method means that the session has ended."""

    async def claim(self, busy: Collection[int]) -> frozenset[int]:
        """Claim or release shards to reach a fair share among all relays; return the shards held.

        Shards in `busy` are never released.
        """
        ...

    async def waiting(self, shards: Collection[int]) -> list[int]:
        """Return the shards that have rows to send."""
        ...

    async def depth(self, shards: Collection[int], most: int) -> tuple[int | None, float]:
        """Return the number of waiting rows, counted up to `most`, and the age of the oldest in seconds.

        The number is None if the count timed out; the session stays open. Other calls of the session wait meanwhile,
        so call this rarely.
        """
        ...

    async def take(self, shard: int, limit: int) -> list[OutboxRow]:
        """Return the first rows to send. They stay in the table until `settle`."""
        ...

    async def settle(self, shard: int, done: Sequence[int], aside: Sequence[SetAside]) -> None:
        """Remove the sent rows of a shard and set aside the unsendable ones, in one transaction."""
        ...


class Outbox(Protocol):
    """Outbox table, in the app's database or in the database of the store."""

    def session(self, wake: Callable[[], None]) -> AbstractAsyncContextManager[OutboxSession]:
        """Open a session; `wake` is called when rows were written, and when the connection is lost.

        StoreUnavailable if the database cannot be reached, ConfigError if the table is missing or outdated.
        """
        ...

    async def check(self) -> bool:
        """Return whether the table has all columns; rows of a table without the newest ones are sent, too.

        Raise the ConfigError that `session` would raise; StoreUnavailable if the database cannot be reached.
        """
        ...

    async def install(self, lock_s: float = 0.0) -> list[str]:
        """Create the table, its indexes, triggers and new columns, unless they exist; return the names of new ones.

        A change of the table waits for transactions that use it, and writers wait for the change. Raise ConfigError if
        that takes longer than `lock_s`; 0: there is no limit.
        """
        ...

    async def status(self, most: int) -> OutboxStatus:
        """Return the counts and at most `most` of the rows set aside."""
        ...

    async def retry(self, ids: Sequence[int] | None) -> list[int]:
        """Queue rows again that were set aside, all of them if `ids` is None; return the ids found."""
        ...
