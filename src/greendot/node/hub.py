"""Fan-out on this node: from a topic to its local listeners, joined and written once per turn of the event loop (tick).

The fast path is `_broadcast`: the frames of one topic are joined once, and the same bytes are written directly to each
listener's socket. There is no task, queue or copy per listener, and no await in the loop.

A write to a thousand sockets takes milliseconds, however many frames are joined in it. Frames that have arrived
meanwhile are read in the next turn. If there are some, the clients send fast, and will soon send more. So the next
write waits for more frames, for a tenth of the time of the last one (docs/adr/0093).

Each tick has a slice, a limited time for writes. Writes that take longer continue in the next tick. Between two ticks
the node reads sockets. Large rooms take turns, each with some of its listeners. Frames for a room that is being written
wait and are joined into its next write. Of waiting signals with the same key, only the latest is written.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable
from time import monotonic, perf_counter

from greendot.engine.messages import Topic
from greendot.node.bucket_model import BucketDict
from greendot.node.channel import Channel, ChannelWrite, Pending
from greendot.node.hub_model import HotTopics, WriteThrottle
from greendot.node.session import Connection
from greendot.protocol.versions import Dialect
from greendot.telemetry.metrics import Metrics
from greendot.transport.fan_out import FAILED, send_each

SLICE_S = 0.005  # longest time of a flush, about
LARGE = 1_000  # listeners of a channel; above this number a write is cut into slices
FEW = 100  # listeners; up to this number a write is never cut, whatever the size of its frames
LARGE_BYTES = 8_000_000  # bytes of one write to all listeners (about 2 ms of work); a larger write is cut, too
STEP = 200  # writes between two checks of the clock
MANY = 250  # writes of one flush, about a millisecond of work; only after so many, the next flush waits for more frames
# The wait: a tenth of the time that the writes took, about, and the longest wait.
WAIT_S, LONGEST_WAIT_S = 0.4e-6, 0.5e-3
# Frames that wait for a queued channel. Above this number, signals of one key are merged. If there is still no room,
# new signals are dropped.
MOST_WAITING = 1_000


class Hub:
    """Channels of a node and their output. `throttle`, if given, bounds the writes per second."""

    def __init__(
        self, metrics: Metrics, throttle: WriteThrottle | None = None, now: Callable[[], float] = monotonic
    ) -> None:
        self._metrics = metrics
        self._throttle = throttle
        self._now = now
        self._channels = BucketDict[Topic, Channel]()
        self.kinds = Counter[str]()  # number of topics with listeners on this node, by kind
        self._busy: deque[Channel] = deque()  # channels with pending frames
        self._queue: deque[Channel] = deque()  # channels written in slices: large ones, and all while throttled
        self._talking: list[Connection] = []  # connections with collected frames of their own
        self.foreign: dict[Channel, None] = {}  # channels with listeners of foreign protocols
        self.waiting: set[Connection] = set()  # connections with frames that wait for a slow socket or a hello
        self._joins = 0  # joins of listeners since the start; a listener gets no frame that was offered before its join
        self._flush_set = False
        self._written = 0  # writes of the present flush
        self._waits_until = 0.0  # performance counter; until then channels wait, if `_waits`
        self._waits = False
        self._just_wrote = False  # a flush of many writes has ended, and sockets have been polled at most once since
        self.shedding = False  # while the node is overloaded: signals of low priority are dropped
        self._hot_topics: HotTopics[Topic] | None = None  # while the hottest topics are being read

    # --- channels ---

    def channel(self, topic: Topic) -> Channel:
        """Return the topic's channel, creating it on first use."""
        channel = self._channels.get(topic)
        if channel is None:
            channel = self._channels[topic] = Channel(topic)
            self.kinds[topic.kind] += 1
        return channel

    def find(self, topic: Topic) -> Channel | None:
        return self._channels.get(topic)

    def drop(self, channel: Channel) -> None:
        self.foreign.pop(channel, None)
        if self._channels.pop(channel.topic) is not None:
            self.kinds[channel.topic.kind] -= 1

    def attach(self, channel: Channel, connection: Connection) -> None:
        """Add a listener. The listener does not get frames that wait already, because its snapshot contains them."""
        for item in channel.unwritten(connection):  # a listener that is attached again must still get these
            connection.send(item.frame, record=item.record, key=item.key)
        channel.listeners.pop(connection, None)
        self._joins += 1
        channel.listeners[connection] = self._joins
        channel.listeners_changed()
        if connection.dialect is not None and connection.dialect.shared:
            channel.mixed = True
            self.foreign[channel] = None

    def detach(self, channel: Channel, connection: Connection) -> None:
        channel.listeners.pop(connection, None)
        channel.listeners_changed()

    @property
    def topics(self) -> int:
        return self.kinds.total()

    @property
    def backlog(self) -> int:
        """Return the number of writes that wait for loop time."""
        return len(self._talking) + sum(channel.waiting for channel in (*self._busy, *self._queue))

    def hot(self, now: float) -> dict[Topic, float]:
        """Return writes per second, by topic. Counting starts at the first call, and ends seconds after the last."""
        if self._hot_topics is None:
            self._hot_topics = HotTopics(now)
        return self._hot_topics.per_s(now)

    def _warm(self, hot_topics: HotTopics[Topic], channel: Channel) -> None:
        hot_topics.add(channel.topic, len(channel.listeners))
        if self._now() > hot_topics.ends_at:
            self._hot_topics = None

    # --- output ---

    def offer(
        self,
        channel: Channel,
        frame: bytes,
        *,
        record: bool = False,
        key: object = None,
        skip: Collection[Connection] = (),
        low: bool = False,
    ) -> None:
        """Queue a frame for every listener except `skip`, to be written at the end of this tick.

        `low` marks a signal that is dropped under overload.
        """
        if not channel.listeners:
            return
        if low and self.shedding:
            self._metrics.drop(frame, "shed")
            return
        if channel.queued:
            if len(channel.pending) >= MOST_WAITING and not record and not self._merge(channel):
                self._metrics.drop(frame, "crowded")
                return
        elif not channel.pending:
            self._busy.append(channel)
            self._set_flush()
            self._waits |= self._just_wrote
        channel.pending.append(Pending(frame, record, key, skip, self._joins))

    def _merge(self, channel: Channel) -> bool:
        """Merge signals of one key; return whether there is room for another frame."""
        for frame in channel.merge():
            self._metrics.coalesce(frame)
        return len(channel.pending) < MOST_WAITING

    def send_each(self, connections: Iterable[Connection], frame: bytes, *, key: object = None) -> None:
        """Send a signal to some connections only."""
        for connection in connections:
            connection.send(frame, record=False, key=key)

    def has_output(self, connection: Connection) -> None:
        """Flush the connection, which has collected frames, at the end of this tick."""
        self._talking.append(connection)
        self._set_flush()

    def withdraw(self, tenant: str, of: Callable[[object], bool]) -> list[Connection]:
        """Drop waiting signals whose key matches `of` from all channels of a tenant.

        Return all connections with waiting frames. The caller drops the signals from these frames.
        """
        for channel in (*self._busy, *self._queue):
            if channel.topic.tenant == tenant:
                channel.withdraw(of)
        self._busy = deque(channel for channel in self._busy if channel.pending)
        for channel in [channel for channel in self._queue if not channel.pending and channel.run is None]:
            channel.queued = False
            self._queue.remove(channel)
        return [*{*self._talking, *self.waiting}]

    def flush(self) -> None:
        """Write pending output; continue in the next tick when this tick's slice is used up."""
        self._flush_set = self._waits = False
        self._written = 0
        end = perf_counter() + SLICE_S
        wait_s = 0.0 if self._throttle is None else self._throttle.wait_s(self._now())
        if len(self._busy) == 1 and not wait_s and not is_large(self._busy[0]):
            self._broadcast(self._busy.popleft())
        while self._busy:
            channel = self._busy.popleft()
            if wait_s or is_large(channel):
                channel.queued = True
                self._queue.append(channel)
            else:  # collect frames of all topics first, so that a listener of two busy topics is written once
                self._collect(channel)
            if perf_counter() > end:
                break
        self._write_collected(end)
        while self._queue and not wait_s:
            self._go_on(self._queue.popleft())
            wait_s = 0.0 if self._throttle is None else self._throttle.wait_s(self._now())
            if perf_counter() > end:
                break
        if self._written >= MANY and not self._queue:
            self._just_wrote = True
            self._waits_until = perf_counter() + min(self._written * WAIT_S, LONGEST_WAIT_S)
            asyncio.get_running_loop().call_soon(self._end_turn)
        if self._busy or self._talking or (self._queue and not wait_s):
            self._set_flush()
        elif self._queue:
            self._flush_set = True
            asyncio.get_running_loop().call_later(wait_s, self.flush)

    def _end_turn(self) -> None:
        self._just_wrote = False

    def _set_flush(self) -> None:
        if not self._flush_set:
            self._flush_set = True
            asyncio.get_running_loop().call_soon(self._on_turn)

    def _on_turn(self) -> None:
        """Flush, unless frames of channels wait for more frames. Frames of single connections never wait."""
        if self._waits and perf_counter() < self._waits_until:
            self._flush_set = False
            self._write_collected(self._waits_until)
            self._set_flush()
        else:
            self.flush()

    def _broadcast(self, channel: Channel) -> None:
        if self._hot_topics is not None:
            self._warm(self._hot_topics, channel)
        pending = channel.take()
        if pending:
            # Copy the listeners, because one that is too slow leaves the channel during the writes.
            self._write_all([*channel.listeners], ChannelWrite(channel, pending))

    def _go_on(self, channel: Channel) -> None:
        """Write to the next listeners of a channel, and queue the channel again if there are more."""
        if channel.run is None:
            if self._hot_topics is not None:
                self._warm(self._hot_topics, channel)
            self._merge(channel)
            channel.run = ChannelWrite(channel, channel.take())
            channel.run.todo = [*channel.listeners]
        run = channel.run
        some = run.todo[run.at : run.at + STEP]
        run.at += STEP
        if run.outdated:
            some = [connection for connection in some if run.is_for(connection)]
        self._write_all(some, run)
        if run.at < len(run.todo):
            self._queue.append(channel)
            return
        channel.run = None
        channel.queued = False
        if channel.pending:
            self._busy.append(channel)

    def _write_all(self, connections: list[Connection], run: ChannelWrite) -> None:
        special = run.special
        self._count(len(connections))
        direct = [connection for connection in connections if connection.direct >= 0 and connection not in special]
        others: list[Connection] = []
        if len(direct) < len(connections):
            others = [connection for connection in connections if connection.direct < 0 or connection in special]
        if run.mixed:
            for dialect, group in by_dialect(direct).items():
                self._write_as(dialect, group, run)
        else:
            self._write(direct, run.data, run.pending)
        for connection in others:
            run.offer_each(connection)

    def _write_as(self, dialect: Dialect | None, connections: list[Connection], run: ChannelWrite) -> None:
        """Write to the connections of one dialect: the frames are converted once for all of them."""
        if dialect is None:
            self._write(connections, run.data, run.pending)
        elif run.apart:
            for connection in connections:
                run.offer_each(connection)
        else:
            data, pending = run.as_read_by(dialect)
            if data:
                self._write(connections, data, pending)

    @staticmethod
    def _write(connections: list[Connection], data: bytes, pending: list[Pending]) -> None:
        for index, sent in send_each([connection.direct for connection in connections], data) or ():
            if sent == FAILED:
                connections[index].failed()
            else:
                connections[index].stall(pending, sent)

    def _collect(self, channel: Channel) -> None:
        if self._hot_topics is not None:
            self._warm(self._hot_topics, channel)
        run = ChannelWrite(channel, channel.take())
        is_apart = len(run.pending) > 1 and run.has_senders
        for connection in [*channel.listeners]:
            if is_apart or connection.behind or connection in run.special:
                run.offer_each(connection)
            else:
                # All frames are of one topic and are sent as one, so the key of the first stands for all.
                connection.send(run.data, key=run.pending[0].key)

    def _write_collected(self, end: float) -> None:
        talking, self._talking = self._talking, []
        for at in range(0, len(talking), STEP):
            for connection in talking[at : at + STEP]:
                connection.flush()
            if perf_counter() > end:
                self._talking = talking[at + STEP :] + self._talking
                break
        self._count(len(talking) - len(self._talking))

    def _count(self, sends: int) -> None:
        self._written += sends
        self._metrics.realtime_socket_send_total += sends
        if self._throttle is not None:
            self._throttle.take(sends)


def is_large(channel: Channel) -> bool:
    """Return whether the next write to all listeners takes so long that it is cut into slices."""
    listeners = len(channel.listeners)
    if listeners <= FEW or listeners > LARGE:
        return listeners > LARGE
    return listeners * sum(len(item.frame) for item in channel.pending) > LARGE_BYTES


def by_dialect(connections: list[Connection]) -> dict[Dialect | None, list[Connection]]:
    """Group connections by the dialect in which the hub writes to them; None: frames need no conversion."""
    groups: dict[Dialect | None, list[Connection]] = {}
    for connection in connections:
        dialect = connection.dialect
        if dialect is not None and not dialect.shared:
            dialect = None
        groups.setdefault(dialect, []).append(connection)
    return groups
