"""HTTP application: the routes of all capabilities, and the documents of the APIs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from typing import Any, Literal

import msgspec
from msgspec import Struct
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from greendot.admin.access import NodeView
from greendot.admin.http import OperationRoutes
from greendot.app.demo import Dev, DevRoutes, NewVisitors
from greendot.auth.api_keys import ApiKeys
from greendot.auth.http import TokenRoutes
from greendot.auth.revocation import RevocationService
from greendot.clock import Clock
from greendot.engine.port import Engine
from greendot.errors import EngineUnavailable, Refused, StoreUnavailable, Unstorable
from greendot.http import asyncapi, openapi, problem
from greendot.http.operation import operation, operations_of, routes_of
from greendot.http.pages import admin_pages, docs_pages
from greendot.http.scopes import guarded
from greendot.inbox.http import NotificationRoutes
from greendot.inbox.service import InboxService
from greendot.limits.publisher_backpressure import Backpressure
from greendot.limits.rate_limits import RateLimits
from greendot.node.time_slices import TimeSlices
from greendot.presence.http import PresenceModeRoutes, PresenceRoutes
from greendot.presence.modes import PresenceModes
from greendot.presence.reads import PresenceSnapshots
from greendot.presence.status import StatusService
from greendot.push.devices import DeviceService
from greendot.push.http import DeviceRoutes
from greendot.rooms.http import RoomRoutes
from greendot.rooms.messages import RoomMessages
from greendot.rooms.moderation import RoomModeration
from greendot.rooms.moderation_http import ModerationRoutes
from greendot.rooms.reactions_http import ReactionRoutes
from greendot.rooms.restrictions import RestrictionService
from greendot.rooms.restrictions_http import RestrictionRoutes
from greendot.rooms.service import RoomService
from greendot.store.port import Store
from greendot.visibility.http import ContactRoutes
from greendot.visibility.updates import VisibilityUpdates


class DocumentRoutes:
    """Routes of `/openapi.json` and `/asyncapi.json`."""

    def __init__(self) -> None:
        self._built: dict[Callable[[], bytes], bytes] = {}
        self._building = asyncio.Lock()

    @operation("GET /openapi.json", answers={200: (dict[str, Any],)})
    async def openapi(self, request: Request) -> Response:
        """Return this document: the HTTP API as an OpenAPI 3.1 document."""
        return Response(await self._document(_text), media_type="application/json")

    @operation("GET /asyncapi.json", answers={200: (dict[str, Any],)})
    async def asyncapi(self, request: Request) -> Response:
        """Return the WebSocket protocol as an AsyncAPI 3 document."""
        return Response(await self._document(_wire_text), media_type="application/json")

    async def _document(self, build: Callable[[], bytes]) -> bytes:
        """Return a document, built once, in a thread: building takes a tenth of a second, too long for the loop."""
        if build not in self._built:
            async with self._building:
                if build not in self._built:
                    self._built[build] = await asyncio.to_thread(build)
        return self._built[build]


KINDS = (
    PresenceRoutes,
    PresenceModeRoutes,
    ContactRoutes,
    DeviceRoutes,
    RoomRoutes,
    ReactionRoutes,
    ModerationRoutes,
    RestrictionRoutes,
    NotificationRoutes,
    TokenRoutes,
    OperationRoutes,
    DocumentRoutes,
)


class HttpServices(Struct, frozen=True):
    """Services that the routes of all capabilities call."""

    engine: Engine
    store: Store
    clock: Clock
    keys: ApiKeys
    statuses: StatusService
    snapshots: PresenceSnapshots
    presence_modes: PresenceModes
    visibility_updates: VisibilityUpdates
    rooms: RoomService
    room_messages: RoomMessages
    moderation: RoomModeration
    restrictions: RestrictionService
    inbox_service: InboxService
    rate_limits: RateLimits
    backpressure: Backpressure
    revocation_service: RevocationService
    devices: DeviceService
    slices: TimeSlices
    is_zone: Callable[[str], bool]  # whether a time zone has this name
    node: NodeView


def make_routes(services: HttpServices) -> list[object]:
    """Return the route objects of every capability."""
    it = services
    return [
        PresenceRoutes(
            it.keys,
            it.engine,
            it.store,
            it.clock,
            it.rate_limits,
            it.slices,
            it.snapshots,
            it.statuses,
            it.node.sessions_of,
        ),
        PresenceModeRoutes(it.keys, it.presence_modes),
        ContactRoutes(it.keys, it.clock, it.visibility_updates),
        DeviceRoutes(it.keys, it.store, it.devices, it.is_zone),
        ReactionRoutes(it.keys, it.clock, it.rate_limits, it.room_messages, it.backpressure),
        RoomRoutes(
            it.keys,
            it.engine,
            it.store,
            it.clock,
            it.rate_limits,
            it.room_messages,
            it.rooms,
            it.backpressure,
            it.moderation,
        ),
        ModerationRoutes(it.keys, it.store, it.clock, it.rate_limits, it.backpressure, it.moderation),
        RestrictionRoutes(it.keys, it.store, it.clock, it.restrictions),
        NotificationRoutes(it.keys, it.store, it.clock, it.rate_limits, it.slices, it.backpressure, it.inbox_service),
        TokenRoutes(it.keys, it.clock, it.revocation_service),
        OperationRoutes(it.keys, it.engine, it.store, it.node, it.slices),
        DocumentRoutes(),
    ]


def document() -> dict[str, Any]:
    """Return the OpenAPI document of all routes."""
    return openapi.document([operation for kind in KINDS for operation in operations_of(kind)])


@cache
def _text() -> bytes:
    return msgspec.json.encode(document())


@cache
def _wire_text() -> bytes:
    return msgspec.json.encode(asyncapi.document())


METRICS = "/metrics"
Place = Literal["here", "elsewhere", "off"]


def make_app(
    services: HttpServices,
    dev: Dev | None = None,
    *,
    admin: Place = "elsewhere",
    docs: bool = True,
    metrics: bool = True,
) -> Starlette:
    """Return the application.

    `dev` adds the demo page and its tokens, `admin` the dashboard's page or the way to turn it on. `docs` adds the
    documents of the APIs and the page that shows them. Without `metrics`, metrics are served elsewhere.
    """
    served = [it for it in make_routes(services) if docs or not isinstance(it, DocumentRoutes)]
    routes = [guarded(route, services.keys, services.rate_limits) for it in served for route in routes_of(it)]
    if not metrics:
        routes = [route for route in routes if route.path != METRICS]
    if docs:
        routes += docs_pages()
    if dev is not None:
        new_visitors = NewVisitors(services.engine, services.store)
        routes += DevRoutes(services.clock, services.inbox_service, services.node, new_visitors, dev).routes()
    if admin == "here":
        routes += admin_pages()
    elif admin == "off":
        routes.append(Route("/admin", _dashboard_off))
    return _app(routes)


async def _dashboard_off(request: Request) -> Response:
    raise problem.Problem(
        404,
        "the dashboard is off; set admin.enabled = true, or GREENDOT_ADMIN_ENABLED=true, and restart the server",
    )


def make_metrics_app(services: HttpServices) -> Starlette:
    """Return the application of a separate metrics port, with `/metrics` alone."""
    it = services
    operations = OperationRoutes(it.keys, it.engine, it.store, it.node, it.slices)
    return _app([route for route in routes_of(operations) if route.path == METRICS])


def make_admin_app() -> Starlette:
    """Return the application of a separate dashboard port, with the dashboard's page alone."""
    return _app(admin_pages())


def _app(routes: list[Route]) -> Starlette:
    app = Starlette(
        routes=routes,
        exception_handlers={
            problem.Problem: problem.on_problem,
            Refused: problem.on_refused,
            EngineUnavailable: problem.on_unavailable,
            StoreUnavailable: problem.on_unavailable,
            Unstorable: problem.on_unstorable,
            404: problem.on_not_found,
            500: problem.on_failure,
            405: problem.on_method,
        },
    )
    # A path with an extra slash is unknown: a redirect would contain whatever Host the client sent.
    app.router.redirect_slashes = False
    return app
