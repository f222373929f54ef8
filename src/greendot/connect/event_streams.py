"""Event streams of this node, and the commands that clients send to them in requests.

A load balancer may pass such a request to any node. The id of a stream names its node, so that a node can forward the
commands over the bus. The id ends with a keyed hash: a made-up id costs no message of the bus.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from greendot.engine.messages import ClusterAnswer, StreamPost, Topic
from greendot.engine.port import Bus
from greendot.errors import EngineUnavailable
from greendot.ids import incarnation_of, is_stream_id, new_stream_id
from greendot.node.bus import BusTable
from greendot.node.cluster_rpc import ClusterRpc
from greendot.telemetry.metrics import Metrics
from greendot.transport.event_stream import EventStream, PostOutcome

MOST_FORWARDED = 256  # requests that wait for the answer of another node
WITHIN_S = 2.0  # time for the other node to answer


class Post(NamedTuple):
    """Request of a client with commands for its stream."""

    seq: int
    commands: Sequence[str]
    close: int | None = None


class EventStreams:
    """Registry of open streams (`transport.event_stream.StreamRegistry`). `key` is shared by all nodes, or None."""

    def __init__(
        self,
        bus: Bus,
        rpc: ClusterRpc,
        metrics: Metrics,
        incarnation: Callable[[], str],
        own_key: bytes,
        key: bytes | None,
        live_nodes: Callable[[], Collection[str]],
    ) -> None:
        self._live_nodes = live_nodes
        self._bus = bus
        self._rpc = rpc
        self._metrics = metrics
        self._incarnation = incarnation
        self._own_key = own_key
        self._key = key
        self._open: dict[str, EventStream] = {}
        self._forwarded = 0  # requests that wait for another node
        self.bus: BusTable = {StreamPost: self._received}

    def __len__(self) -> int:
        return len(self._open)

    def add(self, stream: EventStream) -> str:
        """Register a new stream; return its id."""
        name = new_stream_id(self._incarnation(), self._own_key if self._key is None else self._key)
        self._open[name] = stream
        self._metrics.realtime_event_streams_total += 1
        return name

    def remove(self, stream: EventStream) -> None:
        self._open.pop(stream.id, None)

    def may_exist(self, name: str) -> bool:
        """Return False if there is certainly no stream of this id on any node."""
        if name in self._open:
            return True
        if incarnation_of(name) == self._incarnation():
            return False
        return self._key is None or is_stream_id(name, self._key)

    async def post(self, name: str, post: Post) -> PostOutcome:
        """Pass commands to a stream of any node. Raise EngineUnavailable if its node does not answer."""
        node = incarnation_of(name)
        if name in self._open or node == self._incarnation():
            return self._take(name, post)
        if self._key is not None and not is_stream_id(name, self._key):
            return PostOutcome.UNKNOWN
        if self._forwarded >= MOST_FORWARDED:
            raise EngineUnavailable(f"{MOST_FORWARDED} requests for streams of other nodes wait already")
        self._forwarded += 1
        self._metrics.realtime_event_posts_forwarded_total += 1
        try:
            answer = await self._rpc.ask_one(
                node,
                lambda asker, number: StreamPost(name, post.seq, [*post.commands], post.close, asker, number),
                WITHIN_S,
            )
        finally:
            self._forwarded -= 1
        if answer is None and node in self._live_nodes():
            # Its link to Redis was lost a moment ago. The stream is open: the client must not give it up.
            raise EngineUnavailable(f"node {node} is live, but receives no messages now")
        return PostOutcome.UNKNOWN if answer is None else PostOutcome(answer.decode())

    def _take(self, name: str, post: Post) -> PostOutcome:
        stream = self._open.get(name)
        return PostOutcome.UNKNOWN if stream is None else stream.take(post.seq, post.commands, post.close)

    def _received(self, topic: Topic, message: StreamPost) -> None:
        """Handle commands that another node forwards."""
        outcome = self._take(message.stream, Post(message.seq, message.commands, message.close))
        answer = ClusterAnswer(message.number, topic.name, outcome.encode())
        self._bus.publish(Topic("node", "", message.asker), answer)
