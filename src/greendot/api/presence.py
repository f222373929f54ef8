"""Presence over HTTP: what an app backend asks about its users."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from greendot.api.backend import Backend
from greendot.api.request import cursor, json, number, path_id, read_body
from greendot.core.presence import Manual
from greendot.core.projection import project
from greendot.protocol.commands import Seq, Text, Users
from greendot.protocol.replies import PresenceReply, StatusReply


class Query(Struct):
    """The body of POST /v1/presence/query."""

    users: Users


class SetStatus(Struct):
    """The body of PUT /v1/users/{user}/status."""

    status: Literal["auto", "busy", "invisible"] = "auto"
    until: Seq | None = None
    text: Text | None = None


class PresenceRoutes:
    """`/v1/presence` and `/v1/users`."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def routes(self) -> list[Route]:
        return [
            Route("/v1/presence/query", self.query, methods=["POST"]),
            Route("/v1/presence/online", self.online),
            Route("/v1/users/{user}/presence", self.one),
            Route("/v1/users/{user}/sessions", self.sessions),
            Route("/v1/users/{user}/status", self.set_status, methods=["PUT"]),
        ]

    async def query(self, request: Request) -> Response:
        tenant = self._backend.keys.tenant(request)
        users = (await read_body(request, Query)).users
        self._backend.limiting.app_query(tenant, len(users))
        snapshots = await self._backend.engine.read(tenant, users)
        return json(PresenceReply([project(u, s) for u, s in zip(users, snapshots, strict=True)]))

    async def online(self, request: Request) -> Response:
        tenant, limit = self._backend.keys.tenant(request), number(request, "limit", 100, 1_000)
        page = await self._backend.engine.online(tenant, cursor(request), limit)
        return json({"users": page.users, "next": page.next, "count": page.total})

    async def one(self, request: Request) -> Response:
        tenant, user = self._backend.keys.tenant(request), path_id(request, "user")
        (snapshot,) = await self._backend.engine.read(tenant, [user])
        return json(project(user, snapshot))

    async def sessions(self, request: Request) -> Response:
        tenant, user = self._backend.keys.tenant(request), path_id(request, "user")
        return json({"sessions": await self._backend.node.sessions_of(tenant, user)})

    async def set_status(self, request: Request) -> Response:
        tenant, user = self._backend.keys.tenant(request), path_id(request, "user")
        body = await read_body(request, SetStatus)
        snapshot = await self._backend.statuses.set((tenant, user), Manual(body.status, body.until, body.text))
        return json(StatusReply(project(user, snapshot, own=True)))
