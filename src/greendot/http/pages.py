"""The pages that come with the server: files of the package, read once, served as they are."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from greendot.http.headers import PAGE

WEB = Path(__file__).parents[1] / "web"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
SHARED = ("tokens.css", "favicon.svg")  # of the demo, used by the other pages too


def demo_pages() -> list[Route]:
    """The demo, at `/`."""
    return [_page("/" if file.name == "index.html" else f"/{file.name}", file) for file in _files(WEB)]


def admin_pages() -> list[Route]:
    """The dashboard, at `/admin`. The page itself is no secret; what it shows is asked for with a key."""
    return _pages_at("/admin", WEB / "admin")


def docs_pages() -> list[Route]:
    """The page of the APIs' documents, at `/docs`."""
    return _pages_at("/docs", WEB / "docs")


def _pages_at(place: str, folder: Path) -> list[Route]:
    files = _files(folder)
    files += [file for file in _files(WEB) if file.name in SHARED]
    return [_page(place if file.name == "index.html" else f"{place}/{file.name}", file) for file in files]


def _page(path: str, file: Path) -> Route:
    content, kind = file.read_bytes(), _TYPES[file.suffix]

    async def serve(request: Request) -> Response:
        return Response(content, headers=PAGE, media_type=kind)

    return Route(path, serve)


def _files(folder: Path) -> list[Path]:
    return [file for file in folder.iterdir() if file.suffix in _TYPES]
