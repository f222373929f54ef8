"""What the parts of a large room have in common: numbers instead of names, not too often."""

from __future__ import annotations

from collections.abc import Callable

from greendot.node.channel import Channel
from greendot.node.context import NodeContext
from greendot.node.timer_model import Timer
from greendot.node.timers import Timers
from greendot.transport.connection import Connection

COUNT_EVERY_S = 1.0  # a large room is told a count at most so often


class CountThrottle:
    """Has a count told now, if the last one is old enough; otherwise once, when it is."""

    __slots__ = ("_tell", "_timer", "_timers", "told_at")

    def __init__(self, timers: Timers, tell: Callable[[], None]) -> None:
        self._timers = timers
        self._tell = tell
        self._timer: Timer | None = None  # set while a count waits for its turn
        self.told_at = float("-inf")  # monotonic seconds

    def soon(self) -> None:
        wait_s = self.told_at + COUNT_EVERY_S - self._timers.now()
        if wait_s <= 0:
            self._now()
        elif self._timer is None:
            self._timer = self._timers.set(wait_s, self._now)

    def _now(self, _: None = None) -> None:
        self.close()
        self.told_at = self._timers.now()
        self._tell()

    def close(self) -> None:
        self._timers.cancel(self._timer)
        self._timer = None


def devices(context: NodeContext, channel: Channel, user: str) -> list[Connection]:
    """A user's connections among the channel's listeners."""
    connections = context.registry.connections_of(channel.topic.tenant, user)
    return [connection for connection in connections if connection in channel.listeners]
