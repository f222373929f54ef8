"""Fan-out on this node: from a topic to its local listeners, joined and written once per tick.

The fast path is `_broadcast`: the frames of one topic are joined once, and the same bytes are written straight to
each listener's socket. There is no task, queue or copy per listener, and no await in the loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Iterable
from typing import NamedTuple

from greendot.engine.base import Topic
from greendot.gateway.connection import Connection
from greendot.metrics import Metrics

_write = os.write


class RoomKey(NamedTuple):
    """The key of a room's signal or record. It names the room, so that what waits can be taken back from a member."""

    room: str
    what: object  # equal for signals that replace each other; never a text, so that it equals no other topic's key


class Pending(NamedTuple):
    """A frame for a topic's listeners, waiting for the end of the tick."""

    frame: bytes
    record: bool
    key: object
    skip: Collection[Connection]  # listeners that must not get it


class Channel:
    """The local listeners of one topic."""

    __slots__ = ("listeners", "pending", "topic")

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.listeners: dict[Connection, None] = {}
        self.pending: list[Pending] = []


class Hub:
    """Channels and this tick's output."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._channels: dict[Topic, Channel] = {}
        self._busy: list[Channel] = []  # with pending frames
        self._talking: list[Connection] = []  # with collected frames of their own
        self._flush_set = False

    # --- channels ---

    def channel(self, topic: Topic) -> Channel:
        """The topic's channel, made if there is none."""
        channel = self._channels.get(topic)
        if channel is None:
            channel = self._channels[topic] = Channel(topic)
        return channel

    def find(self, topic: Topic) -> Channel | None:
        return self._channels.get(topic)

    def drop(self, channel: Channel) -> None:
        self._channels.pop(channel.topic, None)

    def attach(self, channel: Channel, connection: Connection) -> None:
        # What is pending was said before this listener came; its snapshot contains it already.
        if channel.pending:
            self._broadcast(channel)
        channel.listeners[connection] = None

    def detach(self, channel: Channel, connection: Connection) -> None:
        channel.listeners.pop(connection, None)

    @property
    def topics(self) -> int:
        return len(self._channels)

    # --- output ---

    def offer(
        self,
        channel: Channel,
        frame: bytes,
        *,
        record: bool = False,
        key: object = None,
        skip: Collection[Connection] = (),
    ) -> None:
        """A frame for every listener but `skip`, to be written at the end of this tick."""
        if not channel.listeners:
            return
        if not channel.pending:
            self._busy.append(channel)
            self._set_flush()
        channel.pending.append(Pending(frame, record, key, skip))

    def send_each(self, connections: Iterable[Connection], frame: bytes, *, key: object = None) -> None:
        """A signal for some connections only."""
        for connection in connections:
            connection.send(frame, record=False, key=key)

    def has_output(self, connection: Connection) -> None:
        """The connection has collected frames: flush them with the rest."""
        self._talking.append(connection)
        self._set_flush()

    def flush(self) -> None:
        """Write everything of this tick."""
        busy, self._busy = self._busy, []
        if len(busy) > 1:
            # A listener of two busy topics is written once: everybody collects first.
            for channel in busy:
                self._collect(channel)
        elif busy:
            self._broadcast(busy[0])
        talking, self._talking = self._talking, []
        self._flush_set = False
        self._metrics.realtime_socket_send_total += len(talking)
        for connection in talking:
            connection.flush()

    def _set_flush(self) -> None:
        if not self._flush_set:
            self._flush_set = True
            asyncio.get_running_loop().call_soon(self.flush)

    def _broadcast(self, channel: Channel) -> None:
        pending, channel.pending = channel.pending, []
        if not pending:  # a newcomer had it written already
            return
        data = pending[0].frame if len(pending) == 1 else b"".join([item.frame for item in pending])
        size = len(data)
        special = {connection for item in pending for connection in item.skip}
        self._metrics.realtime_socket_send_total += len(channel.listeners)
        # A copy, because a listener that turns out to be too slow leaves the channel while this runs.
        for connection in [*channel.listeners]:
            fd = connection.direct
            if fd < 0 or connection in special:
                self._offer_each(connection, pending)
                continue
            try:
                sent = _write(fd, data)
            except OSError as error:
                connection.write_error(error, data)
                continue
            if sent != size:
                connection.stall(data, sent)

    def _collect(self, channel: Channel) -> None:
        pending, channel.pending = channel.pending, []
        if any(item.skip for item in pending):
            for connection in [*channel.listeners]:
                self._offer_each(connection, pending)
            return
        joined = b"".join([item.frame for item in pending])
        for connection in [*channel.listeners]:
            if connection.behind:
                self._offer_each(connection, pending)
            else:
                connection.send(joined)

    @staticmethod
    def _offer_each(connection: Connection, pending: list[Pending]) -> None:
        for item in pending:
            if connection not in item.skip:
                connection.send(item.frame, record=item.record, key=item.key)
