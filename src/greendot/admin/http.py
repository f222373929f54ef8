"""Routes for operators: liveness, readiness, metrics, nodes, statistics and sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from greendot.admin.access import NodeView
from greendot.auth.api_keys import ApiKeys
from greendot.engine.port import Engine
from greendot.errors import StoreUnavailable
from greendot.http.operation import operation
from greendot.http.problem import Problem
from greendot.http.request import json
from greendot.node.time_slices import TimeSlices
from greendot.protocol.codes import Close
from greendot.protocol.fields import about
from greendot.store.port import Store
from greendot.telemetry.metrics_model import MetricSample

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Expose = Callable[[Iterable[MetricSample], str], Iterator[bytes]]


class Ready(Struct):
    """State of a node that accepts new clients."""

    node: Annotated[str, about("Incarnation of the node.")]
    ready: Annotated[Literal[True], about("Always true.")] = True


class NotReady(Struct):
    """State of a node that accepts no new clients, with the reason."""

    reason: Annotated[str, about("Reason why the node accepts no new clients. An operator's key gets more detail.")]
    ready: Annotated[Literal[False], about("Always false.")] = False


class NodeShown(Struct):
    """Node in the engine's records."""

    node: Annotated[str, about("Incarnation of the node.")]
    state: Annotated[Literal["live", "dead"], about("Whether the node renews its lease.")]
    renewed_at: Annotated[
        int | None, about("Time when the node last renewed its lease, in milliseconds UTC; null if unknown.")
    ]
    ends_at: Annotated[
        int | None,
        about("Time when the sessions of a dead node stop counting, in milliseconds UTC; null for a live node."),
    ]
    level: Annotated[Literal["normal", "shedding", "refusing"], about("Overload level of the node.")]


class Nodes(Struct):
    """List of all nodes, and the node that answers."""

    nodes: Annotated[list[NodeShown], about("All nodes that the engine knows, live and dead.")]
    asked: Annotated[str, about("Incarnation of the node that answers.")]


class TenantStats(Struct):
    """Counters of the key's tenant on the node that answers."""

    node: Annotated[str, about("Incarnation of the node that answers.")]
    tenant: Annotated[str, about("Tenant of the key.")]
    connections: Annotated[int, about("Open connections of the tenant.")]
    users: Annotated[int, about("Users of the tenant with sessions on the node.")]
    sends: Annotated[int, about("Messages, notifications and signals that were accepted since the node started.")]
    refused: Annotated[int, about("Refused commands of clients, and sends of the app above its limits.")]


NodeStats = dict[str, float | str]  # the node, its start time, and all its counters


class OperationRoutes:
    """Routes of `/livez`, `/readyz`, `/metrics`, and of operators for nodes and sessions."""

    def __init__(
        self,
        keys: ApiKeys,
        engine: Engine,
        store: Store,
        node: NodeView,
        slices: TimeSlices,
    ) -> None:
        self._keys = keys
        self._engine = engine
        self._store = store
        self._node = node
        self._slices = slices
        self._expose: Expose | None = None

    @operation("GET /livez", answers={200: "text/plain; charset=utf-8"})
    async def live(self, request: Request) -> Response:
        """Check that the process runs."""
        return PlainTextResponse("ok\n")

    @operation("GET /readyz", answers={200: (Ready,), 503: (NotReady,)})
    async def ready(self, request: Request) -> Response:
        """Check that the node accepts new clients. The answer is 503 with the reason if it does not."""
        reason = await self._not_ready(request)
        return json(Ready(self._node.incarnation)) if reason is None else json(NotReady(reason), 503)

    async def _not_ready(self, request: Request) -> str | None:
        if self._node.draining:
            return "draining"
        if (overload := self._node.overload) is not None:
            return overload
        try:
            await self._store.ping()
        except StoreUnavailable as error:
            return await self._unready_reason(request, "the store does not answer", str(error))
        if (trouble := self._engine.trouble) is not None:
            return await self._unready_reason(request, "the engine does not answer", trouble)
        return None

    async def _unready_reason(self, request: Request, what: str, why: str) -> str:
        """Return `what`, with `why` for operators only: it names hosts and logins, and the route is public."""
        try:
            await self._keys.admit(request, "operator")
        except (Problem, StoreUnavailable):
            return what
        return f"{what}: {why}"

    @operation("GET /metrics", answers={200: METRICS_TYPE})
    async def metrics(self, request: Request) -> Response:
        """Return the metrics of the node in the text format of Prometheus."""
        if self._expose is None:
            self._expose = await asyncio.to_thread(_load_exposition)
        page = []
        for part in self._expose(await self._node.scrape(), self._node.incarnation):
            page.append(part)
            await self._slices.turn()
        return Response(b"".join(page), media_type=METRICS_TYPE)

    @operation("GET /v1/connect", answers={101: ()}, fails=(426,))
    async def connect(self, request: Request) -> Response:
        """Open a WebSocket connection as a client. A request without an upgrade is answered with 426."""
        # Requests with an upgrade never reach this route.
        raise Problem(
            426,
            "this route is a WebSocket; connect with ws:// or wss://",
            headers={"Upgrade": "websocket", "Connection": "upgrade"},
        )

    @operation("GET /v1/nodes")
    async def nodes(self, request: Request) -> Nodes:
        """List all nodes."""
        nodes = await self._engine.nodes()
        shown = [msgspec.convert(node._asdict(), NodeShown) for node in nodes]
        return Nodes(shown, self._node.incarnation)

    @operation("GET /v1/stats", answers={200: (TenantStats, NodeStats)})
    async def stats(self, request: Request) -> Response:
        """Return counters of the node that answers.

        A tenant's key gets the counters of its tenant, an operator's key those of the whole node.
        """
        keys, node = self._keys, self._node
        if keys.caller(request).may("operator"):
            return json(node.stats())
        return json(msgspec.convert(node.tenant_stats(keys.tenant(request)), TenantStats))

    @operation("DELETE /v1/sessions/{session}", fails=(404,))
    async def disconnect(self, request: Request, session: str) -> None:
        """Disconnect a session with close code 4503, on any node."""
        tenant = self._keys.tenant(request)
        if not await self._node.disconnect_all([session], Close.DISCONNECTED, "disconnected by the operator", tenant):
            raise Problem(404, f"session {session!r} is not connected")


def _load_exposition() -> Expose:
    """Import the Prometheus client, in a thread at the first scrape: the import takes 50 ms of loop time."""
    from greendot.telemetry.prometheus import expose

    return expose
