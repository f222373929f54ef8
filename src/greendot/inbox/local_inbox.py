"""The inbox of a user with sessions on this node, and what is known of it here."""

from __future__ import annotations

from typing import NamedTuple

from greendot.ids import Key
from greendot.node.stream import LocalStream
from greendot.node.timer_model import Timer
from greendot.store.inbox import Inbox


class QueuedNotification(NamedTuple):
    """A notification on its way to the user's devices."""

    frame: bytes
    ack: bool  # it is sent again until it is acknowledged


class PendingAck(NamedTuple):
    """A notification that waits to be acknowledged."""

    times: int  # it was sent again
    due: float  # monotonic seconds, when it is sent again


class LocalInbox:
    """One for each user, from the first session here to the last."""

    __slots__ = ("key", "known", "pending_acks", "redelivery_timer", "shown", "stream")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.known = False  # whether its head was read: before that nothing is known to be missing
        self.stream: LocalStream[QueuedNotification] = LocalStream()  # the notifications, as offered to the devices
        self.shown: Inbox | None = None  # as the devices were last told of it
        self.pending_acks: dict[int, PendingAck] | None = None  # by number; most have none
        self.redelivery_timer: Timer | None = None  # set while a device is connected that could acknowledge

    @property
    def cursor(self) -> int:
        """The number of the newest notification offered to the devices."""
        return self.stream.cursor
