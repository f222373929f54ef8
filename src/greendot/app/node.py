"""A node: one process' share of the product, put together from its parts.

Only `cli` and `testing` make one. What other packages need of it they name themselves, as small protocols.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from greendot import __version__
from greendot.admin import stats
from greendot.admin.metrics import MetricsPage
from greendot.admin.node_report import NodeReporter
from greendot.app.parts import Parts
from greendot.clock import Clock
from greendot.config import Settings
from greendot.connect.disconnect import DisconnectCleanup
from greendot.connect.drain import Drainer, DrainPace
from greendot.engine.messages import ClusterAnswer, ClusterQuestion
from greendot.engine.port import (
    Acknowledged,
    Audit,
    Deliver,
    Disconnect,
    Engine,
    Entered,
    HoldSession,
    InboxChanged,
    Left,
    MemberRemoved,
    MembersChanged,
    Message,
    Notified,
    Part,
    Revoked,
    StatusChanged,
    Topic,
    Typing,
    VisibilityChanged,
)
from greendot.ids import hashed, incarnation_of
from greendot.node.session import log_fields
from greendot.node.timer_model import Timer
from greendot.presence.grace_model import EndCause, shown_code
from greendot.presence.model import Change
from greendot.protocol.codes import Close
from greendot.protocol.replies import SessionInfo
from greendot.store.port import Store
from greendot.telemetry import log_events
from greendot.telemetry.log import log, set_node
from greendot.telemetry.prometheus import Sample
from greendot.telemetry.spans import span
from greendot.telemetry.traceparent import read
from greendot.transport.connection import Connection

CLOSE_S = 0.5  # what is still under way when everybody is gone may take so long


class Node(Parts):
    """Sockets in, engine and store behind. `driven` False leaves the timers to a test."""

    def __init__(self, settings: Settings, engine: Engine, store: Store, clock: Clock, *, driven: bool = True) -> None:
        super().__init__(settings, engine, store, clock, driven=driven)
        self.draining = False  # no new clients are wanted here
        self._driven = driven
        self._numbers = 0
        pace = DrainPace(settings.admission.hellos_per_s, settings.presence.grace_s)
        self._drain = Drainer(self.registry.connections, clock, pace)
        self._cleanup = DisconnectCleanup(self._quiet)
        self._scraping = MetricsPage(self)
        self.dispatcher.quiet = self._quiet
        self.cluster.reply = NodeReporter(self, lambda: self.draining).reply
        engine.turned = self.recorder.turned

    # --- life ---

    async def start(self) -> None:
        await self.store.start()
        try:
            self.sessions.incarnation = await self.engine.start(self)
        except BaseException:
            await self.store.close()
            raise
        self.visibility_updates.start()
        self.tenant_registry.start()
        if self._driven:
            self.overload_monitor.start()
        await self.jwks_refresh.start()
        await self.revocation_service.start()
        set_node(self.sessions.incarnation)
        log(log_events.NODE_STARTED, node=self.sessions.incarnation, version=__version__)

    def announce_end(self) -> None:
        """This node will stop: it goes on as ever, but `/readyz` says that nobody is to be sent here any more."""
        self.draining = True

    async def drain(self, within_s: float) -> None:
        """Ask every client to go elsewhere, wait for them a while, end the rest."""
        self.draining = True
        await self._drain.run(within_s)

    async def close(self) -> None:
        self.timers.close()
        self.overload_monitor.stop()
        await self.jwks_refresh.close()
        try:
            async with asyncio.timeout(CLOSE_S):
                await self.tasks.finish()
                await self.inboxes.receipts.flush()
        except TimeoutError:
            await self.tasks.cancel()
        await self.engine.close()
        await self.store.close()

    # --- what a connection needs (gateway.connection.Owner) ---

    def now(self) -> float:
        return self.clock.monotonic()

    def set_timer(self, delay_s: float, call: Any, argument: Any) -> Timer:
        return self.timers.set(delay_s, call, argument)

    def cancel_timer(self, timer: Timer | None) -> None:
        self.timers.cancel(timer)

    def has_output(self, connection: Connection) -> None:
        self.hub.has_output(connection)

    @property
    def token_in_query(self) -> bool:
        return self.settings.auth.token_in_query

    def connect(self, agent: str | None, token: str = "", address: str | None = None) -> Connection:
        """A connection for a socket that is being upgraded, by a client at `address`; `token` came with its request."""
        self._numbers += 1
        connection = Connection(self, f"{self.incarnation}/{self._numbers}", token)
        connection.agent_hash = hashed(self.hash_key, agent) if agent else None
        connection.ip_hash = hashed(self.hash_key, address) if address else None
        return connection

    def opened(self, connection: Connection) -> None:
        self.metrics.ws_connections_total += 1
        self.registry.connections[connection.id] = connection
        self.rate_limits.opened(connection)
        self.admission.strangers.add(connection)
        self.sessions.expect_hello(connection)
        if self._drain.begun:
            self._drain.turn_away(connection)

    def crowded_s(self) -> float | None:
        """Seconds to stay away where there are too many sockets already that have said nothing; else None."""
        if len(self.admission.strangers) < self.settings.admission.strangers:
            return None
        self.metrics.realtime_upgrades_refused_total += 1
        return self.admission.turn_s()

    def received(self, connection: Connection, text: str) -> None:
        self.dispatcher.received(connection, text)

    def counted(self, connection: Connection) -> bool:
        return self.dispatcher.counted(connection)

    def violated(self, connection: Connection, code: int, reason: str) -> None:
        self.dispatcher.violated(connection, code, reason)

    def ended(self, connection: Connection, cause: EndCause, code: int) -> None:
        if code == Close.TOO_SLOW:
            self.metrics.realtime_client_slow_closed_total += 1
        if cause is EndCause.CLIENT_CLOSE and self.dispatcher.bye_waits(connection):
            cause = EndCause.BYE
        connection.ended_by = (cause, code)
        self.registry.ended(connection, shown_code(cause, code))
        if self.admission.forget(connection):
            connection.waiting = None
        # While a command is under way, what it still registers must be undone after it, not before.
        if connection.waiting is None:
            self._cleanup.add(connection)

    def _quiet(self, connection: Connection) -> None:
        if connection.ended_by is not None:
            cause, code = connection.ended_by
            connection.ended_by = None
            session = connection.session
            if log_events.CONNECTION_ENDED.is_wanted:
                log(log_events.CONNECTION_ENDED, outcome=cause.name, code=code or "", **log_fields(session))
            self.recorder.ended(session, shown_code(cause, code))
            self.watching.forget(connection)
            self.rooms.forget(connection, said_bye=cause is EndCause.BYE)
            self.sessions.lost(connection, cause, code)

    def gone(self, connection: Connection) -> None:
        self.timers.cancel(connection.timer)
        connection.timer = None
        self.registry.gone(connection)
        self.connection_limits.gone(connection)
        self._drain.gone()

    def unread(self, connection: Connection, types: tuple[str, ...]) -> None:
        self.version_fallback.later(connection, types)

    def count_dropped(self, frame: bytes) -> None:
        self.metrics.drop(frame, "slow")

    def count_coalesced(self, frame: bytes) -> None:
        self.metrics.coalesce(frame)

    def slow(self, connection: Connection) -> None:
        self.metrics.realtime_client_slow_total += 1
        log(log_events.CONNECTION_SLOW, **log_fields(connection.session))

    def count_send_failed(self) -> None:
        self.metrics.realtime_socket_send_failed_total += 1

    # --- what the engine tells (engine.base.Host) ---

    def lost(self, part: Part) -> None:
        self.recovery.lost(part)

    def found(self, part: Part, *, intact: bool) -> None:
        self.revocation_service.look_again()
        self.recovery.found(part, intact=intact)
        self.visibility_updates.lost()

    def reborn(self, incarnation: str) -> None:
        self.recovery.reborn(incarnation)

    def died(self, incarnation: str) -> None:
        self.recovery.died()

    def heard(self, topic: Topic, message: Message) -> None:
        self.metrics.realtime_pubsub_received_total += 1
        match message:
            case Change():
                self.watching.changed(topic, message)
            case Disconnect():
                self._disconnect(message.session, message.code, message.reason, message.tenant)
            case Audit():
                self.recovery.audit()
            case HoldSession():
                self.admission.awaited(message)
            case StatusChanged():
                self.statuses.look_again((topic.tenant, topic.name))
            case Notified() if message.traceparent is not None and message.records:
                with self._heard_of(topic, message.traceparent, message.records[-1][0]):
                    self.inboxes.received(topic, message)
            case Notified() | InboxChanged():
                self.inboxes.received(topic, message)
            case Deliver() if topic.kind == "user":
                self._to_user(topic, message)
            case Deliver() if message.traceparent is not None:
                with self._heard_of(topic, message.traceparent, message.seq):
                    self.rooms.received(topic, message)
            case MemberRemoved():
                self.rooms.removed(message, topic.name)
            case VisibilityChanged():
                self.visibility_updates.heard(message, topic.name)
            case Revoked():
                self.revocation_service.heard(message, topic.name)
            case Acknowledged():
                self.acks.acknowledged(message)
            case ClusterQuestion():
                self.cluster.asked(message, topic.name)
            case ClusterAnswer():
                self.cluster.answered(message)
            case Deliver() | Typing() | Entered() | Left() | MembersChanged():
                self.rooms.received(topic, message)

    @contextmanager
    def _heard_of(self, topic: Topic, traceparent: str, seq: int | None) -> Iterator[None]:
        """What follows from it here is in the course of what it was said in the course of elsewhere."""
        with span("bus.receive", read(traceparent), kind=topic.kind):
            log(log_events.RECORD_HEARD, seq=seq, tenant=topic.tenant, channel=topic.name)
            yield

    def _to_user(self, topic: Topic, message: Deliver) -> None:
        if self.hub.shedding and message.seq is None:
            self.metrics.drop(message.frame, "shed")
            return
        for connection in self.registry.connections_of(topic.tenant, topic.name):
            if connection.id != message.without_connection:
                connection.send(message.frame, record=message.seq is not None, key=message.key)

    async def disconnect(self, session_id: str, code: int, reason: str, tenant: str) -> bool:
        """Close a tenant's session, wherever it is; False if there is no such session (or no such node)."""
        if session_id in self.registry.sessions or not self._is_elsewhere(session_id):
            return self._disconnect(session_id, code, reason, tenant)
        # A node that was taken for dead goes on under another name, its sessions under the ids they have.
        return await self.engine.reach(incarnation_of(session_id), Disconnect(session_id, code, reason, tenant))

    def _is_elsewhere(self, session_id: str) -> bool:
        return incarnation_of(session_id) != self.incarnation

    def _disconnect(self, session_id: str, code: int, reason: str, tenant: str | None) -> bool:
        session = self.registry.sessions.get(session_id)
        if session is None or tenant not in (None, session.tenant):
            return False
        if code == Close.REPLACED:
            self.sessions.moved(session)
        if session.connection is None:
            return False
        session.connection.close(code, reason)
        return True

    def cut(self, session_id: str) -> bool:
        """End a session's socket without a word, as a broken network does; False if it has none here."""
        session = self.registry.sessions.get(session_id)
        if session is None or session.connection is None:
            return False
        session.connection.abort()
        return True

    # --- what operators look at ---

    async def sessions_of(self, tenant: str, user: str) -> list[SessionInfo]:
        """On all nodes; what only its own node knows of a session is left open for those of others."""
        return await stats.sessions_of(self, tenant, user)

    @property
    def overload(self) -> str | None:
        """Why no new work is taken; None while it is."""
        return self.overload_monitor.trouble

    def stats(self) -> dict[str, Any]:
        return stats.stats(self)

    def tenant_stats(self, tenant: str) -> dict[str, Any]:
        return stats.tenant_stats(self, tenant)

    def metrics_items(self) -> Iterator[tuple[str, float]]:
        return stats.metrics(self)

    async def scrape(self) -> list[Sample]:
        """All it counts, for `/metrics`."""
        return await self._scraping.scrape()
