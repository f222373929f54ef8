"""Harness and helpers of the store's suites."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from greendot.store.inbox import Inbox, Notice
from greendot.store.port import Store
from greendot.store.rooms import Draft, Written

T = "t1"  # tenant
NOW = 1_800_000_000_000
HUGE = 2**70  # larger than any database integer
BAD_TEXTS = ("\0", "a\0b", "\ud800", "b\udfff")  # a NUL, or half of a surrogate pair: no store keeps them


def draft(user: str = "ann", key: str = "k1", body: bytes = b'{"text":"hi"}', at: int = NOW) -> Draft:
    return Draft(user, user.title(), body, key, at)


def notice(
    user: str = "ann", key: str = "k1", created_at: int = NOW, expires_at: int | None = None, *, ack: bool = False
) -> Notice:
    return Notice(T, user, "greeting", b'{"text":"hi"}', key, created_at, expires_at, ack)


def seq(written: Written | None) -> int:
    """Return the number of a written record."""
    assert written is not None
    return written.record.seq


class StoreHarness:
    """Source of stores for a suite."""

    def opened(self) -> AbstractAsyncContextManager[Store]:
        """Return an empty store."""
        raise NotImplementedError

    @asynccontextmanager
    async def opened_twice(self) -> AsyncIterator[tuple[Store, Store]]:
        """Yield two stores on the same records, as two nodes have them.

        A store that cannot be shared is used for both.
        """
        async with self.opened() as store:
            yield store, store


async def numbers(store: Store, room: str = "r1") -> list[int]:
    """Return the numbers of all messages of a room, read page by page."""
    found: list[int] = []
    while page := await store.messages(T, room, after=found[-1] if found else 0, limit=150):
        found += [message.seq for message in page]
    return found


async def recounted(store: Store, user: str = "ann") -> Inbox:
    """Return the counters of an inbox, after checking that they equal a count of all notifications."""
    unread = await store.notifications(T, user, after=0, limit=100_000, only="unread")
    unseen = await store.notifications(T, user, after=0, limit=100_000, only="unseen")
    kept = await store.inbox(T, user)
    assert (kept.unread, kept.unseen) == (len(unread), len(unseen))
    assert await store.recount(fix=False) == []
    return kept
