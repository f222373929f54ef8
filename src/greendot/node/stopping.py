"""Ending what runs: all of it, however some of it ends, and in time."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any

from greendot.telemetry import log_events
from greendot.telemetry.log import tell

SAID_S = 1.0  # for the line that says so


async def all_ended(*endings: Coroutine[Any, Any, None]) -> None:
    """Side by side. What fails is logged, and keeps nothing else from ending."""
    for failure in await asyncio.gather(*endings, return_exceptions=True):
        if isinstance(failure, Exception):
            tell(log_events.WORK_FAILED, failure, work="ending something")
        elif failure is not None:
            raise failure


def end_by(within_s: float) -> None:
    """See to it that this process ends by then, even if its loop is stuck: with code 1, and a line that says so."""

    def end() -> None:
        # Whoever reads the log may be what it is stuck at: then it ends without the line.
        threading.Timer(SAID_S, os._exit, (1,)).start()
        tell(log_events.NODE_STUCK, after_s=within_s)
        os._exit(1)

    timer = threading.Timer(within_s, end)
    timer.daemon = True  # a process that ends by itself does not wait for it
    timer.start()
