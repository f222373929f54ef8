"""The pages that come with the server: files of the package, read once, served as they are."""

from __future__ import annotations

from importlib import resources

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from greendot.api.headers import PAGE

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
SHARED = ("tokens.css", "favicon.svg")  # of the demo, used by the other pages too


def demo_pages() -> list[Route]:
    """The demo, at `/`."""
    return [_page("/" if file.name == "index.html" else f"/{file.name}", file) for file in _files("greendot.web")]


def admin_pages() -> list[Route]:
    """The dashboard, at `/admin`. The page itself is no secret; what it shows is asked for with a key."""
    return _pages_at("/admin", "greendot.web.admin")


def docs_pages() -> list[Route]:
    """The page of the APIs' documents, at `/docs`."""
    return _pages_at("/docs", "greendot.web.docs")


def _pages_at(place: str, package: str) -> list[Route]:
    files = _files(package)
    files += [file for file in _files("greendot.web") if file.name in SHARED]
    return [_page(place if file.name == "index.html" else f"{place}/{file.name}", file) for file in files]


def _page(path: str, file: resources.abc.Traversable) -> Route:
    content, kind = file.read_bytes(), _TYPES["." + file.name.rpartition(".")[2]]

    async def serve(request: Request) -> Response:
        return Response(content, headers=PAGE, media_type=kind)

    return Route(path, serve)


def _files(package: str) -> list[resources.abc.Traversable]:
    return [file for file in resources.files(package).iterdir() if file.name.endswith(tuple(_TYPES))]
