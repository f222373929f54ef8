"""Kinds of notifications: what is promised of each, and when one that is to be acknowledged is sent again.

An app names kinds as it likes; what is not named in the settings is durable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

# ephemeral: a signal, never kept. recomputable: the same, and the latest of a key replaces those before.
# durable: kept in the inbox. acknowledged: kept, and sent again until a device says that it was taken note of.
Promise = Literal["ephemeral", "recomputable", "durable", "acknowledged"]

AGAIN_S, LONGEST_S = 5.0, 60.0  # before it is sent again the first time, and at most
TIMES = 10  # so often it is sent again


class NotificationKind(NamedTuple):
    """What is promised."""

    promise: Promise = "durable"
    bus: Literal["full", "hint"] = "full"  # whether content travels between nodes, or only that there is something

    @property
    def is_kept(self) -> bool:
        return self.promise in ("durable", "acknowledged")

    @property
    def wants_ack(self) -> bool:
        return self.promise == "acknowledged"


class Kinds:
    """All that are named."""

    def __init__(self, named: Mapping[str, NotificationKind]) -> None:
        self._named = named
        self._other = NotificationKind()

    def of(self, kind: str) -> NotificationKind:
        return self._named.get(kind, self._other)


def wait_s(times: int) -> float:
    """How long an answer may take to what was sent again so often."""
    return min(LONGEST_S, AGAIN_S * (1 << times))


# From the first time to the end of the last wait.
RETRIED_S = sum(wait_s(times) for times in range(TIMES + 1))
