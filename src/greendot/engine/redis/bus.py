"""The bus: exact channels on the server their partition is on, confirmed before anything is read.

Nothing waits on the way in: a message is verified and handed over in the turn of the loop it arrives in. A node that
does not keep up is cut off by Redis (`client-output-buffer-limit pubsub`), which is a gap like any other: counted, and
everything is read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from greendot.engine.messages import Message, Topic
from greendot.engine.port import Host
from greendot.engine.redis import keys
from greendot.engine.redis.bus_codec import BusCodec, Malformed, Reader
from greendot.engine.redis.partitions import Primaries
from greendot.engine.redis.primary import Primary
from greendot.engine.redis.record_codec import nodes_of
from greendot.errors import EngineUnavailable
from greendot.telemetry.metrics_model import Histogram

BATCH = 500  # channels in one SUBSCRIBE at most
MOST_ROUTED = 10_000  # messages to users waiting to learn which nodes they go to; beyond it they are dropped
TIMED = 64  # one message in so many says when it was published


class ChannelSubscription(NamedTuple):
    """A channel this node wants to hear."""

    topic: Topic
    partition: int
    read: Reader


class BusCounts:
    """What an operator wants to know of the bus."""

    __slots__ = ("dropped", "gaps", "invalid", "published")

    def __init__(self) -> None:
        self.invalid = 0  # messages that were not ours
        self.gaps = 0  # times something may have been missed
        self.dropped = 0  # messages to users that could not be routed
        self.published = 0  # messages of this node's, wherever they went


class RedisBus:
    """See `engine.port.Bus`."""

    def __init__(self, servers: Primaries, messages: BusCodec, prefix: str) -> None:
        self.counts = BusCounts()
        self.lag = Histogram()  # from being published to being heard
        self.now: Callable[[], int] = lambda: 0  # the engine's time; 0: nobody knows
        self.own: set[str] = set()  # this node's incarnations; messages to them need not travel
        self._servers = servers
        self._messages = messages
        messages.timed = self._timed
        self._prefix = prefix
        self._host: Host | None = None
        self._subscriptions: dict[bytes, ChannelSubscription] = {}  # by channel
        self._beats: dict[bytes, Primary] = {}  # channels the watchdog listens on
        self._routing: set[asyncio.Future[Any]] = set()
        shard = "S" if servers.sharded else ""
        self.publish_command, self._on, self._off = f"{shard}PUBLISH", f"{shard}SUBSCRIBE", f"{shard}UNSUBSCRIBE"
        self._kinds = (b"smessage",) if servers.sharded else (b"message",)
        self._ended = b"sunsubscribe"
        self.beaten: Callable[[Primary], None] = lambda server: None  # told of a beat that came back
        self.silenced: Callable[[int], None] = lambda partition: None  # told of a partition that fell silent

    def attach(self, host: Host | None) -> None:
        """Who gets the messages."""
        self._host = host

    # --- hearing ---

    async def subscribe(self, topics: Iterable[Topic]) -> None:
        wanted = [self._want(topic) for topic in topics]
        await self._subscribe_link(self._on, wanted)

    async def unsubscribe(self, topics: Iterable[Topic]) -> None:
        unwanted = []
        for topic in topics:
            channel = keys.channel(self._prefix, topic)
            heard = self._subscriptions.pop(channel.encode(), None)
            if heard is not None:
                unwanted.append((channel, heard.partition))
        try:
            await self._subscribe_link(self._off, unwanted)
        except EngineUnavailable:
            pass  # the connection is gone, and what was subscribed on it

    def _want(self, topic: Topic) -> tuple[str, int]:
        channel = keys.channel(self._prefix, topic)
        partition = keys.partition_of(topic.tenant, topic.name)
        self._subscriptions[channel.encode()] = ChannelSubscription(
            topic, partition, self._messages.reader(channel, topic)
        )
        return channel, partition

    async def _subscribe_link(self, command: str, channels: Iterable[tuple[str, int]]) -> None:
        by_server: dict[Primary, list[tuple[str, int]]] = {}
        for channel, partition in channels:
            by_server.setdefault(self._servers.of(partition), []).append((channel, partition))
        await asyncio.gather(*(self._send_command(s, command, chosen) for s, chosen in by_server.items()))

    async def _send_command(self, server: Primary, command: str, channels: list[tuple[str, int]]) -> None:
        try:
            await server.subscribe(command, self._batches(channels))
        except EngineUnavailable as error:
            self._servers.refused(server, error)  # a slot that has moved is to be found before the next attempt
            raise

    def _batches(self, channels: Iterable[tuple[str, int]]) -> list[list[str]]:
        """As few commands as may be: in a cluster all channels of one must be in the same slot."""
        groups: dict[int, list[str]] = {}
        for channel, partition in channels:
            groups.setdefault(partition if self._servers.sharded else 0, []).append(channel)
        return [group[at : at + BATCH] for group in groups.values() for at in range(0, len(group), BATCH)]

    async def resubscribe(self, server: Primary, partitions: set[int]) -> None:
        """Everything wanted that is on these partitions of the server."""
        channels = [(c.decode(), h.partition) for c, h in self._subscriptions.items() if h.partition in partitions]
        await server.subscribe(self._on, self._batches(channels))

    async def watch(self, server: Primary, channel: str) -> None:
        """Hear the watchdog's own beats on this server."""
        self._beats = {c: s for c, s in self._beats.items() if s is not server}
        self._beats[channel.encode()] = server
        await server.subscribe(self._on, [[channel]])

    def pushed(self, push: list[Any]) -> None:
        """The way in. The channel alone says whom it is for; the frame in it is not looked at."""
        if push[0] in self._kinds:
            heard = self._subscriptions.get(push[1])
            if heard is None:
                self._beat(push)
                return
            host = self._host
            if host is None:
                return
            try:
                topic, message = heard.read(push[2])
            except Malformed:
                self.counts.invalid += 1
                return
            host.receive(topic, message)
        elif push[0] == self._ended and (heard := self._subscriptions.get(push[1])) is not None:
            self.silenced(heard.partition)  # Redis ends subscriptions by itself when their slot goes elsewhere

    def _beat(self, push: list[Any]) -> None:
        server = self._beats.get(push[1])
        if server is not None:
            try:
                server.beat_heard = max(server.beat_heard, self._messages.read_beat(push[1].decode(), push[2]))
                self.beaten(server)
            except Malformed:
                self.counts.invalid += 1

    # --- speaking ---

    def publish(self, topic: Topic, message: Message) -> None:
        self.counts.published += 1
        if topic.kind == "user":
            self._route(topic, message)
            return
        if topic.kind == "node" and topic.name in self.own:
            self.here(topic, message)
            return
        server = self._servers.of(keys.partition_of(topic.tenant, topic.name))
        if not server.up:
            self.here(topic, message)
            return
        channel = keys.channel(self._prefix, topic)
        server.post(self.publish_command, channel, self._write(channel, message))

    async def reach(self, node: str, message: Message) -> bool:
        topic = Topic("node", "", node)
        if node in self.own:
            self.here(topic, message)
            return True
        channel = keys.channel(self._prefix, topic)
        server = self._servers.of(keys.partition_of("", node))
        heard: int = await server.call(self.publish_command, channel, self._write(channel, message))
        return heard > 0

    def _write(self, channel: str, message: Message, topic: Topic | None = None) -> bytes:
        at = 0 if self.counts.published % TIMED else self.now()
        return self._messages.write(channel, message, topic, at)

    def _timed(self, at: int) -> None:
        now = self.now()
        if now:
            self.lag.observe(max(0, now - at) / 1000)

    def here(self, topic: Topic, message: Message) -> None:
        """To this node alone: the message is for it, or cannot go any further now."""
        heard = topic.kind in ("user", "node") or keys.channel(self._prefix, topic).encode() in self._subscriptions
        if heard and self._host is not None:
            self._host.receive(topic, message)

    def _route(self, topic: Topic, message: Message) -> None:
        """To the nodes that hold sessions of the user: ask which, in the order the messages came."""
        if len(self._routing) >= MOST_ROUTED:
            self.counts.dropped += 1
            return
        where = keys.user_keys(self._prefix, topic.tenant, topic.name)
        server = self._servers.of(where.partition)
        if not server.up:
            self.here(topic, message)
            return
        asked = server.call("HGET", where.presence, where.field)
        self._routing.add(asked)
        asked.add_done_callback(lambda answer: self._routed(topic, message, answer))

    def _routed(self, topic: Topic, message: Message, answer: asyncio.Future[Any]) -> None:
        self._routing.discard(answer)
        if answer.cancelled() or answer.exception() is not None:
            self.here(topic, message)
            return
        record = answer.result()
        nodes = nodes_of(record.decode()) if record else set()
        if nodes & self.own:
            self.here(topic, message)
        for node in nodes - self.own:
            channel = keys.channel(self._prefix, Topic("node", "", node))
            server = self._servers.of(keys.partition_of("", node))
            server.post(self.publish_command, channel, self._write(channel, message, topic))

    async def drained(self) -> None:
        """Everything published so far is on its way."""
        if self._routing:
            await asyncio.wait(self._routing)
