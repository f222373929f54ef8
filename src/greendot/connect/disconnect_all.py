"""Closing all that is connected to this node, or all of a tenant, because an operator wants it."""

from __future__ import annotations

import asyncio

from greendot.app.parts import Parts
from greendot.connect.drain import AT_ONCE, come_back
from greendot.protocol.codes import Close
from greendot.telemetry import log_events
from greendot.telemetry.log import tell
from greendot.transport.connection import Connection


class Ending:
    """One for each node."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def end_all(self, code: int, reason: str, tenant: str | None) -> int:
        """Close them, some at a time. Answers how many there are."""
        connections = self._parts.registry.connections.values()
        theirs = [it for it in connections if it.session is not None and tenant in (None, it.session.tenant)]
        tell(log_events.CLIENTS_ENDED, clients=len(theirs), code=code, tenant=tenant)
        self._parts.tasks.spawn(self._end(theirs, code, reason))
        return len(theirs)

    async def _end(self, connections: list[Connection], code: int, reason: str) -> None:
        for number, connection in enumerate(connections):
            connection.close(code, reason, self._told(len(connections)) if code == Close.DRAINING else None)
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)

    def _told(self, many: int) -> bytes:
        settings = self._parts.settings
        evenly_s = many / settings.admission.hellos_per_s
        return come_back(evenly_s, settings.presence.grace_s, self._parts.clock.now_ms())
