"""What a key must have the scope of, for each route. One that is missing here cannot be served."""

from __future__ import annotations

from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from greendot.auth.model import Caller, KeyScope

OPEN = {
    "GET /livez",
    "GET /readyz",
    "GET /metrics",
    "GET /openapi.json",  # the same for everybody, and published with the source
    "GET /asyncapi.json",
    "GET /v1/connect",  # for clients, who show a token
}
NEEDED: dict[str, KeyScope] = {
    "POST /v1/presence/query": "presence:read",
    "GET /v1/presence/online": "presence:read",
    "GET /v1/users/{user}/presence": "presence:read",
    "GET /v1/users/{user}/sessions": "sessions",
    "DELETE /v1/sessions/{session}": "sessions",
    "POST /v1/tokens/revoke": "sessions",
    "PUT /v1/users/{user}/status": "users:write",
    "PUT /v1/users/{user}/contacts/{other}": "users:write",
    "DELETE /v1/users/{user}/contacts/{other}": "users:write",
    "GET /v1/users/{user}/devices": "users:write",
    "PUT /v1/users/{user}/devices/{device}": "users:write",
    "DELETE /v1/users/{user}/devices/{device}": "users:write",
    "GET /v1/users/{user}/push": "users:write",
    "PUT /v1/users/{user}/push": "users:write",
    "GET /v1/rooms": "rooms:read",
    "GET /v1/rooms/{room}": "rooms:read",
    "PUT /v1/rooms/{room}": "rooms:write",
    "GET /v1/rooms/{room}/members": "rooms:read",
    "PUT /v1/rooms/{room}/members/{user}": "rooms:write",
    "DELETE /v1/rooms/{room}/members/{user}": "rooms:write",
    "GET /v1/rooms/{room}/present": "rooms:read",
    "GET /v1/rooms/{room}/typing": "rooms:read",
    "GET /v1/rooms/{room}/messages": "rooms:read",
    "POST /v1/rooms/{room}/messages": "rooms:write",
    "POST /v1/notifications": "notify",
    "GET /v1/users/{user}/inbox": "notify",
    "POST /v1/signals": "signals",
    "GET /v1/stats": "stats:read",
    "GET /v1/nodes": "operator",
}


# Not counted among a key's requests: they have limits of their own, or take something away from somebody, and that must
# not have to wait because somebody else reads much.
UNCOUNTED = {
    "POST /v1/rooms/{room}/messages",
    "POST /v1/notifications",
    "POST /v1/signals",
    "DELETE /v1/users/{user}/contacts/{other}",
    "DELETE /v1/users/{user}/devices/{device}",
    "DELETE /v1/rooms/{room}/members/{user}",
    "DELETE /v1/sessions/{session}",
    "POST /v1/tokens/revoke",
}


class Guard(Protocol):
    """Who lets requests in."""

    async def admit(self, request: Request, scope: KeyScope) -> None:
        """Problem unless the request carries a key with the scope."""
        ...

    def caller(self, request: Request) -> Caller:
        """Who asks, once it is let in."""
        ...


class Meter(Protocol):
    """Who counts requests. Refused (`rate_limited`) if there are too many."""

    def app_request(self, tenant: str | None, key: str) -> None: ...


def guarded(route: Route, guard: Guard, meter: Meter) -> Route:
    """The route as it is served: nothing of a request is looked at before its key."""
    (method,) = (route.methods or set()) - {"HEAD"}
    name = f"{method} {route.path}"
    if name in OPEN:
        return route
    scope, endpoint, is_counted = NEEDED[name], route.endpoint, name not in UNCOUNTED

    async def checked(request: Request) -> Response:
        await guard.admit(request, scope)
        if is_counted:
            caller = guard.caller(request)
            meter.app_request(caller.tenant, caller.name)
        answer: Response = await endpoint(request)
        return answer

    return Route(route.path, checked, methods=[method])
