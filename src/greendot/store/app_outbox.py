"""The outbox port: what an app wrote in its own transactions for Greendot to send.

Rows belong to streams (an inbox, a room), streams to shards. A session holds some of the shards: while it lives and
answers, no other has them. When it ends, however it ends, others may take them.

Rows of a shard are read in the order they were written, without a cursor: one that is committed late is read later, and
none is passed over. Whoever reads a row twice must send it once; the row's key is for that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from msgspec import Struct

SHARDS = 16
MOST_BODY = 128 * 1024  # characters of a body that are read: more than may be sent, however it is spaced


class OutboxRow(Struct, frozen=True, gc=False):
    """As the app wrote it: nothing of it has been checked."""

    id: int
    tenant: str
    target: str  # notification or message
    user: str
    room: str | None
    kind: str | None
    name: str | None
    body: str  # JSON, cut off at MOST_BODY
    key: str | None
    created_s: float  # since 1970; it may be infinite
    expires_s: float | None


class SetAside(NamedTuple):
    """A row that cannot be sent, and why."""

    id: int
    reason: str


class Poison(NamedTuple):
    """A row that was set aside."""

    id: int
    tenant: str
    target: str
    user: str
    room: str | None
    attempts: int
    error: str | None
    failed_at: int


class OutboxStatus(NamedTuple):
    """What is in the outbox."""

    waiting: int
    oldest_at: int | None  # when the oldest that waits was written
    set_aside: int
    poison: list[Poison]  # the first of those


class OutboxSession(Protocol):
    """A relay's hold on its shards. StoreUnavailable from any method: it is over."""

    async def claim(self, busy: Collection[int]) -> frozenset[int]:
        """The shards held from now on: a fair share among the relays there are. Those that are `busy` are kept."""
        ...

    async def waiting(self, shards: Collection[int]) -> list[int]:
        """Those of the shards with rows to send."""
        ...

    async def depth(self, shards: Collection[int], most: int) -> tuple[int | None, float]:
        """How many rows of the shards wait, counted up to `most`, and how many seconds ago the first was written.

        None if they could not be counted in time; the session goes on. All else waits meanwhile: not to be asked often.
        """
        ...

    async def take(self, shard: int, limit: int) -> list[OutboxRow]:
        """The first rows to send. They stay where they are until they are settled."""
        ...

    async def settle(self, shard: int, done: Sequence[int], aside: Sequence[SetAside]) -> None:
        """Remove what was sent of a shard and set aside what cannot be, in one transaction."""
        ...


class Outbox(Protocol):
    """The table, wherever it is."""

    def session(self, wake: Callable[[], None]) -> AbstractAsyncContextManager[OutboxSession]:
        """Open a session; `wake` is called when rows were written, and when the connection is lost.

        StoreUnavailable if it cannot be reached, ConfigError if the table is not there or an older one.
        """
        ...

    async def check(self) -> None:
        """ConfigError if a session would be refused with it; StoreUnavailable if nobody knows."""
        ...

    async def install(self) -> list[str]:
        """Make the table and what belongs to it, or what is missing of it. Answers what was made."""
        ...

    async def status(self, most: int) -> OutboxStatus:
        """With at most so many of the rows that were set aside."""
        ...

    async def retry(self, ids: Sequence[int] | None) -> list[int]:
        """Have rows sent that were set aside, all of them if None. Answers which there were."""
        ...
