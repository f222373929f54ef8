"""Access to the dashboard: the services it uses, and the rights of a viewer's key."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from typing import Any, Protocol

from msgspec import Struct

from greendot.admin.node_report import NodeReporter
from greendot.auth.api_keys import ApiKeys
from greendot.auth.revocation import RevocationService
from greendot.clock import Clock
from greendot.engine.port import Engine
from greendot.errors import Refused
from greendot.inbox.service import InboxService
from greendot.node.event_recorder_model import ALL
from greendot.node.tasks import Tasks
from greendot.node.timers import Timers
from greendot.protocol.codes import Err
from greendot.protocol.replies import SessionsReply
from greendot.rooms.moderation import RoomModeration
from greendot.rooms.restrictions import RestrictionService
from greendot.store.port import Store
from greendot.telemetry.metrics import Metrics
from greendot.telemetry.metrics_model import MetricSample


class NodeView(Protocol):
    """Node (`app.node`), as operators use it."""

    draining: bool

    @property
    def incarnation(self) -> str: ...

    @property
    def overload(self) -> str | None: ...

    async def sessions_of(self, tenant: str, user: str) -> SessionsReply: ...
    async def disconnect_all(self, session_ids: Iterable[str], code: int, reason: str, tenant: str) -> int: ...
    def cut(self, session_id: str) -> bool: ...
    def stats(self) -> dict[str, Any]: ...
    def tenant_stats(self, tenant: str) -> dict[str, Any]: ...
    async def scrape(self) -> list[MetricSample]: ...


class DashboardPeriods(Struct, frozen=True):
    """Times from the settings that the dashboard uses to describe a node, a user or a device."""

    lease_s: float  # a node without a renewal of its lease for this time is dead
    last_seen_days: float  # retention of the time when a user was last seen
    inbox_days: float  # retention of notifications
    unused_days: float  # retention of unused devices


class DashboardServices(Struct, frozen=True):
    """Services that the dashboard uses."""

    engine: Engine
    store: Store
    clock: Clock
    timers: Timers
    tasks: Tasks
    keys: ApiKeys
    cluster: NodeReporter
    node: NodeView
    revocation_service: RevocationService
    inbox_service: InboxService
    restrictions: RestrictionService
    moderation: RoomModeration
    lasting: DashboardPeriods
    metrics: Metrics
    key: str = ""  # setting admin.key: opens all tenants and nodes; empty: only API keys open the dashboard
    dev: bool = False


class Viewer(Struct, frozen=True):
    """Rights of a key that was accepted."""

    name: str  # name of the key
    nodes: bool  # may see the nodes
    tenant: str | None = None  # the tenant whose users and rooms the viewer may see
    every: bool = False  # may see every tenant

    @property
    def tail(self) -> str | None:
        """Return the tenant whose events the viewer may see; ALL for every tenant, None for none."""
        return ALL if self.every else self.tenant

    def at(self, named: str | None) -> str:
        """Return the tenant of a request. Raise Refused if the viewer may not see it.

        The refusal does not reveal whether the tenant exists.
        """
        if self.every:
            return named or "default"
        if self.tenant is None:
            raise Refused(Err.FORBIDDEN, "this key is for nodes only; use a tenant's key with the scope admin")
        if named not in (None, self.tenant):
            raise Refused(
                Err.FORBIDDEN, f"this key is for the tenant {self.tenant!r} only; use a key of the other tenant"
            )
        return self.tenant


UNKNOWN_KEY = "unknown key: no such key exists here, or it has expired or was removed; check the key"
NO_SCOPE = "this key does not open the dashboard: use a key with the scope admin, or one made with --operator"


class KeyRefused(Struct, frozen=True):
    """Reason why a key does not open the dashboard: at most 123 bytes, for the close frame of the WebSocket."""

    reason: str


async def viewer_of(services: DashboardServices, key: str) -> Viewer | KeyRefused:
    """Return the rights of a key, or the reason why the key does not open the dashboard.

    Raise StoreUnavailable if the store cannot be read.
    """
    if services.key and hmac.compare_digest(_hash(services.key), _hash(key)):
        return Viewer("admin.key", nodes=True, every=True)
    caller = await services.keys.known(key)
    if caller is None:
        return KeyRefused(UNKNOWN_KEY)
    if not (caller.may("admin") or caller.may("operator")):
        return KeyRefused(NO_SCOPE)
    tenant = caller.tenant if caller.may("admin") else None
    return Viewer(caller.name or "api.key", nodes=caller.may("operator"), tenant=tenant)


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
