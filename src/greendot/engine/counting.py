"""What an engine has to say to who watches over it."""

from __future__ import annotations

from typing import Protocol

from greendot.telemetry.histogram_model import Histogram


class CountingEngine(Protocol):
    """Costs nothing to ask: all of it is in memory."""

    def counts(self) -> dict[str, float]:
        """What the engine has counted, by metric name."""
        ...

    def histograms(self) -> dict[str, Histogram]:
        """What it has measured, by metric name."""
        ...
