"""When to leave somebody alone who does not answer well: what others call a circuit breaker.

After some failures in a row nothing is tried for a while. Then one is, to see, while the others go on waiting: each
time that fails the next while is longer, and the first that goes well ends it. Who says how long to wait is obeyed.
"""

from __future__ import annotations

from msgspec import Struct

from greendot.webhooks.model import pause_s

TRYING_S = 1.0  # how long the others wait while one is tried


class CircuitBreaker(Struct):
    """How it stands with one of them. Times are of one monotonic clock, in seconds."""

    after: int = 5  # failures in a row
    longest_s: float = 60.0
    failures: int = 0  # in a row
    pauses: int = 0  # in a row
    rests_until: float = 0.0
    asked_until: float = 0.0  # by the other side
    is_trying: bool = False

    @property
    def is_open(self) -> bool:
        """Whether it is left alone, but for one try now and then."""
        return self.failures >= self.after

    def wait_s(self, now: float) -> float:
        """How long to wait at least. 0: `begin` now."""
        until = max(self.asked_until, self.rests_until if self.is_open else 0.0)
        if now < until:
            return until - now
        return TRYING_S if self.is_open and self.is_trying else 0.0

    def begin(self) -> bool:
        """Whether this is the one try by which it is seen how it stands. It comes to an `end`, whatever happens."""
        if self.is_open:
            self.is_trying = True
        return self.is_open

    def end(self, now: float, chance: float, *, was_try: bool, went_well: bool | None) -> None:
        """What came of it; None: nothing is known. `chance`, 0 to 1, as for `pause_s`."""
        if was_try:
            self.is_trying = False
        if went_well:
            # Also one that was begun before: who answers is there.
            self.failures = self.pauses = 0
        elif went_well is not None:
            self.failures += 1
            # What was under way already when it opened, and fails, says nothing new.
            if was_try or self.failures == self.after:
                self.pauses += 1
                self.rests_until = now + min(self.longest_s, pause_s(self.pauses, chance))

    def asked_to_rest(self, now: float, wait_s: float) -> None:
        """The other side wants to be left alone for so long."""
        self.asked_until = max(self.asked_until, now + wait_s)
