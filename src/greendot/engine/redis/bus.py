"""Bus on Redis. Each topic, except those of users, has a channel on the Redis server that holds the topic's partition.

A message to a user goes to the channels of the nodes that hold sessions of
the user.

`subscribe` returns after Redis has confirmed the subscriptions. A caller that then reads a snapshot misses no change.
Incoming messages never wait: as soon as a message arrives, the node verifies and delivers it. If a node reads too
slowly, Redis disconnects the node (`client-output-buffer-limit pubsub`). The node then counts a gap in its metrics, and
reads the state of all subscribed topics again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, NamedTuple

from greendot.engine.messages import Message, Topic
from greendot.engine.port import Host
from greendot.engine.redis import keys
from greendot.engine.redis.bus_codec import BusCodec, Malformed, Reader
from greendot.engine.redis.partitions import Primaries
from greendot.engine.redis.primary import Primary
from greendot.engine.redis.record_codec import nodes_of
from greendot.errors import EngineUnavailable
from greendot.node.bucket_model import BucketDict
from greendot.telemetry.metrics_model import Histogram

BATCH = 500  # maximum number of channels in one SUBSCRIBE
AGAIN = 2_000  # after a reconnect, subscriptions are checked in steps of this size; in between, other tasks run
# Before a message to a user is sent, Redis is asked which nodes hold sessions of this user. At most this number of
# messages waits for the answer; further ones are dropped.
MOST_ROUTED = 10_000
TIMED = 64  # about one of 64 messages carries the time of its publication, for the metric `lag`


class ChannelSubscription(NamedTuple):
    """Channel that this node subscribes to."""

    topic: Topic
    partition: int
    read: Reader


class BusCounts:
    """Counters of the bus."""

    __slots__ = ("dropped", "gaps", "invalid", "published")

    def __init__(self) -> None:
        self.invalid = 0  # malformed messages, such as those without a valid MAC
        self.gaps = 0  # interruptions of subscriptions; messages may have been missed
        self.dropped = 0  # messages to users, dropped because of MOST_ROUTED
        self.published = 0  # calls of `publish`, including those whose message was dropped; `reach` does not count


class RedisBus:
    """Bus on Redis; see `engine.port.Bus`."""

    def __init__(self, servers: Primaries, messages: BusCodec, prefix: str) -> None:
        self.counts = BusCounts()
        self.lag = Histogram()  # seconds from the publication of a message to its arrival
        self.now: Callable[[], int] = lambda: 0  # the engine's time; 0: unknown
        # Current id of this node (its incarnation), and its earlier ids: a node takes a new id after other nodes have
        # declared it dead. Messages to these ids skip Redis.
        self.own: set[str] = set()
        self._servers = servers
        self._messages = messages
        messages.timed = self._timed
        self._prefix = prefix
        self._host: Host | None = None
        self._subscriptions = BucketDict[bytes, ChannelSubscription]()  # by channel
        # For each test channel, the Redis server that it tests. The watchdog sends test messages (beats) on this
        # channel, and they come back to this node.
        self._beats: dict[bytes, Primary] = {}
        self.read: Callable[[list[keys.UserKeys]], Coroutine[Any, Any, list[bytes]]]  # set by the engine: Verbs.read
        self._routing: set[asyncio.Future[Any]] = set()
        shard = "S" if servers.sharded else ""
        self.publish_command, self._on, self._off = f"{shard}PUBLISH", f"{shard}SUBSCRIBE", f"{shard}UNSUBSCRIBE"
        # Types of pushes that carry a message. A push is a frame that Redis sends without a request (RESP3).
        self._kinds = (b"smessage",) if servers.sharded else (b"message",)
        self._ended = b"sunsubscribe"  # type of the push with which Redis ends a subscription
        self.beaten: Callable[[Primary], None] = lambda server: None  # called when a beat has arrived
        self.silenced: Callable[[int], None] = lambda partition: None  # called when Redis has ended a subscription

    def attach(self, host: Host | None) -> None:
        """Set the host: the part of the node to which the bus delivers messages."""
        self._host = host

    # --- receiving ---

    async def subscribe(self, topics: Iterable[Topic]) -> None:
        wanted = [self._want(topic) for topic in topics]
        await self._subscribe_link(self._on, wanted)

    async def unsubscribe(self, topics: Iterable[Topic]) -> None:
        unwanted = []
        for topic in topics:
            channel = keys.channel(self._prefix, topic)
            heard = self._subscriptions.pop(channel.encode())
            if heard is not None:
                unwanted.append((channel, heard.partition))
        try:
            await self._subscribe_link(self._off, unwanted)
        except EngineUnavailable:
            pass  # the connection is lost, and Redis has ended its subscriptions

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
            self._servers.refused(server, error)  # if the slot has moved, find its new server before the next attempt
            raise

    def _batches(self, channels: Iterable[tuple[str, int]]) -> list[list[str]]:
        """Divide the channels into as few lists as possible, of at most BATCH channels. A list is sent in one command.

        In a Redis Cluster, all channels of a command must be in one slot.
        """
        groups: dict[int, list[str]] = {}
        for channel, partition in channels:
            groups.setdefault(partition if self._servers.sharded else 0, []).append(channel)
        return [group[at : at + BATCH] for group in groups.values() for at in range(0, len(group), BATCH)]

    async def resubscribe(self, server: Primary, partitions: set[int]) -> None:
        """Subscribe again to the channels of these partitions, in batches. `server` holds the partitions."""
        for some in self._subscriptions.steps(AGAIN):
            channels = [(c.decode(), heard.partition) for c, heard in some if heard.partition in partitions]
            await server.subscribe(self._on, self._batches(channels))
            await asyncio.sleep(0)

    async def watch(self, server: Primary, channel: str) -> None:
        """Subscribe to `channel` on `server`.

        The watchdog publishes beats on this channel, and Redis sends them back to this node.
        """
        self._beats = {c: s for c, s in self._beats.items() if s is not server}
        self._beats[channel.encode()] = server
        await server.subscribe(self._on, [[channel]])

    def pushed(self, push: list[Any]) -> None:
        """Process a push, such as a message of a channel.

        The subscription is found by the channel of the push. The content of the message plays no part in this.
        """
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
            self.silenced(heard.partition)  # Redis ends a subscription when its slot moves to another server

    def _beat(self, push: list[Any]) -> None:
        server = self._beats.get(push[1])
        if server is not None:
            try:
                server.beat_heard = max(server.beat_heard, self._messages.read_beat(push[1].decode(), push[2]))
                self.beaten(server)
            except Malformed:
                self.counts.invalid += 1

    # --- publishing ---

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
        """Deliver a message in this node, without Redis. Other nodes get the message in other ways, or not at all."""
        heard = topic.kind in ("user", "node") or keys.channel(self._prefix, topic).encode() in self._subscriptions
        if heard and self._host is not None:
            self._host.receive(topic, message)

    def _route(self, topic: Topic, message: Message) -> None:
        """Read from Redis which nodes hold sessions of the user, then send the message to these nodes.

        While the server is reachable, messages to one user are sent in the order in which they were published.
        """
        if len(self._routing) >= MOST_ROUTED:
            self.counts.dropped += 1
            return
        where = keys.user_keys(self._prefix, topic.tenant, topic.name)
        server = self._servers.of(where.partition)
        if not server.up:
            self.here(topic, message)
            return
        asked = asyncio.get_running_loop().create_task(self.read([where]))
        self._routing.add(asked)
        asked.add_done_callback(lambda answer: self._routed(topic, message, answer))

    def _routed(self, topic: Topic, message: Message, answer: asyncio.Future[Any]) -> None:
        self._routing.discard(answer)
        if answer.cancelled() or answer.exception() is not None:
            self.here(topic, message)
            return
        (record,) = answer.result()
        nodes = nodes_of(record.decode())
        if nodes & self.own:
            self.here(topic, message)
        for node in nodes - self.own:
            channel = keys.channel(self._prefix, Topic("node", "", node))
            server = self._servers.of(keys.partition_of("", node))
            server.post(self.publish_command, channel, self._write(channel, message, topic))

    async def drained(self) -> None:
        """Wait until all messages published so far have been passed to the connections to Redis.

        Only messages to users wait: the bus first reads from Redis which nodes hold sessions of the user.
        """
        if self._routing:
            await asyncio.wait(self._routing)
