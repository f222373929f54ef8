"""Manual status (busy, invisible): copied from the store to the engine, and timed while its user has sessions here."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import structs

from greendot.engine.messages import StatusChanged, Topic
from greendot.engine.port import Engine
from greendot.errors import EngineUnavailable, Refused
from greendot.ids import Key
from greendot.node.batching import BatchedReads
from greendot.node.bus import BusTable
from greendot.node.context import NodeContext
from greendot.node.timer_model import Timer
from greendot.presence.model import ManualStatus, Snapshot, VisibleState
from greendot.protocol.codes import Err
from greendot.store.status import StatusStore

RETRY_S = 1.0
SHORTEST_S, LONGEST_S = 0.001, 60.0  # seconds between two checks whether a status is over


class StatusService:
    """Manual statuses. Reads of the same tick share one query: a thousand returning users cause one read."""

    def __init__(self, engine: Engine, store: StatusStore, context: NodeContext) -> None:
        self._engine = engine
        self._store = store
        self._context = context
        self._manuals: BatchedReads[Key, ManualStatus] = BatchedReads(context, store.statuses, ManualStatus())
        self._ends: dict[Key, Timer] = {}  # timers for the end of a status, of users with sessions here
        self._invisible: set[Key] = set()  # invisible users with sessions here
        self.listeners: list[
            Callable[[Key], None]
        ] = []  # called with a user who has become invisible, or visible again
        # Of users with sessions here who have set a status: the version of that change, and its monotonic seconds.
        self._seen: dict[Key, tuple[int, float]] = {}
        self.bus: BusTable = {StatusChanged: lambda topic, message: self.refresh((topic.tenant, topic.name))}

    async def set(self, key: Key, manual: ManualStatus) -> Snapshot:
        """Store the status that a user set, and show it. Raise Refused if `until` is not in the future."""
        if manual.until is not None and manual.until <= self._engine.now_ms():
            raise Refused(
                Err.BAD_FIELD,
                "field `until` of status.set: the time is in the past; give a later time in milliseconds UTC",
            )
        kept = await self._store.put_status(*key, manual)
        self._context.recorder.stated(key, kept)
        snapshot = await self._show(key, kept)
        self._engine.publish(Topic("user", *key), StatusChanged())
        if snapshot.stale:
            snapshot = self.with_sessions(key, snapshot)
        # The engine knows the status only of users with sessions; the reply has the status in any case.
        return snapshot._replace(own=structs.replace(snapshot.own, status=kept.status, until=kept.until))

    async def copy(self, key: Key) -> None:
        """Copy the stored status to the engine, so that the user can be shown."""
        await self._show(key, await self._manuals.get(key))

    async def learn(self, key: Key) -> None:
        """Read the status from the engine, which has it for a user with sessions on other nodes."""
        (snapshot,) = await self._engine.read(key[0], [key[1]])
        if snapshot.stale:
            await self.copy(key)  # the engine may have lost the status; the store has it
        else:
            self._note(key, snapshot)

    def refresh(self, key: Key) -> None:
        """Read the status from the engine after it was set on any node."""
        self._context.tasks.spawn(self._settle(key))

    def learnt(self, key: Key, manual: ManualStatus) -> None:
        """Apply the stored status of a user whom the engine may not know."""
        over = manual.until is not None and manual.until <= self._engine.now_ms()
        self._hide(key, hidden=manual.status == "invisible" and not over)

    async def of(self, key: Key) -> ManualStatus:
        """Return the stored status."""
        return await self._manuals.get(key)

    def is_invisible(self, key: Key) -> bool:
        """Return whether a user with sessions here must not be seen by others in any way."""
        return key in self._invisible

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
        self._context.timers.cancel(self._ends.pop(key, None))
        self._invisible.discard(key)
        self._seen.pop(key, None)

    def with_sessions(self, key: Key, snapshot: Snapshot) -> Snapshot:
        """Return a stale snapshot with the user's sessions on this node in place of an absence."""
        sessions = self._context.registry.sessions_of(*key)
        if not sessions or snapshot.own.state != "offline":
            return snapshot
        own = VisibleState("idle" if all(session.idle for session in sessions) else "online")
        visible = snapshot.visible if self.is_invisible(key) else own
        devices = sorted({session.device for session in sessions})
        return Snapshot(visible, own, sessions[0].grants.name or snapshot.name, devices, stale=True)

    async def _show(self, key: Key, manual: ManualStatus) -> Snapshot:
        snapshot = await self._engine.set_status(*key, manual)
        self._note(key, snapshot)
        if snapshot.stale and self._context.registry.sessions_of(*key):
            self.learnt(key, manual)  # the engine may not know the sessions yet
        return snapshot

    def _note(self, key: Key, snapshot: Snapshot) -> None:
        """Remember the status of a user with sessions here, and time its end."""
        seen, own, was_hidden = self._seen.get(key), snapshot.own, key in self._invisible
        self.forget(key)
        if not self._context.registry.sessions_of(*key):
            return
        if own.since == own.version and (own.status != "auto" if seen is None else seen[0] != own.version):
            seen = own.version, self._context.timers.now()
        if seen is not None:
            self._seen[key] = seen
        if was_hidden:
            self._invisible.add(key)
        self._hide(key, hidden=own.status == "invisible")
        if snapshot.own.until is not None:
            remaining_s = (snapshot.own.until - self._engine.now_ms()) / 1000
            # No longer at a time: the clock may be set meanwhile, and a distant end may change many times.
            delay_s = min(max(remaining_s, SHORTEST_S), LONGEST_S)
            self._ends[key] = self._context.timers.set(delay_s, self._over, key)

    def _hide(self, key: Key, *, hidden: bool) -> None:
        if hidden != (key in self._invisible):
            (self._invisible.add if hidden else self._invisible.discard)(key)
            for listener in self.listeners:
                listener(key)

    def _over(self, key: Key) -> None:
        del self._ends[key]
        self._context.tasks.spawn(self._settle(key))

    async def _settle(self, key: Key) -> None:
        # Every verb of the engine ends an expired status; a read does nothing else.
        snapshot: Snapshot | None
        try:
            (snapshot,) = await self._engine.read(key[0], [key[1]])
        except EngineUnavailable:
            snapshot = None
        if snapshot is not None and not snapshot.stale:
            self._note(key, snapshot)
        elif self._context.registry.sessions_of(*key) and key not in self._ends:
            self._ends[key] = self._context.timers.set(RETRY_S, self._over, key)
