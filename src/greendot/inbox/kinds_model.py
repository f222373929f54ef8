"""Kinds of notifications: the promise of each kind, and the waits between redeliveries.

An app chooses the names of kinds. A kind that the settings do not name is durable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

# ephemeral: a signal, never kept. recomputable: a signal; while signals wait for a slow client, the latest signal of a
# kind and key replaces the earlier ones.
# durable: kept in the inbox. acknowledged: kept in the inbox, and redelivered until a device acknowledges it.
Promise = Literal["ephemeral", "recomputable", "durable", "acknowledged"]

AGAIN_S, LONGEST_S = 5.0, 60.0  # seconds before the first redelivery, and the longest wait
TIMES = 10  # redeliveries of one notification


class NotificationKind(NamedTuple):
    """Promise of a kind, and the content of its bus messages."""

    promise: Promise = "durable"
    bus: Literal["full", "hint"] = "full"  # "hint": the bus carries the number without content

    @property
    def is_kept(self) -> bool:
        return self.promise in ("durable", "acknowledged")

    @property
    def wants_ack(self) -> bool:
        return self.promise == "acknowledged"


class Kinds:
    """Kinds that the settings name."""

    def __init__(self, named: Mapping[str, NotificationKind]) -> None:
        self._named = named
        self._other = NotificationKind()

    def of(self, kind: str) -> NotificationKind:
        return self._named.get(kind, self._other)


def wait_s(times: int) -> float:
    """Return the seconds to wait for an acknowledgement after `times` redeliveries."""
    return min(LONGEST_S, AGAIN_S * (1 << times))


# Seconds from the first delivery to the end of the last wait.
RETRIED_S = sum(wait_s(times) for times in range(TIMES + 1))
