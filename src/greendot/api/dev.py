"""The demo page and its tokens. Only in dev mode, where everybody who reaches the server may be anybody."""

from __future__ import annotations

from importlib import resources

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from greendot.api.backend import Backend, Dev
from greendot.api.headers import PAGE
from greendot.api.problem import Problem
from greendot.api.request import json
from greendot.ids import ID_RULE, valid_id

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}


class DevRoutes:
    """The demo page and tokens for whoever asks: loopback and development only."""

    def __init__(self, backend: Backend, dev: Dev) -> None:
        self._backend = backend
        self._dev = dev

    def routes(self) -> list[Route]:
        pages = [self._page(file.name, file.read_bytes()) for file in _files()]
        return [*pages, Route("/dev/token", self.token)]

    async def token(self, request: Request) -> Response:
        user, name = request.query_params.get("user", ""), request.query_params.get("name")
        if not valid_id(user):
            raise Problem(400, f"user {user[:64]!r} is not a valid id: {ID_RULE}", code="bad_field")
        now = self._backend.clock.now_ms()
        token = self._dev.tokens.make(user, now, self._dev.token_ttl_s, name=(name or user)[:200])
        expires_at = now + round(self._dev.token_ttl_s * 1000)
        return json({"token": token, "user": user, "expires_at": expires_at})

    @staticmethod
    def _page(name: str, content: bytes) -> Route:
        kind = _TYPES["." + name.rpartition(".")[2]]

        async def serve(request: Request) -> Response:
            return Response(content, headers=PAGE, media_type=kind)

        return Route("/" if name == "index.html" else f"/{name}", serve)


def _files() -> list[resources.abc.Traversable]:
    return [file for file in resources.files("greendot.web").iterdir() if file.name.endswith(tuple(_TYPES))]
