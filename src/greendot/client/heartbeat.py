"""Heartbeats of a link, and the detection of a silent server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

SILENT_BEATS = 2.5  # heartbeat intervals without any frame until the link counts as dead


class HeartbeatTimer:
    """Timer that calls `beat` every `interval_s`, and `silent` once after SILENT_BEATS intervals without `received`.

    It uses two timers of the event loop and no task. Both end with `stop`, or after `silent`.
    """

    def __init__(self, interval_s: float, beat: Callable[[], None], silent: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._interval = interval_s
        self._patience = interval_s * SILENT_BEATS
        self._send_beat = beat
        self._silent = silent
        self._received_at = self._loop.time()
        # The first beat is early by a random time: clients that return together must not beat together.
        self._beating = self._loop.call_later(self._interval * random.uniform(0.5, 1.0), self._beat)
        self._listening = self._loop.call_later(self._patience, self._listen)

    def received(self) -> None:
        """Restart the silence timeout: a frame arrived."""
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
