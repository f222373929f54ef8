"""Heartbeats: said at a steady pace, and a link that hears nothing is given up."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

SILENT_BEATS = 2.5  # nothing heard for so many heartbeats means that nobody is there


class HeartbeatTimer:
    """Calls `beat` every `interval_s`, and `silent` once when `received` was not called for SILENT_BEATS of them.

    Two timers of the event loop, no task. Both end with `stop`, or after `silent`.
    """

    def __init__(self, interval_s: float, beat: Callable[[], None], silent: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._interval = interval_s
        self._patience = interval_s * SILENT_BEATS
        self._send_beat = beat
        self._silent = silent
        self._received_at = self._loop.time()
        # The first comes sooner, for each by another time: many who came back together must not beat together.
        self._beating = self._loop.call_later(self._interval * random.uniform(0.5, 1.0), self._beat)
        self._listening = self._loop.call_later(self._patience, self._listen)

    def received(self) -> None:
        """Anything came from the other side."""
        self._received_at = self._loop.time()

    def stop(self) -> None:
        self._beating.cancel()
        self._listening.cancel()

    def _beat(self) -> None:
        self._beating = self._loop.call_later(self._interval, self._beat)
        self._send_beat()

    def _listen(self) -> None:
        end = self._received_at + self._patience
        if self._loop.time() < end:
            self._listening = self._loop.call_at(end, self._listen)
        else:
            self.stop()
            self._silent()
