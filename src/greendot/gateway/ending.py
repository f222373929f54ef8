"""Closing all that is connected to this node, or all of a tenant, because an operator wants it."""

from __future__ import annotations

import asyncio
import logging
import random

from greendot.gateway.connection import Connection
from greendot.gateway.parts import Parts
from greendot.protocol.codec import encode_event
from greendot.protocol.codes import Close
from greendot.protocol.events import Drain

AT_ONCE = 200  # closed in one turn of the loop
SOONEST_MS = 500
_log = logging.getLogger("greendot.gateway")


class Ending:
    """One for each node."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def end_all(self, code: int, reason: str, tenant: str | None) -> int:
        """Close them, some at a time. Answers how many there are."""
        connections = self._parts.registry.connections.values()
        theirs = [it for it in connections if it.session is not None and tenant in (None, it.session.tenant)]
        _log.warning("an operator has %d clients closed with %d", len(theirs), code)
        self._parts.tasks.spawn(self._end(theirs, code, reason))
        return len(theirs)

    async def _end(self, connections: list[Connection], code: int, reason: str) -> None:
        for number, connection in enumerate(connections):
            connection.close(code, reason, self._told(len(connections)) if code == Close.DRAINING else None)
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)

    def _told(self, many: int) -> bytes:
        """When to come back: another time for each, so that they come as evenly as hellos are taken, and before their
        sessions have run out."""
        settings = self._parts.settings
        evenly_ms = min(round(1000 * many / settings.admission.hellos_per_s), round(settings.presence.grace_s * 500))
        retry_in_ms = random.randint(SOONEST_MS, max(2 * SOONEST_MS, evenly_ms))
        return encode_event(Drain(retry_in_ms), self._parts.clock.now_ms())
