"""Signals that clients send to a room or a user: at most once, never stored."""

from __future__ import annotations

from msgspec import UNSET

from greendot.clock import Clock
from greendot.engine.messages import Deliver, Topic
from greendot.engine.port import Bus
from greendot.node.hub import Hub
from greendot.node.registry import Registry
from greendot.node.session import Connection, Session
from greendot.presence.profiles import ProfileService
from greendot.protocol.codec import encode_event
from greendot.protocol.commands import SignalSend
from greendot.protocol.events import Signal
from greendot.telemetry import spans
from greendot.telemetry.metrics import Metrics
from greendot.telemetry.spans import parent


class Signals:
    """Publisher of signals of this node's clients, and delivery of signals for its users. Rooms deliver their own."""

    def __init__(
        self, bus: Bus, clock: Clock, registry: Registry, hub: Hub, metrics: Metrics, profiles: ProfileService
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._registry = registry
        self._hub = hub
        self._metrics = metrics
        self._profiles = profiles

    def publish(self, connection: Connection, session: Session, command: SignalSend, topic: Topic) -> None:
        """Publish the signal to all nodes with subscribers of `topic`."""
        signal = Signal(
            sender=session.user,
            name=self._profiles.name_of(session),
            kind=command.kind,
            room=UNSET if command.room is None else command.room,
            body=command.body,
            key=UNSET if command.key is None else command.key,
        )
        traceparent = parent() if command.traceparent is not None or spans.sampling else None
        frame = encode_event(signal, self._clock.now_ms(), command.trace, traceparent)
        # Values of different senders and kinds never replace each other.
        key = command.key and (session.user, command.kind, command.key)
        self._bus.publish(topic, Deliver(frame, key=key, without_connection=connection.id, traceparent=traceparent))

    def deliver(self, topic: Topic, message: Deliver) -> None:
        """Send a frame to all connections of a user on this node. Signals are dropped while the hub sheds load."""
        if self._hub.shedding and message.seq is None:
            self._metrics.drop(message.frame, "shed")
            return
        for connection in self._registry.connections_of(topic.tenant, topic.name):
            if connection.id != message.without_connection:
                connection.send(message.frame, record=message.seq is not None, key=message.key)
