"""Backoff between connection attempts."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

# Longest server hint that a client follows: a wrong hint must not keep the client away for a day.
LONGEST_HINT_S = 300.0


@dataclass(frozen=True)
class Backoff:
    """Exponential backoff with full jitter.

    Each delay is random between 0 and the bound, so that many clients never return at the same moment.
    """

    base_s: float = 0.5
    cap_s: float = 30.0
    give_up_s: float = 10.0  # seconds for the first connection; later connections are retried without limit
    random: Callable[[], float] = random.random  # in [0, 1)

    def delay(self, failures: int, retry_in_ms: int | None = None) -> float:
        """Return the seconds to wait before the next attempt, after `failures` in a row.

        0 failures: the last connection was steady. `retry_in_ms`, if the server gave it, is the minimum; jitter is
        added to it.
        """
        # 2.0 ** 63 does not overflow a float, and every cap is reached long before.
        jitter = self.random() * min(self.cap_s, self.base_s * 2.0 ** min(failures, 63))
        if retry_in_ms is None:
            return jitter
        return min(max(retry_in_ms, 0) / 1000, LONGEST_HINT_S) + self.random() * self.base_s
