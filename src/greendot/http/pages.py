"""Web pages of the server: files of the package, read once and served unchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from greendot.http.client_files import FILES, WEB

# API answers are not pages. A browser that renders one as a page must be able to do nothing with it.
COMMON = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)
# A page uses only its own files: no inline scripts or styles, no other server, no frame around it.
PAGE = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-cache",
}


class Headers:
    """ASGI application that adds common headers to all answers, including those about its own failures.

    While `is_ending` returns True, each answer is the last on its connection. Clients then connect to another server.
    """

    def __init__(self, app: ASGIApp, is_ending: Callable[[], bool] = lambda: False) -> None:
        self._app = app
        self._is_ending = is_ending

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = message.get("headers", [])
                names = {name for name, _ in own}
                message["headers"] = [*own, *(header for header in COMMON if header[0] not in names)]
                if self._is_ending():
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        await self._app(scope, receive, send_with_headers)


_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
SHARED = ("tokens.css", "favicon.svg")  # files of the demo that other pages use too
READERS = ("dom.js", "schema.js")  # files of the API documentation that the playground uses too


def demo_pages() -> list[Route]:
    """Return the routes of the demo, at `/`, without those of the client."""
    own = [file for file in _files(WEB) if file.name not in FILES]
    return [_page("/" if file.name == "index.html" else f"/{file.name}", file) for file in own]


def admin_pages() -> list[Route]:
    """Return the routes of the dashboard, at `/admin`. The page is public; its data requires a key."""
    return _pages_at("/admin", WEB / "admin")


def docs_pages() -> list[Route]:
    """Return the routes of the API documentation, at `/docs`."""
    return _pages_at("/docs", WEB / "docs")


def playground_pages() -> list[Route]:
    """Return the routes of the playground, at `/playground`. The page reads schemas as the API documentation does."""
    return _pages_at("/playground", WEB / "playground", [WEB / "docs" / name for name in READERS])


def _pages_at(place: str, folder: Path, more: Sequence[Path] = ()) -> list[Route]:
    files = [*_files(folder), *more]
    files += [file for file in _files(WEB) if file.name in SHARED]
    return [_page(place if file.name == "index.html" else f"{place}/{file.name}", file) for file in files]


def _page(path: str, file: Path) -> Route:
    content, kind = file.read_bytes(), _TYPES[file.suffix]

    async def serve(request: Request) -> Response:
        return Response(content, headers=PAGE, media_type=kind)

    return Route(path, serve)


def _files(folder: Path) -> list[Path]:
    return [file for file in folder.iterdir() if file.suffix in _TYPES]
