"""Port for the times at which users were last seen. Engines lose these times at a restart or a flush."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from greendot.ids import Key

REVOKED_MS = 60_000  # a time up to this long after a revocation comes from a revoked session


class LastSeenStore(Protocol):
    """Port for last-seen times, in milliseconds of the engine's clock."""

    async def put_last_seen(self, seen: Mapping[Key, int]) -> None:
        """Write the time of each (tenant, user), in one statement. A later time that is stored already stays.

        A time at most `REVOKED_MS` after the latest revocation of the user or of the tenant is not written. A node
        therefore cannot write a user again whom an operator has just erased.
        """
        ...

    async def last_seen(self, keys: Sequence[Key]) -> dict[Key, int]:
        """Return the times of these (tenant, user), in one read. Users without a time are left out."""
        ...

    async def prune_last_seen(self, before: int, limit: int) -> int:
        """Remove at most `limit` times earlier than `before`, the earliest first; return how many."""
        ...
