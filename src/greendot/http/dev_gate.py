"""Gate of a development server that other machines can reach: its demo and its tokens require a printed token."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from greendot.http.problem import Problem

PARAMETER = "gate"
COOKIE = "greendot_gate"
PAGES = ("/", "/playground")  # opened with the token, they keep it as a cookie
Endpoint = Callable[[Request], Awaitable[Response]]


class Gate:
    """Check of the gate token, which a request has in its query, its cookie or as a bearer token."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    def guard(self, route: Route) -> Route:
        """Return the route behind the gate. A page that is opened with the token gets it as a cookie."""
        endpoint: Endpoint = route.endpoint

        async def behind(request: Request) -> Response:
            if not any(map(self._is_token, _tokens(request))):
                raise Problem(
                    401,
                    "this development server requires its gate token: open /?gate=TOKEN with the token that the server "
                    "printed when it started, or send it as `Authorization: Bearer TOKEN`",
                )
            if request.url.path in PAGES and PARAMETER in request.query_params:
                return self._entered(request)
            return await endpoint(request)

        return Route(route.path, behind, methods=route.methods)

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._token)

    def _entered(self, request: Request) -> Response:
        """Return the way to the same page without the token, so that the token is not in bookmarks and screenshots."""
        rest = [(name, value) for name, value in request.query_params.multi_items() if name != PARAMETER]
        path = request.url.path
        answer = Response(status_code=303, headers={"Location": f"{path}?{urlencode(rest)}" if rest else path})
        secure = request.url.scheme == "https"
        answer.set_cookie(COOKIE, self._token.decode(), httponly=True, samesite="lax", secure=secure)
        return answer


def _tokens(request: Request) -> list[str]:
    kind, _, bearer = request.headers.get("authorization", "").partition(" ")
    return [
        request.query_params.get(PARAMETER, ""),
        request.cookies.get(COOKIE, ""),
        bearer.strip() if kind.lower() == "bearer" else "",
    ]
