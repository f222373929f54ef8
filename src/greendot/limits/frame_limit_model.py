"""Limit of frames on one connection."""

from __future__ import annotations

FLOOD_FACTOR = 10  # times the limit …
FLOOD_SECONDS = 10  # … for so many consecutive seconds closes the connection
READ_FACTOR = 2 * FLOOD_FACTOR  # times the limit: a flood is read no faster, but fast enough to be recognised as one
LONGEST_PAUSE_S = 1.0


class CommandLimit:
    """Token bucket of one connection, and detection of a client that keeps ignoring it.

    `admit` is called for every frame. It costs two comparisons while a client stays within its rate.
    """

    __slots__ = (
        "_burst",
        "_flooded",
        "_level",
        "_missing",
        "_next_second",
        "_rate",
        "_refused",
        "_seen",
        "_unjudged",
        "_updated",
    )

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._level = burst
        self._updated = now
        self._next_second = int(now) + 1  # end of the current second
        self._seen = 0.0  # frames in the current second
        self._refused = 0  # frames over the limit in the current second, since the last pause of reading
        self._flooded = 0  # consecutive whole seconds with FLOOD_FACTOR times the rate
        self._unjudged = 0  # seconds after the flooded ones in which frames may have waited unread
        self._missing = 0.0  # further frames that would make the unjudged seconds a flood too

    @property
    def rate(self) -> float:
        return self._rate

    def change(self, rate: float, burst: float) -> None:
        """Apply another rate and burst; used tokens stay used."""
        self._level += burst - self._burst
        self._rate = rate
        self._burst = burst

    def admit(self, now: float) -> float:
        """Return 0.0 if the frame is within the limit, else the seconds until the next one is."""
        if now >= self._next_second:
            self._turn(int(now))
        self._seen += 1
        level = self._level + (now - self._updated) * self._rate
        if level > self._burst:
            level = self._burst
        self._updated = now
        if level >= 1.0:
            self._level = level - 1.0
            return 0.0
        self._level = level
        self._refused += 1
        return (1.0 - level) / self._rate

    @property
    def flooding(self) -> bool:
        """Return whether the client has sent FLOOD_FACTOR times its rate for FLOOD_SECONDS consecutive seconds."""
        return self._flooded >= FLOOD_SECONDS and not self._unjudged

    # --- pauses ---

    def pause_s(self) -> float:
        """Return how long not to read from the client, for the frames over the limit since the last pause."""
        refused, self._refused = self._refused, 0
        return min(refused / (self._rate * READ_FACTOR), LONGEST_PAUSE_S)

    def paused(self, for_s: float) -> None:
        """Count a pause as flooded, however late it ended: the client sent more than was read."""
        self._seen += for_s * self._rate * FLOOD_FACTOR

    # --- seconds ---

    def _turn(self, second: int) -> None:
        """Judge the seconds before `second`; frames were read only in the first of them.

        A gap is no proof of silence: when the loop is late, the frames of the gap are read after it. So a gap is judged
        once, together with the seconds after it.
        """
        flood = self._rate * FLOOD_FACTOR
        passed = second - self._next_second + 1
        if self._unjudged:
            whole = self._seen >= flood * passed + self._missing
            self._flooded = self._flooded + self._unjudged if whole else 0
            self._unjudged, self._missing = 0, 0.0
        if self._seen >= flood * passed:
            self._flooded += passed
        elif passed > 1:
            self._unjudged, self._missing = passed, flood * passed - self._seen
        else:
            self._flooded = 0
        self._next_second = second + 1
        self._seen = 0.0
        self._refused = 0
