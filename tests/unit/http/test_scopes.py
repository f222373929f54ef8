"""Scopes of routes: every route names the scope it needs, or is listed as open."""

from __future__ import annotations

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from greendot.auth.model import SCOPES, Caller, KeyScope
from greendot.http.scopes import NEEDED, OPEN, UNCOUNTED, guarded
from http_routes import uncalled_app


def served() -> list[str]:
    app = uncalled_app()
    # Files of the page /docs, and of the JavaScript client.
    routes = [route for route in app.routes if not route.path.startswith(("/docs", "/greendot"))]
    return [f"{method} {route.path}" for route in routes for method in route.methods - {"HEAD"}]


def test_every_route_has_exactly_one_scope_or_is_open() -> None:
    names = served()
    assert len(names) == len({*names})
    assert {*names} == OPEN | NEEDED.keys(), "http/scopes.py must list each route with its scope"
    assert not OPEN & NEEDED.keys()


def test_every_scope_opens_something() -> None:
    assert {*NEEDED.values()} | {"admin"} == {*SCOPES, "operator"}


def test_what_is_not_counted_is_served() -> None:
    assert NEEDED.keys() >= UNCOUNTED


async def nothing(request: Request) -> Response:
    return Response()


class Closed:
    async def admit(self, request: Request, scope: KeyScope) -> None:
        raise PermissionError(scope)

    def caller(self, request: Request) -> Caller:
        raise AssertionError("nobody was let in")

    def app_request(self, tenant: str | None, key: str) -> None:
        raise AssertionError("nobody was let in")


def test_a_route_that_names_no_scope_is_not_served() -> None:
    with pytest.raises(KeyError):
        guarded(Route("/v1/forgotten", nothing), Closed(), Closed())
    with pytest.raises(KeyError):
        guarded(Route("/v1/rooms", nothing, methods=["DELETE"]), Closed(), Closed())


async def test_nothing_of_a_request_is_looked_at_before_its_key() -> None:
    route = guarded(Route("/v1/rooms", nothing), Closed(), Closed())
    assert route.methods == {"GET", "HEAD"}
    with pytest.raises(PermissionError, match="rooms:read"):
        await route.endpoint(Request({"type": "http"}))
