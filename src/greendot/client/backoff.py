"""How long to wait before the next attempt to connect."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

# A server's wish is honoured up to here: a wrong one must not send a client away for a day.
LONGEST_HINT_S = 300.0


@dataclass(frozen=True)
class Backoff:
    """Exponential with full jitter: anywhere between nothing and the bound, so that a crowd never returns as one."""

    base_s: float = 0.5
    cap_s: float = 30.0
    give_up_s: float = 10.0  # how long the first connection is tried; later ones are never given up
    random: Callable[[], float] = random.random  # in [0, 1)

    def delay(self, failures: int, retry_in_ms: int | None = None) -> float:
        """Seconds before the next attempt, after `failures` in a row (0: the connection had been good).

        `retry_in_ms`, where the server gave it, is the least; the jitter comes on top.
        """
        # 2 ** 63 overflows no float, and every cap is reached long before.
        jitter = self.random() * min(self.cap_s, self.base_s * 2.0 ** min(failures, 63))
        if retry_in_ms is None:
            return jitter
        return min(max(retry_in_ms, 0) / 1000, LONGEST_HINT_S) + self.random() * self.base_s
