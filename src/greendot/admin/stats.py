"""Statistics of a node and its sessions, for operators and tenants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from greendot.auth.tenants import Tenants
from greendot.clock import Clock
from greendot.connect.drain import Drainer
from greendot.connect.hello import HelloService
from greendot.connect.recovery import Recovery
from greendot.engine.port import Engine
from greendot.limits.overload import OverloadMonitor
from greendot.node.event_recorder import EventRecorder
from greendot.node.hub import Hub
from greendot.node.registry import Registry
from greendot.node.session import Session
from greendot.node.tasks import Tasks
from greendot.node.timers import Timers
from greendot.presence.sessions import SessionService
from greendot.presence.status import StatusService
from greendot.presence.watch import WatchService
from greendot.protocol.replies import SessionInfo
from greendot.rooms.service import RoomService
from greendot.store.port import Store
from greendot.telemetry.metrics import Metrics
from greendot.visibility.webhook import VisibilityWebhook

Counters = Callable[[], Mapping[str, float]]


class NodeSources(Struct):
    """Services of a node that operators read. `app.node` fills the struct."""

    clock: Clock
    engine: Engine
    store: Store
    registry: Registry
    hub: Hub
    timers: Timers
    tasks: Tasks
    metrics: Metrics
    recorder: EventRecorder
    sessions: SessionService
    statuses: StatusService
    watching: WatchService
    rooms: RoomService
    hello: HelloService
    overload_monitor: OverloadMonitor
    recovery: Recovery
    drainer: Drainer
    tenant_registry: Tenants
    visibility_webhook: VisibilityWebhook
    counters: list[Counters]  # counters of services beside the node, such as webhooks and push
    started_at: int
    tenant_metrics: bool  # metrics with a tenant label are enabled

    @property
    def incarnation(self) -> str:
        return self.sessions.incarnation


def info(sources: NodeSources, session: Session) -> SessionInfo:
    """Return the description of a session on this node."""
    connection, last_heard = session.connection, session.last_heard
    if connection is not None:
        last_heard = sources.clock.now_ms() - round((sources.clock.monotonic() - connection.received_at) * 1000)
    return SessionInfo(
        session=session.id,
        user=session.user,
        device=session.device,
        client={"name": session.client.name, "version": session.client.version},
        node=sources.incarnation,
        connected_at=session.connected_at,
        last_heard=last_heard,
        state="lingering" if connection is None else "idle" if session.idle else "online",
        ip_hash=session.ip_hash,
        agent_hash=connection.agent_hash if connection is not None else None,
        ends_in_ms=_ends_in_ms(session, sources.clock.monotonic()),
    )


def _ends_in_ms(session: Session, now: float) -> int | None:
    """Return the rest of the grace; None while the session has a connection. `leaving` is of its latest lost one."""
    if session.connection is not None or session.leaving is None:
        return None
    return session.leaving.since(now)[0]


def stats(sources: NodeSources) -> dict[str, Any]:
    return {
        "node": sources.incarnation,
        "started_at": sources.started_at,
        "connections": len(sources.registry.connections),
        "sessions": len(sources.registry.sessions),
        "users": sources.registry.users,
        "topics": sources.hub.topics,
        "timers": len(sources.timers),
    } | dict(_counted(sources))


def tenant_stats(sources: NodeSources, tenant: str) -> dict[str, Any]:
    """Return the counters of a tenant: nothing that depends on other tenants."""
    tally = sources.registry.usage.shown(tenant)
    return {
        "node": sources.incarnation,
        "tenant": tenant,
        "connections": tally.connections,
        "users": tally.users,
        "sends": tally.sends,
        "refused": tally.refused,
    }


async def tenant_metrics(sources: NodeSources) -> list[tuple[str, str, int]]:
    """Return the metrics of tenants whose names may be shown, grouped by metric, as Prometheus requires."""
    labels, usage = await sources.tenant_registry.labels(), sources.registry.usage
    shown = [(tenant, usage.shown(tenant)) for tenant in sorted(labels.intersection(usage))]
    return [
        *(("tenant_connections", tenant, tally.connections) for tenant, tally in shown),
        *(("tenant_users_online", tenant, tally.users) for tenant, tally in shown),
        *(("tenant_sends_total", tenant, tally.sends) for tenant, tally in shown),
        *(("tenant_refused_total", tenant, tally.refused) for tenant, tally in shown),
    ]


def metrics(sources: NodeSources) -> Iterator[tuple[str, float]]:
    yield "ws_connections", len(sources.registry.connections)
    yield "ws_sessions", len(sources.registry.sessions)
    yield "ws_users_online", sources.registry.users
    yield from sources.overload_monitor.gauges()
    yield "realtime_hellos_waiting", sources.hello.waiting
    yield from _counted(sources)


def _counted(sources: NodeSources) -> Iterator[tuple[str, float]]:
    engine = sources.engine.counts()
    yield from sources.metrics.items()
    yield from engine.items()
    swept = engine.get("presence_swept_sessions_total", 0)
    yield "presence_reconciliation_removed_total", swept + sources.recovery.ended
    yield "presence_restored_sessions_total", sources.recovery.restored
    yield "presence_audited_sessions_total", sources.recovery.ended
    yield "realtime_resync_total", sources.recovery.resyncs
    yield "realtime_sessions_resumed_total", sources.registry.resumed
    yield "room_recovery_fetch_total", sources.rooms.delivery.recoveries
    yield "visibility_unanswered_total", sources.visibility_webhook.failures
    yield "realtime_engine_up", int(sources.engine.trouble is None)
    for counter in sources.counters:
        yield from counter().items()
