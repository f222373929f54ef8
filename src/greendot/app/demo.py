"""Demo page, playground, their tokens and their trials.

They are served in dev mode only, where any caller may act as any user. On loopback each program is such a caller. If
other machines reach the server, callers need its gate token (`dev_gate`).
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from greendot.admin.access import NodeView
from greendot.auth.tokens import Tokens
from greendot.clock import Clock
from greendot.engine.port import Engine
from greendot.http.dev_gate import PARAMETER, Gate
from greendot.http.pages import demo_pages, playground_pages
from greendot.http.problem import Problem
from greendot.http.request import Body, check_query, json, read_body
from greendot.ids import ID_RULE, valid_id
from greendot.inbox.service import InboxService
from greendot.protocol.commands import Id
from greendot.store.inbox import Notice
from greendot.store.port import Store

T = TypeVar("T")
TENANT = "default"  # tenant of the tokens


class PostNotify(Body):
    """Body of POST /dev/notify."""

    user: Id
    text: Annotated[str, Meta(min_length=1, max_length=500)]
    sender: Annotated[str, Meta(max_length=200)] | None = None


class PostCut(Body):
    """Body of POST /dev/cut."""

    session: str


class DevPeriods(Struct, frozen=True):
    """Periods in seconds after which watchers see that a user is gone, for the explanations of the demo page."""

    heartbeat_s: float
    dead_after_s: float
    grace_s: float
    clean_grace_s: float
    silent_grace_s: float
    idle_s: float


class Dev(Struct, frozen=True):
    """Parts of a development server."""

    tokens: Tokens
    periods: DevPeriods
    gate: str = ""  # token that callers need; empty: none
    token_ttl_s: float = 12 * 3600


class NewVisitors:
    """Read markers of users whom the server has never seen: they do not get the older messages as unread."""

    def __init__(self, engine: Engine, store: Store) -> None:
        self._engine = engine
        self._store = store

    async def welcome(self, user: str) -> None:
        """Mark the open rooms as read if the user is new."""
        (snapshot,) = await self._engine.read(TENANT, [user])
        if snapshot.own.version or await self._store.last_seen([(TENANT, user)]):
            return
        for it in await self._store.rooms_of(TENANT, user):
            if it.role is None and not it.marker and it.room.head:
                await self._store.put_marker(TENANT, it.room.room, user, it.room.head)


class DevRoutes:
    """Routes of demo and playground, their tokens and trials, open to any caller that passes the gate."""

    def __init__(
        self, clock: Clock, inbox_service: InboxService, node: NodeView, new_visitors: NewVisitors, dev: Dev
    ) -> None:
        self._clock = clock
        self._new_visitors = new_visitors
        self._inbox_service = inbox_service
        self._node = node
        self._dev = dev

    def routes(self) -> list[Route]:
        routes = [
            *demo_pages(),
            *playground_pages(),
            Route("/dev/token", self.token),
            Route("/dev/periods", self.periods),
            Route("/dev/notify", self.notify, methods=["POST"]),
            Route("/dev/cut", self.cut, methods=["POST"]),
        ]
        return [Gate(self._dev.gate).guard(route) for route in routes] if self._dev.gate else routes

    async def token(self, request: Request) -> Response:
        check_query(request, ("user", "name", PARAMETER))
        user, name = request.query_params.get("user", ""), request.query_params.get("name")
        if not valid_id(user):
            raise Problem(400, f"user {user[:64]!r} is not a valid id: {ID_RULE}", code="bad_field")
        await self._new_visitors.welcome(user)
        now = self._clock.now_ms()
        token = self._dev.tokens.make(user, now, self._dev.token_ttl_s, name=(name or user)[:200])
        expires_at = now + round(self._dev.token_ttl_s * 1000)
        return json({"token": token, "user": user, "expires_at": expires_at})

    async def periods(self, request: Request) -> Response:
        return json(self._dev.periods)

    async def notify(self, request: Request) -> Response:
        """Create a notification as an app's backend would, to try the inbox."""
        given = await _asked_by_the_page(request, PostNotify)
        body = msgspec.json.encode({"text": given.text, "from": given.sender})
        now = self._clock.now_ms()
        (made,) = await self._inbox_service.notify([Notice(TENANT, given.user, "demo", body, "", now, None)])
        return json({"id": made and made.notification.id}, 201)

    async def cut(self, request: Request) -> Response:
        """Abort a session's connection, as a broken network does: a page can only close it cleanly."""
        given = await _asked_by_the_page(request, PostCut)
        if not self._node.cut(given.session):
            raise Problem(404, "no such session is connected to this node")
        return Response(status_code=204)


async def _asked_by_the_page(request: Request, kind: type[T]) -> T:
    """Return the body. Raise Problem unless its type is JSON.

    Pages of other sites cannot send this type without a preflight request, which is refused.
    """
    if request.headers.get("content-type") != "application/json":
        raise Problem(415, "send JSON: Content-Type: application/json")
    return await read_body(request, kind)
