"""Pages of a tenant's users online: a cursor over the presence buckets of all partitions.

Buckets hold users of all tenants. A script reads many buckets, so an empty bucket costs very little. A script stops
after a number of users, so that it does not take long. The first page counts all users; further pages use this count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import NamedTuple

from greendot.engine.redis import keys
from greendot.engine.redis.partitions import Primaries
from greendot.engine.results import Page, cursor, most_by_id, page_by_id, read_cursor
from greendot.presence.model import Snapshot

AT_ONCE = 8  # partitions in one step: at most 1,024 buckets
MOST_READ = 1_000  # users in one script: it takes about half a millisecond
MOST_STEPS = 100  # steps for one page; then the page ends with fewer users than its limit
COUNTED_S = 30.0  # lifetime of a count for further pages
MANY = 10_000  # a larger count is used for first pages, too
FREE = 4  # buckets that cost as much as one user
_ALL = keys.PARTITIONS * keys.BUCKETS

MOST_COUNTS = 1_000  # tenants whose count is kept, in addition to recent counts

OnlineBuckets = list[list[bytes]]  # fields and records of the tenant's users, by bucket, in order
Settle = Callable[[str, str], Awaitable[Snapshot]]
Read = Callable[[bytes], Snapshot | None]  # decodes a packed record; None if some of its data may have expired


class Seen(NamedTuple):
    """Extent and cost of a search."""

    ends: int = 0  # the next number to read, counted over all partitions
    online: int = 0  # users of the tenant who are not offline
    work: int = 0  # cost of the search

    def plus(self, more: Seen) -> Seen:
        return Seen(more.ends, self.online + more.online, self.work + more.work)


class Count(NamedTuple):
    """Number of users of a tenant who were online."""

    users: int
    at: float  # monotonic seconds


class OnlinePages:
    """Pages of one engine. `settle` ends expired data of a user."""

    def __init__(self, servers: Primaries, prefix: str, read: Read, settle: Settle) -> None:
        self._servers = servers
        self._prefix = prefix
        self._read = read
        self._settle = settle
        self._counts: dict[str, Count] = {}

    async def page(self, tenant: str, after: str | None, limit: int) -> Page:
        """Return a page; see `engine.port.PresenceEngine.online`."""
        if (page := await self._page_by_id(tenant, after, limit)) is not None:
            return page
        first, past = (0, "") if after is None else read_cursor(after, lambda user: _position(tenant, user))
        users, following, seen = await self._find(tenant, first, past, limit)
        total, work = self._known(tenant, after), seen.work
        if total is None:
            is_first = first == 0 and not past
            counted = await self._count(tenant, seen if is_first else Seen())
            total, work = counted.online, counted.work if is_first else work + counted.work
            self._remember(tenant, total)
        return Page(sorted(users), following, total, 1 + work)

    async def _page_by_id(self, tenant: str, after: str | None, limit: int) -> Page | None:
        """Read all users of a small tenant and return a page sorted by id. Return None if the tenant is not small."""
        count = self._counts.get(tenant)
        online = 0 if count is None or monotonic() - count.at > COUNTED_S else count.users
        if online > (most := most_by_id(after)):
            return None
        users, following, seen = await self._find(tenant, 0, "", most)
        if following is not None:
            return None
        self._remember(tenant, len(users))
        return page_by_id(users, after, limit, 1 + seen.work)

    async def _find(self, tenant: str, first: int, past: str, limit: int) -> tuple[list[str], str | None, Seen]:
        """Search users online from a number on.

        Return the users, the cursor to continue with, and the extent of the search.
        """
        found: list[str] = []
        seen, following = Seen(first), None
        for _ in range(MOST_STEPS):
            if seen.ends >= _ALL:
                return found, None, seen
            step, buckets = await self._step(tenant, seen.ends, limit + 1 - len(found))
            seen = seen.plus(step)
            for pairs in buckets:
                for position, user, record in _users(tenant, pairs, (first, past)):
                    if len(found) == limit:
                        return found, following, seen
                    snapshot = self._read(record) or await self._settle(tenant, user)
                    is_online = snapshot.visible.state != "offline"
                    if is_online:
                        found.append(user)
                    # The script counts by the last visible state, which may have expired.
                    seen = seen._replace(online=seen.online + is_online - (not record.startswith(b"f")))
                    following = cursor(position, user)
        return found, cursor(seen.ends) if seen.ends < _ALL else None, seen

    async def _count(self, tenant: str, seen: Seen) -> Seen:
        """Count the users online whose numbers were not read yet."""
        while seen.ends < _ALL:
            step, _ = await self._step(tenant, seen.ends, 0)
            seen = seen.plus(step)
        return seen

    async def _step(self, tenant: str, position: int, wanted: int) -> tuple[Seen, OnlineBuckets]:
        """Read some partitions, the first of them from a number on."""
        partition, number = divmod(position, keys.BUCKETS)
        some = range(partition, min(partition + AT_ONCE, keys.PARTITIONS))
        if not self._servers.sharded:
            return await self._read_buckets(tenant, some, number, wanted)
        # In a cluster, each partition needs its own script. Results after a partition that was not read completely are
        # discarded.
        looks = [self._read_buckets(tenant, [one], number if one == partition else 0, wanted) for one in some]
        seen, buckets = Seen(position), list[list[bytes]]()
        for (one, found), at in zip(await asyncio.gather(*looks), some, strict=True):
            seen = seen.plus(one)
            buckets += found
            if one.ends < (at + 1) * keys.BUCKETS:
                break
        return seen, buckets

    async def _read_buckets(
        self, tenant: str, partitions: Sequence[int], number: int, wanted: int
    ) -> tuple[Seen, OnlineBuckets]:
        first, names = partitions[0], list[str]()
        for partition in partitions:
            names += (keys.nodes_key(self._prefix, partition), keys.buckets(self._prefix, partition, 0)[0])
        arguments = (f"{tenant}/", number, MOST_READ, wanted)
        whole, stopped, read, online, buckets, *found = await self._servers.run(first, "online", names, *arguments)
        ends = (first + whole) * keys.BUCKETS + stopped
        return Seen(ends, online, read + buckets // FREE), found

    # --- counts ---

    def _known(self, tenant: str, after: str | None) -> int | None:
        """Return a recent count, or None.

        A recent count is exact enough for further pages, and for first pages of very large tenants.
        """
        count = self._counts.get(tenant)
        if count is None or monotonic() - count.at > COUNTED_S or (after is None and count.users <= MANY):
            return None
        return count.users

    def _remember(self, tenant: str, users: int) -> None:
        now = monotonic()
        if len(self._counts) >= MOST_COUNTS:
            self._counts = {of: count for of, count in self._counts.items() if now - count.at <= COUNTED_S}
        self._counts[tenant] = Count(users, now)


def _users(tenant: str, pairs: list[bytes], past: tuple[int, str]) -> list[tuple[int, str, bytes]]:
    """Return the users of a bucket with positions and records, sorted. `past` is the position and user before them.

    This order stays the same when a partition grows, so no user is listed twice or left out.
    """
    start = len(tenant) + 1
    users = ((pairs[at].decode()[start:], pairs[at + 1]) for at in range(0, len(pairs), 2))
    placed = ((_position(tenant, user), user, record) for user, record in users)
    return sorted(one for one in placed if one[:2] > past)


def _position(tenant: str, user: str) -> int:
    """Return the user's number, counted over all partitions."""
    partition, number = keys.number_of(tenant, user)
    return partition * keys.BUCKETS + number
