"""Clients that are to fetch what no version they read can show.

Each is told a moment after it happened, once for all that happened in between: what it then fetches has all of it. The
moment is another for each client, so that a room full of old ones does not ask at once.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from greendot.node.context import NodeContext
from greendot.protocol.codec import encode_event
from greendot.protocol.events import Refresh
from greendot.transport.connection import Connection

LONGEST_S = 4.0  # after which a client is told; half of it at the least


class VersionFallback:
    """What the clients here are to fetch. Nothing is kept of one for which nothing waits."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._unread: dict[Connection, set[str]] = {}  # types of events

    def later(self, connection: Connection, types: Iterable[str]) -> None:
        unread = self._unread.get(connection)
        if unread is None:
            unread = self._unread[connection] = set()
            self._context.timers.set(LONGEST_S * random.uniform(0.5, 1.0), self._on_timer, connection)
        unread.update(types)

    def _on_timer(self, connection: Connection) -> None:
        now = self._context.clock.now_ms()
        for of in sorted(self._unread.pop(connection)):
            connection.send(encode_event(Refresh(of), now))
