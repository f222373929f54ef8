"""How much of a stream one answer holds."""

from __future__ import annotations

from typing import TypeVar

from greendot.store.base import Notification, Record

PAGE_BYTES = 1024 * 1024  # of bodies in one page
R = TypeVar("R", Record, Notification)


def fit(records: list[R], *, newest: bool) -> list[R]:
    """As many of the records as one answer may hold, from the end they are wanted from; at least one."""
    size, kept = 0, 0
    for record in reversed(records) if newest else records:
        size += len(record.body)
        if kept and size > PAGE_BYTES:
            break
        kept += 1
    return records[len(records) - kept :] if newest else records[:kept]
