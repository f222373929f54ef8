"""Subscriptions of a node to topics, each from its first local listener until some seconds after its last.

The first listener causes the subscription. The topic's state is read only after the subscription is confirmed. A topic
that is given up is marked as leaving until it is unsubscribed, and new listeners wait until then. So an unsubscription
under way can never end a newer subscription.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from itertools import islice
from typing import Generic, TypeVar

from greendot.engine.messages import Part, Topic
from greendot.engine.port import Bus
from greendot.node.bucket_model import BucketDict
from greendot.node.channel import Channel
from greendot.node.context import NodeContext
from greendot.node.session import Connection
from greendot.node.time_slices import STEP
from greendot.node.timer_model import Timer

MOST_LEAVING = 1_000  # topics in one unsubscription
UNHEARD_S = 5.0  # time that a topic without listeners stays subscribed


class TopicSubscription:
    """Subscription to one topic. Subclasses keep the topic's state."""

    __slots__ = ("channel", "opening", "timer")

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.opening: asyncio.Future[None] | None = None  # done when the topic is subscribed and read
        self.timer: Timer | None = None  # set while the topic has no listeners

    @property
    def is_wanted(self) -> bool:
        """Return whether the topic has local listeners, or may get some."""
        return bool(self.channel.listeners)


F = TypeVar("F", bound=TopicSubscription)


class Subscriptions(Generic[F]):
    """All subscriptions of one kind. `read` fills the state of new ones. `dropped` is called for those given up."""

    def __init__(
        self,
        bus: Bus,
        context: NodeContext,
        make: Callable[[Channel], F],
        read: Callable[[Sequence[F]], Awaitable[None]],
        dropped: Callable[[F], None],
    ) -> None:
        self._bus = bus
        self._context = context
        self._make = make
        self._read = read
        self._dropped = dropped
        self._all = BucketDict[Topic, F]()
        self._leaving: dict[Topic, asyncio.Future[None]] = {}  # given up, not yet unsubscribed

    def get(self, topic: Topic) -> F | None:
        return self._all.get(topic)

    def __len__(self) -> int:
        return len(self._all)

    async def steps(self, part: Part) -> AsyncIterator[list[F]]:
        """Yield the subscriptions in `part` whose state is known, some at a time, in slices.

        Subscriptions may come and go meanwhile. One that stays is yielded once.
        """
        async for some in self._context.slices.over(self._all.steps(STEP)):
            if found := [f for t, f in some if f.opening is None and part.covers(t.tenant, t.name)]:
                yield found

    async def within(self, part: Part) -> list[F]:
        """Return the subscriptions in `part` whose state is known, collected in slices."""
        return [followed async for some in self.steps(part) for followed in some]

    def within_now(self, part: Part) -> list[F]:
        """Return the same at once. This takes long for many subscriptions."""
        found = (f for some in self._all.steps(STEP) for _, f in some)
        return [f for f in found if f.opening is None and part.covers(f.channel.topic.tenant, f.channel.topic.name)]

    async def topics(self) -> AsyncIterator[Sequence[Topic]]:
        """Yield all topics that are subscribed or about to be, some at a time, in slices."""
        async for some in self._context.slices.over(self._all.steps(STEP)):
            yield [topic for topic, _ in some]

    async def open(self, topics: Sequence[Topic]) -> None:
        """Subscribe to the topics and read their state, unless known.

        The caller must attach its listener without an await after this call.
        """
        while leaving := [self._leaving[topic] for topic in topics if topic in self._leaving]:
            await asyncio.wait(leaving)
        known = [followed for topic in topics if (followed := self._all.get(topic)) is not None]
        waiting = {followed.opening for followed in known if followed.opening is not None}
        if fresh := [topic for topic in dict.fromkeys(topics) if topic not in self._all]:
            await self._load(fresh)
        for opening in waiting:
            await asyncio.shield(opening)
        if not all(topic in self._all for topic in topics):  # some were given up during the read of others
            await self.open(topics)

    def follows(self, topics: Iterable[Topic]) -> bool:
        """Return whether all topics are subscribed and their state is known."""
        return all((of := self._all.get(topic)) is not None and of.opening is None for topic in topics)

    def attach(self, followed: F, connection: Connection) -> None:
        self.keep(followed)
        self._context.hub.attach(followed.channel, connection)

    def keep(self, followed: F) -> None:
        """Keep the subscription, even if it has no listener now."""
        self._context.timers.cancel(followed.timer)
        followed.timer = None

    def detach(self, topic: Topic, connection: Connection) -> None:
        followed = self._all.get(topic)
        if followed is not None:
            self._context.hub.detach(followed.channel, connection)
            self._expire(followed)

    def give_up(self, followed: F) -> bool:
        """Drop a subscription without listeners at once, so that the next listener reads its state.

        Return False if it has listeners, or if its state is being read.
        """
        if self._all.get(followed.channel.topic) is not followed or followed.is_wanted or followed.opening is not None:
            return False
        self.keep(followed)
        self._drop(followed)
        return True

    def _begin(self, topic: Topic, loaded: asyncio.Future[None]) -> F:
        followed = self._make(self._context.hub.channel(topic))
        followed.opening = loaded
        self._all[topic] = followed
        return followed

    async def _load(self, topics: Sequence[Topic]) -> None:
        # One future serves all topics: many connections may wait for thousands of users.
        loaded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        fresh = [self._begin(topic, loaded) for topic in topics]
        try:
            await self._bus.subscribe([followed.channel.topic for followed in fresh])
            await self._read(fresh)
        except BaseException as error:
            for followed in fresh:
                self._drop(followed)
            loaded.set_exception(error)
            loaded.exception()  # marks the exception as retrieved, because possibly no caller waits
            raise
        for followed in fresh:
            followed.opening = None
            self._expire(followed)
        loaded.set_result(None)

    def _expire(self, followed: F) -> None:
        if not followed.is_wanted and followed.timer is None:
            followed.timer = self._context.timers.set(UNHEARD_S, self._unheard, followed)

    def _unheard(self, followed: F) -> None:
        followed.timer = None
        if not followed.is_wanted and followed.opening is None:
            self._drop(followed)

    def _drop(self, followed: F) -> None:
        topic = followed.channel.topic
        self._all.pop(topic)
        self._context.hub.drop(followed.channel)
        self._dropped(followed)
        if not self._leaving:
            self._context.tasks.spawn(self._unsubscribe())
        self._leaving[topic] = asyncio.get_running_loop().create_future()

    async def _unsubscribe(self) -> None:
        """Unsubscribe the topics that were given up in this turn of the event loop together, up to MOST_LEAVING."""
        leaving = dict(islice(self._leaving.items(), MOST_LEAVING))
        try:
            await self._bus.unsubscribe(leaving)
        finally:
            for topic, future in leaving.items():
                del self._leaving[topic]
                future.set_result(None)
            if self._leaving:
                self._context.tasks.spawn(self._unsubscribe())
