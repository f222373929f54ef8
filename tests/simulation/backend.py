"""Backend of the app: it notifies users, writes messages, and changes members and tokens through any node.

Each call is repeated, with the same keys, until a node answers without an error. So its effect is known at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from greendot.auth.model import Revocation
from greendot.errors import EngineUnavailable, StoreUnavailable
from greendot.store.inbox import Notice
from greendot.store.rooms import Draft
from simulation.nodes import DEN, TENANT, ClusterNode, World

if TYPE_CHECKING:
    from simulation.access import Access

PATIENCE_S = 8.0  # for an answer; then another node is asked
AGAIN_S = 1.0
MONTH_MS = 30 * 86_400_000
Work = Callable[[ClusterNode], Coroutine[Any, Any, Any]]


class AppBackend:
    """Calls of the app, and their effects."""

    def __init__(self, world: World, access: Access, tell: Callable[[str, str], None]) -> None:
        self.world = world
        self.access = access
        self.notified: dict[str, str] = {}  # key of a notification → user
        self.appended: set[str] = set()  # keys of messages
        self.unanswered = 0
        self._tell = tell
        self._tries = 0
        self._member_turns: dict[str, int] = {}
        self._adding: dict[str, list[ClusterNode]] = {}  # user → nodes that may still add the user as a member

    def _call(self, work: Work, done: Callable[[], None]) -> None:
        self.unanswered += 1
        _Call(self, work, done).start()

    def choose(self) -> ClusterNode | None:
        """Return one node after the other."""
        up = [node for node in self.world.nodes if node.is_up]
        self._tries += 1
        return up[self._tries % len(up)] if up else None

    # --- records ---

    def notify(self, user: str, kind: str, count: int) -> None:
        self._tell("app", f"notifies {user}: {count} of kind {kind}")
        notices = []
        for _ in range(count):
            key = f"n{len(self.notified)}"
            self.notified[key] = user
            notices.append(Notice(TENANT, user, kind, f'"{key}"'.encode(), key, self.world.clock.now_ms()))
        self._call(lambda node: node.node.inbox_service.notify(notices), lambda: None)

    def append(self, room: str) -> None:
        key = f"app-{len(self.appended)}"
        self.appended.add(key)
        self._tell("app", f"writes {key} to {room}")
        draft = Draft("app", None, f'"{room}:{key}"'.encode(), key, self.world.clock.now_ms())
        self._call(lambda node: node.node.room_messages.append(TENANT, room, draft), lambda: None)

    # --- access ---

    def set_member(self, user: str, on: bool) -> None:
        """Add a member to the den, or remove one. From the answer on, no node shows the den to the user."""
        self._tell("app", f"{'adds' if on else 'removes'} the member {user}")
        turn = self._member_turns[user] = self._member_turns.get(user, 0) + 1
        adding = self._adding.setdefault(user, [])
        if on:
            self.access.admitted(user)

        async def change(node: ClusterNode) -> None:
            if self._member_turns[user] != turn:
                return  # a later call decides
            if on:
                adding.append(node)
                try:
                    await node.node.room_messages.put_member(TENANT, DEN, user, "member")
                finally:
                    adding.remove(node)
            elif (room := await node.node.store.room(TENANT, DEN)) is not None:
                await node.node.room_messages.remove_member(TENANT, room, user)

        def done() -> None:
            if self._member_turns[user] != turn:
                return
            if on:
                self.access.joinable(user)
            elif not any(not node.process.is_dead for node in adding):  # a paused node may add the user afterwards
                self._tell("app", f"knows that {user} is removed")
                self.access.removed(user)

        self._call(change, done)

    def revoke(self, user: str) -> None:
        """Revoke the tokens of a user. Devices get new tokens after the answer."""
        if user in self.world.revoking:
            return
        self._tell("app", f"revokes the tokens of {user}")
        now = self.world.clock.now_ms()
        self.world.revoking.add(user)
        self.access.revoking(user)
        entry = Revocation(TENANT, "user", user, now + MONTH_MS, before=now)

        def done() -> None:
            self._tell("app", f"knows that the tokens of {user} are revoked")
            self.world.tokens.pop((TENANT, user), None)
            self.world.revoking.discard(user)
            self.access.revoked(user)

        self._call(lambda node: node.node.revocation_service.revoke(entry, user), done)


class _Call:
    """One call, which is repeated until it succeeds."""

    def __init__(self, backend: AppBackend, work: Work, done: Callable[[], None]) -> None:
        self._backend = backend
        self._universe = backend.world.universe
        self._work = work
        self._done = done
        self._is_done = False
        self._attempt = 0

    def start(self, attempt: int = 0) -> None:
        if self._is_done or attempt != self._attempt:
            return
        self._attempt += 1
        node = self._backend.choose()
        if node is None:
            self._universe.after(AGAIN_S, self.start, self._attempt)
            return
        node.process.do(lambda: node.process.create_task(self._run(node, self._attempt)))
        self._universe.after(PATIENCE_S, self.start, self._attempt)

    async def _run(self, node: ClusterNode, attempt: int) -> None:
        try:
            await self._work(node)
        except (EngineUnavailable, StoreUnavailable):
            self._universe.after(AGAIN_S, self.start, attempt)
        else:
            self._universe.after(self._backend.world.backend.lag(), self._finish)

    def _finish(self) -> None:
        if not self._is_done:
            self._is_done = True
            self._backend.unanswered -= 1
            self._done()
