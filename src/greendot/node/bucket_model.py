"""Dictionary in buckets, for hundreds of thousands of entries.

A single dictionary of this size takes long in one call: 24 ms to grow beyond 350,000 entries, 7 ms to copy its keys. In
buckets, each such call concerns a small part of the entries.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

BUCKETS = 256  # a power of two
_MASK = BUCKETS - 1

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BucketDict(Generic[K, V]):
    """Dictionary without an order."""

    __slots__ = ("_buckets",)

    def __init__(self) -> None:
        self._buckets: list[dict[K, V]] = [{} for _ in range(BUCKETS)]

    def get(self, key: K) -> V | None:
        return self._buckets[hash(key) & _MASK].get(key)

    def __contains__(self, key: K) -> bool:
        return key in self._buckets[hash(key) & _MASK]

    def __setitem__(self, key: K, value: V) -> None:
        self._buckets[hash(key) & _MASK][key] = value

    def pop(self, key: K) -> V | None:
        """Remove an entry and return its value; None if there is none."""
        return self._buckets[hash(key) & _MASK].pop(key, None)

    def clear(self) -> None:
        for bucket in self._buckets:
            bucket.clear()

    def __len__(self) -> int:
        return sum(map(len, self._buckets))

    def steps(self, least: int) -> Iterator[list[tuple[K, V]]]:
        """Yield all entries, in lists of at least `least` (the last list may have fewer).

        Entries may be added and removed between two lists. An entry that stays is visited once. An entry that is added
        or removed meanwhile is visited at most once.
        """
        some: list[tuple[K, V]] = []
        for bucket in self._buckets:
            some += bucket.items()
            if len(some) >= least:
                yield some
                some = []
        if some:
            yield some
