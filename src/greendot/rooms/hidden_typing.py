"""End of the typing of users who have become invisible.

A start or a stop may come over the bus after the node has hidden the user. The node therefore stops the typing itself.
For the hold time of typing it doubts each start of such a user, and asks the engine when the user started.
"""

from __future__ import annotations

from greendot.engine.messages import Topic, Typing
from greendot.engine.port import Engine
from greendot.errors import EngineUnavailable
from greendot.ids import Key
from greendot.node.context import NodeContext
from greendot.node.subscriptions import Subscriptions
from greendot.presence.status import StatusService
from greendot.rooms.local_room import LocalRoom


class HiddenTyping:
    """Users who have become invisible within the hold time, and the end of their typing in this node's rooms."""

    def __init__(
        self,
        engine: Engine,
        statuses: StatusService,
        context: NodeContext,
        local: Subscriptions[LocalRoom],
        hold_ms: int,
    ) -> None:
        self._engine = engine
        self._statuses = statuses
        self._context = context
        self._local = local
        self._hold_s = hold_ms / 1000
        self._hidden_at: dict[Key, float] = {}  # monotonic seconds of the last withdrawal
        statuses.listeners.append(self._status_changed)

    def _status_changed(self, key: Key) -> None:
        """Stop the typing of all sessions of a user who has become invisible, also typing of earlier connections."""
        if self._statuses.is_invisible(key):
            for session in self._context.registry.sessions_of(*key):
                for room in session.typed or ():
                    self._engine.typing_stop(session.tenant, room, session.user)
                session.typed = None

    async def withdraw(self, key: Key) -> None:
        """Stop the typing of a user who has become invisible, whichever node started it.

        On return, this node shows no start from before the call.
        """
        tenant, user = key
        hidden_at = self._hidden_at[key] = self._context.timers.now()
        self._context.timers.set(self._hold_s, self._forget, (key, hidden_at))
        async for topics in self._local.topics():
            for topic in topics:
                if topic.tenant == tenant and (local := self._local.get(topic)) is not None:
                    if user in local.typing.users:
                        self._engine.typing_stop(tenant, topic.name, user)
                    local.typing.receive(Typing(user, None, 0))

    def _forget(self, hidden: tuple[Key, float]) -> None:
        key, hidden_at = hidden
        if self._hidden_at.get(key) == hidden_at:
            del self._hidden_at[key]

    def is_doubtful(self, key: Key) -> bool:
        """Return whether a start of the user may be from before the user became invisible."""
        return key in self._hidden_at

    async def is_newer(self, topic: Topic, user: str) -> bool:
        """Return whether the user types in the room, by a start after the user became invisible.

        Return True for other users, and False if the engine is away. Then the next repeated start tries again.
        """
        key, asked_at = (topic.tenant, user), self._context.timers.now()
        hidden_at = self._hidden_at.get(key)
        if hidden_at is None:
            return True
        try:
            typists = await self._engine.typers(topic.tenant, topic.name)
        except EngineUnavailable:
            return False
        left_s = max((typist.remaining / 1000 for typist in typists if typist.user == user), default=0.0)
        return self._hidden_at.get(key) == hidden_at and self._hold_s - left_s <= asked_at - hidden_at
