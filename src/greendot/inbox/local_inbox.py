"""State of the inbox of a user with sessions on this node."""

from __future__ import annotations

from typing import NamedTuple

from greendot.ids import Key
from greendot.node.stream import LocalStream
from greendot.node.timer_model import Timer
from greendot.store.inbox import Inbox


class QueuedNotification(NamedTuple):
    """Notification on its way to the user's devices."""

    frame: bytes
    ack: bool  # redelivered until acknowledged


class PendingAck(NamedTuple):
    """Notification that waits for an acknowledgement."""

    times: int  # number of redeliveries
    due: float  # monotonic seconds of the next redelivery


class LocalInbox:
    """Inbox of one user, from the first session on this node to the last."""

    __slots__ = ("key", "known", "pending_acks", "redelivery_timer", "shown", "stream")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.known = False  # whether the head (the last number) was read; before that, a gap cannot be detected
        self.stream: LocalStream[QueuedNotification] = LocalStream()  # notifications offered to the devices
        self.shown: Inbox | None = None  # inbox with the counts in the last badge
        self.pending_acks: dict[int, PendingAck] | None = None  # by number; None for most inboxes
        self.redelivery_timer: Timer | None = None  # set while a redelivery is scheduled

    @property
    def cursor(self) -> int:
        """Return the number of the newest notification offered to the devices."""
        return self.stream.cursor
