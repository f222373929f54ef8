"""For operators: is it alive, is it ready, what is it doing."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from greendot.api.backend import Backend
from greendot.api.problem import Problem
from greendot.api.request import json, path_id
from greendot.errors import StoreUnavailable
from greendot.protocol.codes import Close


class OperationRoutes:
    """`/livez`, `/readyz`, `/metrics`, and what operators do to nodes and sessions."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def routes(self) -> list[Route]:
        return [
            Route("/livez", self.live),
            Route("/readyz", self.ready),
            Route("/metrics", self.metrics),
            Route("/v1/connect", self.connect),
            Route("/v1/nodes", self.nodes),
            Route("/v1/stats", self.stats),
            Route("/v1/sessions/{session}", self.disconnect, methods=["DELETE"]),
        ]

    async def live(self, request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(self, request: Request) -> Response:
        """200 while new clients are welcome; 503 with the reason otherwise."""
        if self._backend.node.draining:
            return json({"ready": False, "reason": "draining"}, 503)
        if (overload := self._backend.node.overload) is not None:
            return json({"ready": False, "reason": overload}, 503)
        try:
            await self._backend.store.ping()
        except StoreUnavailable as error:
            return json({"ready": False, "reason": f"the store does not answer: {error}"}, 503)
        if (trouble := self._backend.engine.trouble) is not None:
            return json({"ready": False, "reason": f"the engine does not answer: {trouble}"}, 503)
        return json({"ready": True, "node": self._backend.node.incarnation})

    async def metrics(self, request: Request) -> Response:
        node = self._backend.node
        lines = []
        for name, value in node.metrics_items():
            lines += [_typed(name), f'{name}{{node="{node.incarnation}"}} {value}']
        for name, of_tenants in groupby(await node.tenant_metrics(), itemgetter(0)):
            lines.append(_typed(name))
            # A tenant's name is an id: nothing in it has to be escaped.
            lines += [f'{name}{{node="{node.incarnation}",tenant="{it}"}} {value}' for _, it, value in of_tenants]
        return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")

    async def connect(self, request: Request) -> Response:
        """Reached only without an upgrade: those never come here."""
        raise Problem(426, "this address speaks WebSocket: connect with ws:// or wss://")

    async def nodes(self, request: Request) -> Response:
        nodes = await self._backend.engine.nodes()
        return json({"nodes": [node._asdict() for node in nodes], "asked": self._backend.node.incarnation})

    async def stats(self, request: Request) -> Response:
        """Of the whole node for operators, else of the key's tenant."""
        keys, node = self._backend.keys, self._backend.node
        if keys.caller(request).may("operator"):
            return json(node.stats())
        return json(node.tenant_stats(keys.tenant(request)))

    async def disconnect(self, request: Request) -> Response:
        tenant, session = self._backend.keys.tenant(request), path_id(request, "session")
        if not await self._backend.node.disconnect(session, Close.DISCONNECTED, "disconnected by the operator", tenant):
            raise Problem(404, f"no session {session!r} is connected")
        return Response(status_code=204)


def _typed(name: str) -> str:
    return f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}"
