"""What the suites of the store are written with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from greendot.store.inbox import Inbox, Notice
from greendot.store.port import Store
from greendot.store.rooms import Draft, Written

T = "t1"  # a tenant
NOW = 1_800_000_000_000
HUGE = 2**70  # no database holds it
BAD_TEXTS = ("\0", "a\0b", "\ud800", "b\udfff")  # no store keeps these: a NUL, or half of a surrogate pair


def draft(user: str = "ann", key: str = "k1", body: bytes = b'{"text":"hi"}', at: int = NOW) -> Draft:
    return Draft(user, user.title(), body, key, at)


def notice(
    user: str = "ann", key: str = "k1", created_at: int = NOW, expires_at: int | None = None, *, ack: bool = False
) -> Notice:
    return Notice(T, user, "greeting", b'{"text":"hi"}', key, created_at, expires_at, ack)


def seq(written: Written | None) -> int:
    """The number of what was written."""
    assert written is not None
    return written.record.seq


class StoreHarness:
    """How a suite gets at stores."""

    def opened(self) -> AbstractAsyncContextManager[Store]:
        """A store with nothing in it."""
        raise NotImplementedError

    @asynccontextmanager
    async def opened_twice(self) -> AsyncIterator[tuple[Store, Store]]:
        """Two stores on the same records, as two nodes have them. One that cannot be shared stands for both."""
        async with self.opened() as store:
            yield store, store


async def numbers(store: Store, room: str = "r1") -> list[int]:
    """The numbers of all messages of a room, page by page."""
    found: list[int] = []
    while page := await store.messages(T, room, after=found[-1] if found else 0, limit=150):
        found += [message.seq for message in page]
    return found


async def recounted(store: Store, user: str = "ann") -> Inbox:
    """Where an inbox stands, by counting all there is; the counters must say the same."""
    unread = await store.notifications(T, user, after=0, limit=100_000, only="unread")
    unseen = await store.notifications(T, user, after=0, limit=100_000, only="unseen")
    kept = await store.inbox(T, user)
    assert (kept.unread, kept.unseen) == (len(unread), len(unseen))
    assert await store.recount(fix=False) == []
    return kept
