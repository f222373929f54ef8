"""What operators look at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from greendot.app.parts import Parts
from greendot.errors import EngineUnavailable
from greendot.node.session import Session
from greendot.protocol.replies import SessionInfo


async def sessions_of(parts: Parts, tenant: str, user: str) -> list[SessionInfo]:
    """On all nodes; what only its own node knows of a session is left open for those of others."""
    here = [info(parts, session) for session in parts.registry.sessions_of(tenant, user)]
    known = {info.session for info in here}
    try:
        seats = await parts.engine.sessions(tenant, user)
    except EngineUnavailable:
        return here
    return here + [
        SessionInfo(
            session=seat.session,
            user=user,
            device=seat.device,
            client=None,
            node=seat.node,
            connected_at=None,
            last_heard=None,
            state=seat.state if seat.ends_in_ms is None else "lingering",
            ip_hash=None,
            agent_hash=None,
        )
        for seat in seats
        if seat.session not in known
    ]


def info(parts: Parts, session: Session) -> SessionInfo:
    """A session of this node's."""
    connection, last_heard = session.connection, session.last_heard
    if connection is not None:
        last_heard = parts.clock.now_ms() - round((parts.clock.monotonic() - connection.heard) * 1000)
    return SessionInfo(
        session=session.id,
        user=session.user,
        device=session.device,
        client={"name": session.client.name, "version": session.client.version},
        node=parts.incarnation,
        connected_at=session.connected_at,
        last_heard=last_heard,
        state="lingering" if connection is None else "idle" if session.idle else "online",
        ip_hash=session.ip_hash,
        agent_hash=connection.agent_hash if connection is not None else None,
    )


def stats(parts: Parts) -> dict[str, Any]:
    return {
        "node": parts.incarnation,
        "started_at": parts.started_at,
        "connections": len(parts.registry.connections),
        "sessions": len(parts.registry.sessions),
        "users": parts.registry.users,
        "topics": parts.hub.topics,
        "timers": len(parts.timers),
    } | dict(_counted(parts))


def tenant_stats(parts: Parts, tenant: str) -> dict[str, Any]:
    """What a tenant may know: nothing that others have a part in."""
    tally = parts.registry.usage.shown(tenant)
    return {
        "node": parts.incarnation,
        "tenant": tenant,
        "connections": tally.connections,
        "users": tally.users,
        "sends": tally.sends,
        "refused": tally.refused,
    }


async def tenant_metrics(parts: Parts) -> list[tuple[str, str, int]]:
    """Of the tenants with a name that may be shown; each name once for all of them, as Prometheus wants it."""
    labels, usage = await parts.tenant_registry.labels(), parts.registry.usage
    shown = [(tenant, usage.shown(tenant)) for tenant in sorted(labels.intersection(usage))]
    return [
        *(("tenant_connections", tenant, tally.connections) for tenant, tally in shown),
        *(("tenant_users_online", tenant, tally.users) for tenant, tally in shown),
        *(("tenant_sends_total", tenant, tally.sends) for tenant, tally in shown),
        *(("tenant_refused_total", tenant, tally.refused) for tenant, tally in shown),
    ]


def metrics(parts: Parts) -> Iterator[tuple[str, float]]:
    yield "ws_connections", len(parts.registry.connections)
    yield "ws_sessions", len(parts.registry.sessions)
    yield "ws_users_online", parts.registry.users
    yield from parts.overload_monitor.gauges()
    yield "realtime_hellos_waiting", parts.admission.waiting
    yield from _counted(parts)


def _counted(parts: Parts) -> Iterator[tuple[str, float]]:
    engine = parts.engine.counts()
    yield from parts.metrics.items()
    yield from engine.items()
    swept = engine.get("presence_swept_sessions_total", 0)
    yield "presence_reconciliation_removed_total", swept + parts.recovery.ended
    yield "presence_restored_sessions_total", parts.recovery.restored
    yield "presence_audited_sessions_total", parts.recovery.ended
    yield "realtime_resync_total", parts.recovery.resyncs
    yield "realtime_sessions_resumed_total", parts.registry.resumed
    yield "room_recovery_fetch_total", parts.rooms.delivery.recoveries
    yield "visibility_unanswered_total", parts.visibility_webhook.failures
    yield "realtime_engine_up", int(parts.engine.trouble is None)
    for counter in parts.counters:
        yield from counter().items()
