"""Scope that each route requires of an API key. A route that is missing here cannot be served."""

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
    "GET /openapi.json",  # identical for all callers, and published with the source
    "GET /asyncapi.json",
    "GET /v1/connect",  # for clients, which authenticate with a token
    "GET /v1/events",
    "POST /v1/events/{stream}",
}
NEEDED: dict[str, KeyScope] = {
    "POST /v1/presence/query": "presence:read",
    "GET /v1/presence/online": "presence:read",
    "GET /v1/users/{user}/presence": "presence:read",
    "GET /v1/users/{user}/presence/mode": "presence:read",
    "PUT /v1/users/{user}/presence/mode": "users:write",
    "DELETE /v1/users/{user}/presence/mode": "users:write",
    "GET /v1/users/{user}/sessions": "sessions",
    "DELETE /v1/sessions/{session}": "sessions",
    "POST /v1/tokens/revoke": "sessions",
    "PUT /v1/users/{user}/status": "users:write",
    "GET /v1/users/{user}/info": "presence:read",
    "PUT /v1/users/{user}/info": "users:write",
    "DELETE /v1/users/{user}/info": "users:write",
    "PUT /v1/users/{user}/contacts/{other}": "users:write",
    "DELETE /v1/users/{user}/contacts/{other}": "users:write",
    "GET /v1/users/{user}/devices": "users:write",
    "PUT /v1/users/{user}/devices/{device}": "users:write",
    "DELETE /v1/users/{user}/devices/{device}": "users:write",
    "GET /v1/users/{user}/push": "users:write",
    "PUT /v1/users/{user}/push": "users:write",
    "GET /v1/push/key": "users:write",
    "GET /v1/rooms": "rooms:read",
    "GET /v1/rooms/{room}": "rooms:read",
    "PUT /v1/rooms/{room}": "rooms:write",
    "GET /v1/rooms/{room}/members": "rooms:read",
    "PUT /v1/rooms/{room}/members/{user}": "rooms:write",
    "DELETE /v1/rooms/{room}/members/{user}": "rooms:write",
    "GET /v1/rooms/{room}/present": "rooms:read",
    "GET /v1/rooms/{room}/receipts": "rooms:read",
    "GET /v1/rooms/{room}/typing": "rooms:read",
    "GET /v1/rooms/{room}/messages": "rooms:read",
    "POST /v1/rooms/{room}/messages": "rooms:write",
    "PUT /v1/rooms/{room}/messages/{seq}/reactions/{reaction}": "rooms:write",
    "DELETE /v1/rooms/{room}/messages/{seq}/reactions/{reaction}": "rooms:write",
    "PATCH /v1/rooms/{room}/messages/{seq}": "rooms:write",
    "DELETE /v1/rooms/{room}/messages/{seq}": "rooms:write",
    "GET /v1/audit": "rooms:read",
    "GET /v1/rooms/{room}/mutes": "rooms:read",
    "PUT /v1/rooms/{room}/mutes/{user}": "rooms:write",
    "DELETE /v1/rooms/{room}/mutes/{user}": "rooms:write",
    "GET /v1/rooms/{room}/bans": "rooms:read",
    "PUT /v1/rooms/{room}/bans/{user}": "rooms:write",
    "DELETE /v1/rooms/{room}/bans/{user}": "rooms:write",
    "GET /v1/mutes": "rooms:read",
    "PUT /v1/mutes/{user}": "rooms:write",
    "DELETE /v1/mutes/{user}": "rooms:write",
    "GET /v1/bans": "rooms:read",
    "PUT /v1/bans/{user}": "sessions",
    "DELETE /v1/bans/{user}": "sessions",
    "POST /v1/notifications": "notify",
    "GET /v1/users/{user}/inbox": "notify",
    "POST /v1/signals": "signals",
    "DELETE /v1/rooms/{room}": "rooms:write",
    "GET /v1/stats": "stats:read",
    "GET /v1/nodes": "operator",
}


# Not counted against a key's rate limit. Some have limits of their own. The rest remove access or data, and must not
# wait because another caller reads much.
UNCOUNTED = {
    "DELETE /v1/users/{user}/info",
    "POST /v1/rooms/{room}/messages",
    "PUT /v1/rooms/{room}/messages/{seq}/reactions/{reaction}",
    "DELETE /v1/rooms/{room}/messages/{seq}/reactions/{reaction}",
    "PATCH /v1/rooms/{room}/messages/{seq}",
    "DELETE /v1/rooms/{room}/messages/{seq}",
    "DELETE /v1/rooms/{room}",
    "POST /v1/notifications",
    "POST /v1/signals",
    "DELETE /v1/users/{user}/contacts/{other}",
    "DELETE /v1/users/{user}/devices/{device}",
    "DELETE /v1/rooms/{room}/members/{user}",
    "PUT /v1/rooms/{room}/mutes/{user}",
    "PUT /v1/rooms/{room}/bans/{user}",
    "PUT /v1/mutes/{user}",
    "PUT /v1/bans/{user}",
    "DELETE /v1/sessions/{session}",
    "POST /v1/tokens/revoke",
}


class Guard(Protocol):
    """Authentication of API requests."""

    async def admit(self, request: Request, scope: KeyScope) -> None:
        """Raise Problem unless the request carries a key with the scope."""
        ...

    def caller(self, request: Request) -> Caller:
        """Return the caller of an admitted request."""
        ...


class Meter(Protocol):
    """Rate limit of API requests. Raises Refused (`rate_limited`) above the limit."""

    def app_request(self, tenant: str | None, key: str) -> None: ...


def guarded(route: Route, guard: Guard, meter: Meter) -> Route:
    """Return the route with its checks: the key is checked before anything else of the request is read."""
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
