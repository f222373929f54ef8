"""Signals that clients send to a room or a user: at most once, never stored.

A signal shows that its sender is there. A signal of an invisible user is therefore refused, or sent without the
sender, as the setting of its kind demands (`InvisibleSignals`). Listeners of a room who may not see the sender do not
get the signal, as with typing (`RoomSignals`). If the sender hides while a signal still waits to be written, the signal
is withdrawn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Literal

from msgspec import UNSET

from greendot.clock import Clock
from greendot.engine.messages import Deliver, Topic
from greendot.engine.port import Bus
from greendot.errors import Refused, StoreUnavailable
from greendot.ids import Key
from greendot.node.channel import Channel, RoomKey, SentKey, sender_of
from greendot.node.context import NodeContext
from greendot.node.hub import Hub
from greendot.node.registry import Registry
from greendot.node.session import Connection, Session
from greendot.presence.profiles import ProfileService
from greendot.presence.status import StatusService
from greendot.protocol.codec import encode_event
from greendot.protocol.codes import Err
from greendot.protocol.commands import SignalSend
from greendot.protocol.events import Signal
from greendot.telemetry import spans
from greendot.telemetry.metrics import Metrics
from greendot.telemetry.spans import parent
from greendot.visibility.cache import VisibilityCache
from greendot.visibility.room_view import without_user

InvisibleSignals = Literal["refuse", "anonymous", "show"]  # what happens with signals of invisible users
STEP = 10  # connections between two checks of the clock; each may have a thousand signals that wait
MOST_WAITING = 100  # signals of one sender to one room that wait until the node knows who may see the sender


class Signals:
    """Publisher of signals of this node's clients, and delivery of signals to single users. See also `RoomSignals`.

    `invisible` has the setting for invisible senders by kind of signal. Other kinds are refused.
    """

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        registry: Registry,
        hub: Hub,
        metrics: Metrics,
        statuses: StatusService,
        visibility: VisibilityCache,
        profiles: ProfileService,
        invisible: Mapping[str, InvisibleSignals],
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._registry = registry
        self._hub = hub
        self._metrics = metrics
        self._statuses = statuses
        self._visibility = visibility
        self._profiles = profiles
        self._invisible = invisible

    def publish(self, connection: Connection, session: Session, command: SignalSend, topic: Topic) -> None:
        """Publish the signal to all nodes with subscribers of `topic`. The caller is certain of the sender's status.

        Raise Refused if the sender is invisible, and signals of this kind are refused then.
        """
        if self._is_anonymous(session, command):
            self._publish_anonymous(connection, session, command, topic)
            return
        traceparent = parent() if command.traceparent is not None or spans.sampling else None
        signal = _signal(command, session.user, self._profiles.name_of(session), command.key)
        frame = encode_event(signal, self._clock.now_ms(), command.trace, traceparent)
        # Values of different senders and kinds never replace each other.
        key = command.key and (session.user, command.kind, command.key)
        self._bus.publish(
            topic,
            Deliver(frame, key=key, without_connection=connection.id, traceparent=traceparent, sender=session.user),
        )

    def _is_anonymous(self, session: Session, command: SignalSend) -> bool:
        """Return whether the sender must not be shown. Raise Refused if the signal must not be sent."""
        if not self._statuses.is_invisible(session.key) or command.user == session.user:
            return False
        rule = self._invisible.get(command.kind, "refuse")
        if rule == "refuse":
            raise Refused(
                Err.FORBIDDEN,
                f"the user is invisible, and signals of kind {command.kind!r} would show the user; "
                "set another status, or let the operator set `invisible` of this kind",
            )
        return rule == "anonymous"

    def _publish_anonymous(self, connection: Connection, session: Session, command: SignalSend, topic: Topic) -> None:
        """Publish a signal without its sender. Trace and key, which clients choose, could name the sender."""
        alias = command.key and self._statuses.alias(session.key, f"{connection.id} {command.key}")
        frame = encode_event(_signal(command, None, None, alias), self._clock.now_ms())
        key = alias and (alias, command.kind)
        self._bus.publish(topic, Deliver(frame, key=key, without_connection=connection.id, sender=session.user))

    def is_ready(self, session: Session, receiver: str) -> bool:
        """Return whether `check_receiver` can decide at once."""
        return self._visibility.knows(session.tenant, receiver, [session.user])

    async def learn(self, session: Session, receiver: str) -> None:
        """Read the facts for `check_receiver`, which the caller calls again."""
        await self._visibility.learn(session.tenant, [receiver], [session.user])

    def check_receiver(self, session: Session, receiver: str) -> None:
        """Raise Refused if the sender hides from the receiver of a signal to a user."""
        if receiver != session.user and self._visibility.is_hidden_from(session.tenant, session.user, receiver):
            raise Refused(
                Err.FORBIDDEN,
                f"the user hides from {receiver!r}, and a signal would show the user; "
                "remove the receiver from `hide_from` with privacy.set",
            )

    def deliver(self, topic: Topic, message: Deliver) -> None:
        """Send a frame to all connections of a user on this node. Signals are dropped while the hub sheds load."""
        if self._hub.shedding and message.seq is None:
            self._metrics.drop(message.frame, "shed")
            return
        key = message.key if message.sender is None else SentKey(message.sender, message.key or object())
        for connection in self._registry.connections_of(topic.tenant, topic.name):
            if connection.id != message.without_connection:
                connection.send(message.frame, record=message.seq is not None, key=key)


def _signal(command: SignalSend, sender: str | None, name: str | None, key: str | None) -> Signal:
    return Signal(
        sender=sender,
        name=name,
        kind=command.kind,
        room=UNSET if command.room is None else command.room,
        body=command.body,
        key=UNSET if key is None else key,
    )


class RoomSignals:
    """Delivery of signals to the listeners of rooms on this node who may see the sender."""

    def __init__(self, context: NodeContext, visibility: VisibilityCache) -> None:
        self._context = context
        self._visibility = visibility
        self._waiting: dict[tuple[Channel, str], deque[Deliver]] = {}  # by room and sender: newest signals, in order
        visibility.consumers.append(self)

    def receive(self, channel: Channel, message: Deliver) -> None:
        """Deliver a signal, now or when the facts about its sender are known."""
        tenant, sender = channel.topic.tenant, message.sender
        if sender is None:
            self._offer(channel, message, ())
            return
        waiting = self._waiting.get((channel, sender))
        if waiting is not None:
            waiting.append(message)
        elif self._visibility.is_ready(tenant, sender):
            self._offer(channel, message, self._blind(channel, sender))
        else:
            self._waiting[channel, sender] = deque([message], MOST_WAITING)
            self._context.tasks.spawn(self._learn(channel, sender))

    async def _learn(self, channel: Channel, sender: str) -> None:
        """Read who may see the sender, then deliver the waiting signals. Drop the signals if the store fails."""
        try:
            await self._visibility.know(channel.topic.tenant, _viewers(channel), [sender])
        except StoreUnavailable:
            del self._waiting[channel, sender]
            return
        waiting, blind = self._waiting.pop((channel, sender)), self._blind(channel, sender)
        for message in waiting:
            self._offer(channel, message, blind)

    def _blind(self, channel: Channel, sender: str) -> list[Connection]:
        """Return the listeners who may not see the sender. If there are any, include the listeners without a user."""
        tenant, registry = channel.topic.tenant, self._context.registry
        exceptions, is_open = self._visibility.exceptions(tenant, sender, lambda: _viewers(channel)), True
        if not self._visibility.policy(tenant).is_open:
            exceptions, is_open = _viewers(channel).difference(exceptions), False
        blind = [
            device for viewer in exceptions if viewer != sender for device in registry.connections_in(channel, viewer)
        ]
        return blind if is_open and not exceptions else blind + without_user(channel)

    def _offer(self, channel: Channel, message: Deliver, blind: Collection[Connection]) -> None:
        sender = self._context.registry.connections.get(message.without_connection or "")
        what = message.key or object()  # a signal without a key replaces no other
        key = RoomKey(channel.topic.name, what if message.sender is None else SentKey(message.sender, what))
        skip = (*blind, sender) if sender else blind
        self._context.hub.offer(channel, message.frame, key=key, skip=skip, low=True)

    # --- senders who hide ---

    async def withdraw(self, key: Key) -> None:
        """Drop the waiting signals of a user who has become invisible. On return, other users get none of them."""
        tenant, user = key
        for (channel, sender), waiting in self._waiting.items():
            if sender == user and channel.topic.tenant == tenant:
                waiting.clear()
        await self._withdraw(tenant, lambda sender: sender == user, lambda viewer, key: True)

    async def review(self, tenant: str, users: Collection[str] | None) -> None:
        """Drop the waiting signals of these users (None: all) to those who may not see them any more."""
        await self._withdraw(
            tenant,
            lambda sender: users is None or sender in users,
            lambda viewer, key: self._hides(tenant, viewer, key),
        )

    async def in_use(self, tenant: str) -> AsyncIterator[Sequence[str]]:
        """Yield no user: rooms and watches name the users whose facts are needed."""
        users: tuple[str, ...]
        for users in ():
            yield users

    def _hides(self, tenant: str, viewer: str, key: object) -> bool:
        """Return whether the sender of a waiting signal hides from the viewer: a listener, or the signal's receiver."""
        sender = sender_of(key)
        assert sender is not None
        if isinstance(key, RoomKey):
            return self._visibility.see(tenant, viewer, sender, in_room=True) == "hidden"
        return self._visibility.is_hidden_from(tenant, sender, viewer)

    async def _withdraw(
        self, tenant: str, is_chosen: Callable[[str], bool], is_lost: Callable[[str, object], bool]
    ) -> None:
        """Drop waiting signals of the chosen senders to viewers who may no longer see the sender.

        A signal that waits for a whole room is dropped for all: it waits for a moment only, and may be lost anyway.
        """

        def is_sent(key: object) -> bool:
            return (sender := sender_of(key)) is not None and is_chosen(sender)

        def is_lost_by(viewer: str, key: object) -> bool:
            return is_sent(key) and sender_of(key) != viewer and is_lost(viewer, key)

        waiting = self._context.hub.withdraw(tenant, is_sent)
        async for some in self._context.slices.cut(waiting, STEP):
            for connection in some:
                session = connection.session
                if session is None and connection.tenant == tenant:
                    connection.drop(is_sent)
                elif session is not None and session.tenant == tenant:
                    connection.drop(partial(is_lost_by, session.user))


def _viewers(channel: Channel) -> set[str]:
    return {listener.session.user for listener in channel.listeners if listener.session is not None}
