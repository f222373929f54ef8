"""Manual status (busy, invisible): copied from the store to the engine, and timed while its user has sessions here.

Signals and typing of an invisible user must not reach others. `status.set invisible` is therefore answered when every
node knows the status. A node that may have missed changes reads the status of a sender again (`make_certain`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from hashlib import blake2b
from secrets import token_bytes
from typing import Any, TypeVar

from msgspec import structs

from greendot.engine.messages import StatusChanged, Topic
from greendot.engine.port import Engine
from greendot.errors import EngineUnavailable, Refused, StoreUnavailable
from greendot.ids import Key
from greendot.node.batching import BatchedReads
from greendot.node.bus import BusTable
from greendot.node.context import NodeContext
from greendot.node.session import Session
from greendot.node.timer_model import Timer, has_come
from greendot.presence.model import ManualStatus, Snapshot, VisibleState
from greendot.protocol.codes import Err
from greendot.store.status import StatusStore
from greendot.telemetry import log_events
from greendot.telemetry.log import log
from greendot.visibility.freshness import VisibilityFreshness

RETRY_S = 1.0
STORE_S = 1.0  # longest wait for a stored status when a session is restored
ASK_AGAIN_S = 5.0  # seconds until the store is asked again after it did not answer
OLDER_S = 15.0  # added to lease and grace: for the start of a node, and for noticing a loss
AT_ONCE = 500  # statuses compared with the store in one read
AUTO = ManualStatus()  # shared by most users, so that a known status costs no memory
# A version is the time in milliseconds. Each further change in the same millisecond adds 1, so a version can be
# slightly above its time.
SAME_MS = 10
SHORTEST_S, LONGEST_S = 0.001, 60.0  # seconds between two checks whether a status is over

T = TypeVar("T")


class StatusService:
    """Manual statuses. Reads of the same tick share one query: a thousand returning users cause one read."""

    def __init__(self, engine: Engine, store: StatusStore, context: NodeContext, lapse_s: float = 0.0) -> None:
        """`lapse_s` is the time, in seconds, until the sessions of a dead node have ended: lease and grace together."""
        self._engine = engine
        self._store = store
        self._context = context
        self._manuals: BatchedReads[Key, ManualStatus] = BatchedReads(context, store.statuses, AUTO)
        self._ends: dict[Key, Timer] = {}  # timers for the end of a status, of users with sessions here
        # Invisible users with sessions here, each with a secret that is new each time the user becomes invisible.
        self._invisible: dict[Key, bytes] = {}
        self._announced = 0  # number of announcements of new statuses
        self._void: dict[Key, int] = {}  # by user, number of the last announcement: reads begun before it are void
        self.freshness: VisibilityFreshness | None = None  # set by the node
        # Callback that returns when every node knows that the user is invisible. Set by the node.
        self.confirm: Callable[[Key], Awaitable[None]] | None = None
        self.listeners: list[
            Callable[[Key], None]
        ] = []  # called with a user who has become invisible, or visible again
        self.set_listeners: list[Callable[[Key], None]] = []  # called with a user who set a status, on this node only
        # Of users with sessions here who have set a status: the version of that change, and its monotonic seconds.
        self._seen: dict[Key, tuple[int, float]] = {}
        self._ask_at = 0.0  # monotonic seconds before which the store is not asked for statuses of restored sessions
        self._unread: set[Key] = set()  # users whose statuses could not be read from the store, to be compared later
        self._lapse_s = lapse_s
        # Monotonic seconds before which the engine may have statuses that are older than those in the store. At the
        # start of the node it may have failed over to older data while no node ran.
        self._older_until = context.timers.now() + lapse_s + OLDER_S if lapse_s else 0.0
        # Callback that writes the sessions of a user, with the status, to the engine, which may have lost them.
        self.restore: Callable[[Key], Coroutine[Any, Any, None]] | None = None
        self.bus: BusTable = {StatusChanged: lambda topic, message: self.refresh((topic.tenant, topic.name))}

    async def set(self, key: Key, manual: ManualStatus) -> Snapshot:
        """Store the status that a user set, and show it. Raise Refused if `until` is not in the future.

        On return, every node hides an invisible user. Raise EngineUnavailable if a node has not confirmed this.
        """
        if manual.until is not None and manual.until <= self._engine.now_ms():
            raise Refused(
                Err.BAD_FIELD,
                "field `until` of status.set: the time is in the past; give a later time in milliseconds UTC",
            )
        kept = await self._store.put_status(*key, manual)
        self._announce(key)
        self._context.recorder.stated(key, kept)
        snapshot = await self._show(key, kept)
        self._engine.publish(Topic("user", *key), StatusChanged())
        for listener in self.set_listeners:
            listener(key)
        if kept.status == "invisible" and self.confirm is not None:
            await self.confirm(key)
        if snapshot.stale:
            self.restore_soon(key)
            snapshot = self.with_sessions(key, snapshot)
        # The engine knows the status only of users with sessions; the reply has the status in any case.
        own = structs.replace(snapshot.own, status=kept.status, until=kept.until, text=kept.text)
        return snapshot._replace(own=own)

    async def copy(self, key: Key) -> None:
        """Copy the stored status to the engine, so that the user can be shown."""
        await self._show(key, await self._manuals.ask(key))

    async def learn(self, key: Key) -> None:
        """Read the status from the engine, which has it for a user with sessions on other nodes."""
        (snapshot,), doubts = await self._current(key, lambda: self._engine.read(key[0], [key[1]]))
        if _is_doubtful(snapshot):
            await self.copy(key)  # the engine may have lost the status; the store has it
        else:
            self._note(key, snapshot, doubts)
            if self._context.timers.now() < self._older_until:
                await self._compare_learnt(key)
            else:  # a node that could not read the store may have restored the user with an outdated status
                self._compare_later([key])

    def expect_older(self) -> None:
        """Compare statuses that are learnt from the engine with the store for some time, because data was lost.

        After a failover the engine may have older data. Nodes restore the statuses of their sessions. But a session of
        a dead node keeps its older status in the engine until it ends, or until its client returns to another node.
        """
        self._older_until = self._context.timers.now() + self._lapse_s + OLDER_S

    async def _compare_learnt(self, key: Key) -> None:
        """Show the stored status of a user if it differs. While the store does not answer, compare it later."""
        stored = None
        if has_come(self._ask_at, self._context.timers.now()):
            stored = await self._in_time(self._manuals.get(key))
        if stored is None:
            self._compare_later([key])
        elif (known := self.known(key)) is not None and not _same(stored, known):
            await self._show(key, stored)

    async def _current(self, key: Key, read: Callable[[], Awaitable[T]]) -> tuple[T, int]:
        """Return the result of a read that began after all announcements, and the value of `_doubts` when it began."""
        while True:
            announced, doubts = self._announced, self._doubts
            found = await read()
            if not self._is_void(key, announced):
                return found, doubts

    def _is_void(self, key: Key, announced: int) -> bool:
        """Return whether a new status was announced after announcement number `announced`."""
        return self._void.get(key, 0) > announced

    def _announce(self, key: Key) -> None:
        """Record that the user has a new status: reads under way may return an older one."""
        sessions = self._context.registry.sessions_of(*key)
        for session in sessions:
            session.status_as_of = -1
        if sessions:
            self._announced += 1
            self._void[key] = self._announced

    def refresh(self, key: Key) -> None:
        """Read a user's status from the engine, because the status was set on some node."""
        self._announce(key)
        if self._engine.is_restoring(*key) and self._context.registry.sessions_of(*key):
            self._compare_later([key])  # the engine may not have the status
            self.restore_soon(key)
        self._context.tasks.spawn(self._settle(key))

    def restore_soon(self, key: Key) -> None:
        """Restore the user's sessions before others: their watchers wait for the new status."""
        if self.restore is not None:
            self._context.tasks.spawn(self.restore(key))

    # --- certainty ---

    @property
    def _doubts(self) -> int:
        """Return the number of times that this node may have missed changes. Older knowledge is not certain."""
        return 0 if self.freshness is None else self.freshness.doubts

    def is_certain(self, session: Session) -> bool:
        """Return whether this node knows the status of the session's user, and has missed no change of it."""
        if self.freshness is not None and not self.freshness.is_fresh():
            return False
        return session.status_as_of == self._doubts

    async def make_certain(self, session: Session) -> None:
        """Read the user's status from the engine or the store, if the node is not certain. The caller checks again.

        Without engine and store no status can change, so the status that this node knows counts. Raise StoreUnavailable
        if the node knows none.
        """
        if self.freshness is not None:
            await self.freshness.known()
        if (doubts := self._doubts) == session.status_as_of:
            return
        try:
            if await self._read_shared(session.key):
                return
        except EngineUnavailable:
            pass  # the store has the status, too
        if has_come(self._ask_at, self._context.timers.now()) and await self._in_time(self.read_stored(session.key)):
            return
        if session.manual is None:
            raise StoreUnavailable("the store does not answer, and the status of a user is unknown")
        session.status_as_of = doubts

    async def apply(self, key: Key) -> None:
        """Read the status of a user who has become invisible. On return, this node hides the user from others.

        Raise EngineUnavailable or StoreUnavailable if the status cannot be read.
        """
        self._announce(key)
        # If the engine has another status, this node may just have restored the user with an older one.
        has_sessions = bool(self._context.registry.sessions_of(*key))
        if has_sessions and not (await self._read_shared(key) and self.is_invisible(key)):
            await self.read_stored(key)
            # Nodes that watch the user may have lost the change. Do not wait: this node hides the user already.
            self.restore_soon(key)

    async def _read_shared(self, key: Key) -> bool:
        """Read the status from the engine. Return False if the engine may not know it."""
        (snapshot,), doubts = await self._current(key, lambda: self._engine.read(key[0], [key[1]]))
        if _is_doubtful(snapshot):
            return False
        self._note(key, snapshot, doubts)
        return True

    async def read_stored(self, key: Key) -> bool:
        """Read the status from the store. Return True."""
        manual, doubts = await self._current(key, lambda: self._manuals.get(key))
        self.learnt(key, manual)
        for session in self._context.registry.sessions_of(*key):
            session.status_as_of = doubts
        return True

    def inherit(self, session: Session) -> None:
        """Give a new session the status that this node knows from the user's other sessions."""
        for other in self._context.registry.sessions_of(*session.key):
            if other.manual is not None:
                session.manual, session.status_as_of = other.manual, other.status_as_of

    def learnt(self, key: Key, manual: ManualStatus) -> ManualStatus:
        """Apply the stored status of a user whom the engine may not know; return the status to write to the engine.

        A newer status that this node knows is kept: the user set it while the store was read.
        """
        known = self.known(key)
        if known is not None and known.rev > manual.rev:
            return known
        over = manual.until is not None and manual.until <= self._engine.now_ms()
        self._know(key, manual)
        self._hide(key, hidden=manual.status == "invisible" and not over)
        return manual

    def known(self, key: Key) -> ManualStatus | None:
        """Return the status of a user with sessions here, as this node knows it; None if unknown.

        The revision is 0 if the status was read from the engine. The engine never prefers such a status to another.
        """
        sessions = self._context.registry.sessions_of(*key)
        return next((session.manual for session in sessions if session.manual is not None), None)

    def _know(self, key: Key, manual: ManualStatus) -> None:
        for session in self._context.registry.sessions_of(*key):
            session.manual = AUTO if manual == AUTO else manual

    async def read_ahead(self, keys: Sequence[Key]) -> Callable[[Key], ManualStatus | None]:
        """Read the stored statuses of users who are about to be restored. Return a function that returns them.

        The function returns None if the store did not answer, or if a new status was announced since the read began.
        """
        if not keys or not has_come(self._ask_at, self._context.timers.now()):
            return lambda key: None
        announced = self._announced
        stored = await self._in_time(self._store.statuses(keys))
        return lambda key: None if stored is None or self._is_void(key, announced) else stored.get(key, AUTO)

    async def to_restore(self, key: Key) -> ManualStatus:
        """Return the stored status; while the store does not answer, the status that this node knows.

        In the second case the user is compared with the store later. Raise StoreUnavailable if this node knows no
        status, either.
        """
        if has_come(self._ask_at, self._context.timers.now()):
            # A read that began before an announcement may return an older status. If the engine has lost the user, it
            # has not taken the new status, and would keep the older one.
            stored = await self._in_time(self._current(key, lambda: self._manuals.get(key)))
            if stored is not None:
                return stored[0]
        manual = self.known(key)
        if manual is None:
            raise StoreUnavailable("the store does not answer, and the status of a user is unknown")
        self._compare_later([key])
        return manual

    async def _in_time(self, read: Awaitable[T]) -> T | None:
        """Return the result of a read; None if the store does not answer in time. Reads then pause (`ASK_AGAIN_S`)."""
        try:
            async with asyncio.timeout(STORE_S):
                return await read
        except (StoreUnavailable, TimeoutError) as error:
            log(log_events.WORK_LATER, work="reading the statuses of users", reason=error)
            self._ask_at = self._context.timers.now() + ASK_AGAIN_S
            return None

    def _compare_later(self, keys: Collection[Key]) -> None:
        if keys and not self._unread:
            self._context.timers.set(ASK_AGAIN_S, self._on_timer)
        self._unread.update(keys)

    def _on_timer(self, _: None) -> None:
        self._context.tasks.spawn(self._compare())

    async def _compare(self) -> None:
        """Read the stored statuses of users that could not be read earlier, and show each that differs."""
        unread, self._unread = [*self._unread], set()
        try:
            while unread:
                users = [key for key in unread[-AT_ONCE:] if self._context.registry.sessions_of(*key)]
                stored = await self._store.statuses(users)
                for key in users:
                    manual, known = stored.get(key, AUTO), self.known(key)
                    # Without its revision, the known status was restored only if the engine had none: it may have an
                    # older one. So the same status is written, too.
                    if known is not None and known != manual:
                        await self._show(key, manual)
                del unread[-AT_ONCE:]
        except (EngineUnavailable, StoreUnavailable) as error:
            log(log_events.WORK_LATER, work="comparing statuses with the store", reason=error)
            self._compare_later(unread)

    def is_invisible(self, key: Key) -> bool:
        """Return whether a user with sessions here must not be seen by others in any way."""
        return key in self._invisible

    def alias(self, key: Key, text: str) -> str:
        """Return a name in place of `text` of an invisible user.

        Other users can derive neither the user nor earlier names from it.
        """
        return blake2b(text.encode(), key=self._invisible.get(key, b""), digest_size=12).hexdigest()

    def invisible(self, tenant: str) -> Iterable[str]:
        """Return the invisible users of a tenant with sessions here."""
        return [user for its, user in self._invisible if its == tenant]

    def since(self, key: Key, manual: ManualStatus, state_at: float) -> float:
        """Return the monotonic seconds at which the user's state began, as far as this node knows.

        `state_at` is the time at which one session became idle or active. A busy state lasts from the time it was set,
        whatever happens to the sessions.
        """
        _, set_at = self._seen.get(key, (0, None))
        if set_at is None:
            return state_at
        return set_at if manual.status == "busy" else max(set_at, state_at)

    def forget(self, key: Key) -> None:
        """Drop the status of a user without sessions here."""
        if (timer := self._ends.pop(key, None)) is not None:
            self._context.timers.cancel(timer)
        self._invisible.pop(key, None)
        self._seen.pop(key, None)
        self._void.pop(key, None)

    def with_sessions(self, key: Key, snapshot: Snapshot) -> Snapshot:
        """Return a stale snapshot in which a user with sessions on this node is not offline.

        Others do not see this before the user's status is known: the user may be invisible.
        """
        sessions = self._context.registry.sessions_of(*key)
        if not sessions or snapshot.own.state != "offline":
            return snapshot
        own = VisibleState("idle" if all(session.idle for session in sessions) else "online")
        is_hidden = self.known(key) is None or self.is_invisible(key)
        visible = snapshot.visible if is_hidden else own
        devices = sorted({session.device for session in sessions})
        return Snapshot(visible, own, sessions[0].grants.name or snapshot.name, devices, stale=True)

    async def _show(self, key: Key, manual: ManualStatus) -> Snapshot:
        announced, doubts = self._announced, self._doubts
        snapshot = await self._engine.set_status(*key, manual)
        if self._is_void(key, announced):
            return snapshot  # another status was announced, and is being read
        has_sessions = bool(self._context.registry.sessions_of(*key))
        if has_sessions and snapshot.own.state == "offline":
            self.learnt(key, manual)  # the engine has not taken the status; the next restore writes it
            self._look_again(key)
            return snapshot
        self._note(key, snapshot, doubts)
        if manual is not AUTO and (known := self.known(key)) is not None and _same(known, manual):
            self._know(key, manual)  # with its revision
        if snapshot.stale and has_sessions:
            self.learnt(key, manual)  # the engine may not know the sessions yet
        return snapshot

    def _note(self, key: Key, snapshot: Snapshot, doubts: int) -> None:
        """Remember the status of a user with sessions here, and time its end."""
        own, sessions = snapshot.own, self._context.registry.sessions_of(*key)
        if sessions and own.status == "auto" and own.until is None and own.text is None and not self._has_set(key):
            for session in sessions:  # nearly every user
                session.manual, session.status_as_of = AUTO, doubts
            return
        seen, secret, void = self._seen.get(key), self._invisible.get(key), self._void.get(key)
        self.forget(key)
        if not sessions:
            return
        if void is not None:
            self._void[key] = void
        self._know(key, ManualStatus(own.status, own.until, own.text))
        for session in sessions:
            session.status_as_of = doubts
        is_new = own.since is not None and own.version - own.since <= SAME_MS  # this change began the state
        if is_new and (own.status != "auto" if seen is None else seen[0] != own.version):
            seen = own.version, self._context.timers.now()
        if seen is not None:
            self._seen[key] = seen
        if secret is not None:
            self._invisible[key] = secret
        self._hide(key, hidden=own.status == "invisible")
        if snapshot.own.until is not None:
            remaining_s = (snapshot.own.until - self._engine.now_ms()) / 1000
            # Not longer than LONGEST_S: the clock may be set meanwhile, so the remaining time is computed again.
            delay_s = min(max(remaining_s, SHORTEST_S), LONGEST_S)
            self._ends[key] = self._context.timers.set(delay_s, self._over, key)

    def _has_set(self, key: Key) -> bool:
        """Return whether this node keeps something about a status of the user."""
        return key in self._ends or key in self._seen or key in self._invisible

    def _hide(self, key: Key, *, hidden: bool) -> None:
        if hidden != (key in self._invisible):
            if hidden:
                self._invisible[key] = token_bytes(16)
            else:
                del self._invisible[key]
            for listener in self.listeners:
                listener(key)

    def _over(self, key: Key) -> None:
        del self._ends[key]
        self._context.tasks.spawn(self._settle(key))

    async def _settle(self, key: Key) -> None:
        # Every verb of the engine ends an expired status, also a read. So a read is enough.
        try:
            (snapshot,), doubts = await self._current(key, lambda: self._engine.read(key[0], [key[1]]))
        except EngineUnavailable:
            is_known = False
        else:
            is_known = not _is_doubtful(snapshot)
            if is_known:
                self._note(key, snapshot, doubts)
        if not is_known:
            self._look_again(key)

    def _look_again(self, key: Key) -> None:
        if self._context.registry.sessions_of(*key) and key not in self._ends:
            self._ends[key] = self._context.timers.set(RETRY_S, self._over, key)


def _is_doubtful(snapshot: Snapshot) -> bool:
    """Return whether the engine may not know the status of a user with sessions here.

    Such a user is offline there if the sessions were lost, are not written yet, or have ended with a node that counted
    as dead.
    """
    return snapshot.stale or snapshot.own.state == "offline"


def _same(one: ManualStatus, other: ManualStatus) -> bool:
    """Return whether two statuses differ at most in their revision."""
    return (one.status, one.until, one.text) == (other.status, other.until, other.text)
