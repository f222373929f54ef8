"""Something outside that may be away: said once when it is lost and once when it is back, however often it is asked."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from greendot.telemetry.log import Event, tell


class Absence:
    """Of one thing, which `fields` name."""

    def __init__(self, lost: Event, back: Event, now: Callable[[], float] = monotonic, **fields: object) -> None:
        self._lost = lost
        self._back = back
        self._now = now
        self._fields = fields
        self._since: float | None = None

    @property
    def is_away(self) -> bool:
        return self._since is not None

    def began(self, reason: object) -> None:
        if self._since is None:
            self._since = self._now()
            tell(self._lost, reason=reason, **self._fields)

    def ended(self) -> None:
        """It answers, as ever or again."""
        if self._since is not None:
            away_s, self._since = self._now() - self._since, None
            tell(self._back, away_s=round(away_s, 3), **self._fields)
