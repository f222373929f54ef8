"""What this node answers when somebody looks at the whole cluster.

Answers are made at once, from what is known here. The store is asked how it is only while somebody looks, and then the
answer is of the question before: nobody waits for it.
"""

from __future__ import annotations

from greendot.core.tailing import Event, Name
from greendot.engine.base import Topic
from greendot.errors import StoreUnavailable
from greendot.gateway import views
from greendot.gateway.parts import Parts
from greendot.gateway.session import Session
from greendot.protocol.insight import (
    MOST_SESSIONS,
    Answer,
    Question,
    RoomOf,
    RoomThere,
    Sample,
    SampleOf,
    SessionThere,
    UserOf,
    UserThere,
)


class Answering:
    """One for each node."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._asked_at: float | None = None  # since when the store has not answered; None: it was not asked
        self._store_ms: float | None = None  # how long it took last; None: it could not be reached

    def reply(self, question: Question) -> Answer:
        match question:
            case SampleOf():
                return self._sample(question)
            case UserOf():
                sessions = self._parts.registry.sessions_of(question.tenant, question.user)
                return UserThere([self._session(session) for session in sessions[:MOST_SESSIONS]])
            case RoomOf():
                channel = self._parts.hub.find(Topic("room", question.tenant, question.room))
                return RoomThere(0 if channel is None else len(channel.listeners))

    # --- how it is here ---

    def _sample(self, question: SampleOf) -> Sample:
        parts = self._parts
        now = parts.clock.monotonic()
        events: list[Event] = []
        skipped = 0
        if question.tail is not None:
            events, skipped = parts.witness.tail.take(Name(question.asker, question.tail), question.kinds, now)
        if question.nodes:
            values = dict(views.metrics(parts))
            gauges: dict[str, float] = {name: it for name, it in values.items() if not name.endswith("_total")}
            gauges |= self._store_gauges(now)
            closes = parts.registry.closes
        else:
            tally = parts.registry.tallies.shown(question.tenant)
            gauges = {"tenant_connections": tally.connections, "tenant_users_online": tally.users}
            values = {
                "tenant_sends_total": tally.sends,
                "tenant_refused_total": tally.refused,
                "tenant_resumed_total": tally.resumed,
            }
            closes = tally.closes
        return Sample(
            at_ms=round(now * 1000),
            gauges=gauges,
            counts={name: it for name, it in values.items() if name.endswith("_total")},
            closes={str(code): count for code, count in closes.items()},
            started_at=parts.started_at,
            level=parts.pressure.level.name.lower(),
            events=[*events],
            skipped=skipped,
        )

    def _store_gauges(self, now: float) -> dict[str, float]:
        """How long the store takes: what it took last, or how long it has taken by now, if that is longer."""
        pending_ms = 0.0
        if self._asked_at is None:
            self._asked_at = now
            self._parts.tasks.spawn(self._ask_store())
        else:
            pending_ms = (now - self._asked_at) * 1000
        if self._store_ms is None and not pending_ms:
            return {}
        return {"store_latency_ms": round(max(self._store_ms or 0.0, pending_ms), 2)}

    async def _ask_store(self) -> None:
        clock = self._parts.clock
        begun = clock.monotonic()
        try:
            await self._parts.store.ping()
            self._store_ms = (clock.monotonic() - begun) * 1000
        except StoreUnavailable:
            self._store_ms = None
        finally:
            self._asked_at = None

    # --- who is here ---

    def _session(self, session: Session) -> SessionThere:
        info = views.info(self._parts, session)
        connection = session.connection
        return SessionThere(
            session=session.id,
            device=session.device,
            client=f"{session.client.name} {session.client.version}".strip(),
            state=info.state,
            connected_at=session.connected_at,
            last_heard=info.last_heard or 0,
            token_expires_at=session.grants.expires_at,
            token_issued_at=session.grants.issued_at,
            token_id=session.grants.token_id,
            rooms=sorted(session.rooms or ())[:MOST_SESSIONS],
            watches=len(connection.watches or ()) if connection is not None else 0,
            behind=connection is not None and connection.behind,
        )
