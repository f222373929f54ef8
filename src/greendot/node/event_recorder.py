"""Recorder of this node's events for the dashboard's live tail.

The tail is nearly always closed. While the tail is closed, every method returns at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from greendot.clock import Clock
from greendot.engine.port import Transition
from greendot.limits.overload_model import Level
from greendot.node.event_recorder_model import EventTail, RecordedEvent
from greendot.node.session import Session
from greendot.presence.model import ManualStatus
from greendot.protocol.commands import Command
from greendot.store.inbox import Notice
from greendot.store.rooms import Record

CHANGED = {"edit": "edited", "delete": "deleted", "react": "reacted", "unreact": "removed a reaction"}  # by operation


class EventRecorder:
    """Event recorder of one node."""

    def __init__(self, tail: EventTail, clock: Clock) -> None:
        self.tail = tail
        self._clock = clock

    def loaded(self, level: Level) -> None:
        """Set whether events are dropped, from the overload level. The tail is the first work that overload ends."""
        self.tail.shedding = level >= Level.SHEDDING

    def _record(self, event: RecordedEvent, body: bytes = b"") -> None:
        self.tail.expire(self._clock.monotonic())  # a reader may have gone without closing its tail
        self.tail.record(event, body)

    # --- sessions ---

    def came(self, session: Session, resumed: bool) -> None:
        if self.tail.open:
            self._session(session, "resumed" if resumed else "connected", detail=session.device)

    def ended(self, session: Session | None, code: int) -> None:
        """Record the end of a connection. Its session may linger."""
        if self.tail.open and session is not None:
            self._session(session, "disconnected", number=code)

    def gone(self, session: Session) -> None:
        if self.tail.open:
            self._session(session, "session over", detail=session.device)

    def _session(self, session: Session, what: str, detail: str | None = None, number: int | None = None) -> None:
        now = self._clock.now_ms()
        self._record(
            RecordedEvent(now, "connects", what, *session.key, session=session.id, number=number, detail=detail or None)
        )

    # --- presence ---

    def turned(self, turn: Transition) -> None:
        if not self.tail.open:
            return
        if turn.kind == "user":
            what = "online" if turn.on else "offline"
            self._record(RecordedEvent(self._clock.now_ms(), "presence", what, turn.tenant, turn.name))
        else:
            what = "occupied" if turn.on else "vacated"
            self._record(RecordedEvent(self._clock.now_ms(), "rooms", what, turn.tenant, room=turn.name))

    def idled(self, session: Session) -> None:
        if self.tail.open:
            what = "idle" if session.idle else "active"
            self._record(RecordedEvent(self._clock.now_ms(), "presence", what, *session.key, session=session.id))

    def stated(self, key: tuple[str, str], manual: ManualStatus) -> None:
        if self.tail.open:
            self._record(RecordedEvent(self._clock.now_ms(), "presence", "status set", *key, detail=manual.status))

    # --- rooms ---

    def joined(self, session: Session, room: str) -> None:
        if self.tail.open:
            self._record(RecordedEvent(self._clock.now_ms(), "rooms", "joined", *session.key, room, session.id))

    def left(self, session: Session, room: str) -> None:
        if self.tail.open:
            self._record(RecordedEvent(self._clock.now_ms(), "rooms", "left", *session.key, room, session.id))

    def message(self, tenant: str, record: Record) -> None:
        if self.tail.open:
            what = CHANGED.get(record.op or "", "message")
            event = RecordedEvent(record.at, "rooms", what, tenant, record.user, record.room, number=record.seq)
            self._record(event, record.body)

    def member(self, what: str, tenant: str, room: str, user: str) -> None:
        if self.tail.open:
            self._record(RecordedEvent(self._clock.now_ms(), "rooms", what, tenant, user, room))

    def typed(self, session: Session, room: str, *, on: bool) -> None:
        if self.tail.open:
            what = "typing" if on else "stopped typing"
            self._record(RecordedEvent(self._clock.now_ms(), "typing", what, *session.key, room, session.id))

    # --- errors ---

    def refused(self, session: Session | None, command: Command | None, code: str) -> None:
        """Record a refused command. `command` is None if the frame was no command."""
        if self.tail.open and session is not None:
            what = "no command" if command is None else str(command.__struct_config__.tag)
            room = getattr(command, "room", None)
            self._record(
                RecordedEvent(self._clock.now_ms(), "errors", code, *session.key, room, session.id, detail=what)
            )

    # --- notifications ---

    def notified(self, notices: Sequence[Notice]) -> None:
        if self.tail.open:
            for it in notices:
                event = RecordedEvent(it.created_at, "notifications", "notified", it.tenant, it.user, detail=it.kind)
                self._record(event, it.body)
