"""Contacts over HTTP: who knows whom, as the app says."""

from __future__ import annotations

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from greendot.api.backend import Backend
from greendot.api.problem import Problem
from greendot.api.request import json, path_id, read_body
from greendot.protocol.commands import Seq


class PutContact(Struct):
    """The body of PUT /v1/users/{user}/contacts/{other}; it may be left out."""

    last_contact_at: Seq | None = None  # None: now


class ContactRoutes:
    """`/v1/users/{user}/contacts`."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def routes(self) -> list[Route]:
        path = "/v1/users/{user}/contacts/{other}"
        return [Route(path, self.put, methods=["PUT"]), Route(path, self.remove, methods=["DELETE"])]

    async def put(self, request: Request) -> Response:
        (tenant, user), other = self._pair(request)
        now = self._backend.clock.now_ms()
        at = (await read_body(request, PutContact)).last_contact_at
        # What is still to come would be recent for longer than anybody may say.
        at = now if at is None else min(at, now)
        await self._backend.regarding.put_contact((tenant, user), other, at)
        return json({"user": user, "contact": other, "last_contact_at": at})

    async def remove(self, request: Request) -> Response:
        key, other = self._pair(request)
        await self._backend.regarding.remove_contact(key, other)
        return Response(status_code=204)

    def _pair(self, request: Request) -> tuple[tuple[str, str], str]:
        tenant, user, other = self._backend.keys.tenant(request), path_id(request, "user"), path_id(request, "other")
        if user == other:
            raise Problem(400, "nobody is their own contact: name two users", code="bad_field")
        return (tenant, user), other
