"""All that can be asked over HTTP, and the document that says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from greendot.admin.http import OperationRoutes
from greendot.auth.http import TokenRoutes
from greendot.http import asyncapi, openapi
from greendot.http.backend import Backend
from greendot.http.operation import operation, operations_of
from greendot.inbox.http import NotificationRoutes
from greendot.presence.http import PresenceRoutes
from greendot.push.http import DeviceRoutes
from greendot.rooms.http import RoomRoutes
from greendot.visibility.http import ContactRoutes


class DocumentRoutes:
    """`/openapi.json` and `/asyncapi.json`."""

    def __init__(self, backend: Backend) -> None:
        self._built: dict[Callable[[], bytes], bytes] = {}
        self._building = asyncio.Lock()

    @operation("GET /openapi.json", answers={200: (dict[str, Any],)})
    async def openapi(self, request: Request) -> Response:
        """This document."""
        return Response(await self._document(_text), media_type="application/json")

    @operation("GET /asyncapi.json", answers={200: (dict[str, Any],)})
    async def asyncapi(self, request: Request) -> Response:
        """The WebSocket protocol, as an AsyncAPI 3 document."""
        return Response(await self._document(_wire_text), media_type="application/json")

    async def _document(self, build: Callable[[], bytes]) -> bytes:
        """Build a document once, in a thread: it takes a tenth of a second, and the loop serves everybody."""
        if build not in self._built:
            async with self._building:
                if build not in self._built:
                    self._built[build] = await asyncio.to_thread(build)
        return self._built[build]


KINDS = (
    PresenceRoutes,
    ContactRoutes,
    DeviceRoutes,
    RoomRoutes,
    NotificationRoutes,
    TokenRoutes,
    OperationRoutes,
    DocumentRoutes,
)


def document() -> dict[str, Any]:
    """The OpenAPI document of all of it."""
    return openapi.document([operation for kind in KINDS for operation in operations_of(kind)])


@cache
def _text() -> bytes:
    return msgspec.json.encode(document())


@cache
def _wire_text() -> bytes:
    return msgspec.json.encode(asyncapi.document())
