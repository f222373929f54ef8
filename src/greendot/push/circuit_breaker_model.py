"""Circuit breaker for outbound calls.

After some failures in a row no call is made for a while. Then one call is a trial, while other calls wait. Each failed
trial makes the next pause longer. The first success closes the breaker. A pause that the called host requests is
respected.
"""

from __future__ import annotations

from msgspec import Struct

from greendot.webhooks.model import pause_s

TRYING_S = 1.0  # seconds that other calls wait while the trial is under way


class CircuitBreaker(Struct):
    """Circuit breaker of one host. Times are seconds of one monotonic clock."""

    after: int = 5  # failures in a row that open the breaker
    longest_s: float = 60.0
    failures: int = 0  # number in a row
    pauses: int = 0  # number in a row
    rests_until: float = 0.0
    asked_until: float = 0.0  # end of the pause that the host requested
    is_trying: bool = False

    @property
    def is_open(self) -> bool:
        """Return whether calls pause, except for a trial now and then."""
        return self.failures >= self.after

    def wait_s(self, now: float) -> float:
        """Return the minimum seconds to wait; 0: `begin` now."""
        until = max(self.asked_until, self.rests_until if self.is_open else 0.0)
        if now < until:
            return until - now
        return TRYING_S if self.is_open and self.is_trying else 0.0

    def begin(self) -> bool:
        """Begin a call; return whether the call is the trial. Each `begin` must be followed by an `end`."""
        if self.is_open:
            self.is_trying = True
        return self.is_open

    def end(self, now: float, chance: float, *, was_try: bool, went_well: bool | None) -> None:
        """End a call and record whether it went well (None: unknown). `chance` is 0 to 1, as for `pause_s`."""
        if was_try:
            self.is_trying = False
        if went_well:
            # Also a call that began before the breaker opened: a host that answers is available.
            self.failures = self.pauses = 0
        elif went_well is not None:
            self.failures += 1
            # A failure of a call that was under way when the breaker opened adds nothing new.
            if was_try or self.failures == self.after:
                self.pauses += 1
                self.rests_until = now + min(self.longest_s, pause_s(self.pauses, chance))

    def asked_to_rest(self, now: float, wait_s: float) -> None:
        """Pause for at least `wait_s`, because the host requested it."""
        self.asked_until = max(self.asked_until, now + wait_s)
