"""Files of the JavaScript client, which every server serves: one script tag is the installation."""

from __future__ import annotations

import gzip
from hashlib import sha256
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from greendot import __version__
from greendot.http.problem import Problem

WEB = Path(__file__).parents[1] / "web"
SCRIPT = "text/javascript; charset=utf-8"
FILES = {
    "greendot.js": SCRIPT,
    "greendot.js.map": "application/json",
    "greendot.d.ts": "application/typescript; charset=utf-8",
    "greendot-push.js": SCRIPT,
    "greendot-sse.js": SCRIPT,
    "greendot-sw.js": SCRIPT,
}
LATEST = "no-cache"  # browsers keep the file, and ask before each use whether it has changed
PINNED = "public, max-age=31536000, immutable"
COMMON = {
    # Pages of all origins may load the files. They are public, and contain no data of users.
    "Access-Control-Allow-Origin": "*",
    "Cross-Origin-Resource-Policy": "cross-origin",
    "Vary": "Accept-Encoding",
}


class ClientFile:
    """One file with its entity tags, plain and compressed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._plain = (WEB / name).read_bytes()
        self._tag = sha256(self._plain).hexdigest()[:32]
        self._packed: bytes | None = None

    def answer(self, request: Request, caching: str) -> Response:
        """Return the file, or 304 if the client has it."""
        packs = _accepts_gzip(request.headers.get("accept-encoding", ""))
        # The compressed file is another representation, so it has a tag of its own (RFC 9110, 8.8.3).
        tag = f'"{self._tag}-gzip"' if packs else f'"{self._tag}"'
        headers = COMMON | {"Cache-Control": caching, "ETag": tag}
        if self.name == "greendot.js":
            headers["X-TypeScript-Types"] = "./greendot.d.ts"  # Deno and editors find the types by it
        if _names(request.headers.get("if-none-match", ""), tag):
            return Response(status_code=304, headers=headers)
        if packs:
            headers["Content-Encoding"] = "gzip"
        return Response(self._gzip() if packs else self._plain, headers=headers, media_type=FILES[self.name])

    def _gzip(self) -> bytes:
        """Return the compressed file. It is compressed at its first request: many servers are never asked for it."""
        if self._packed is None:
            self._packed = gzip.compress(self._plain, 6, mtime=0)
        return self._packed


def client_routes() -> list[Route]:
    """Return the routes of the client: `/greendot.js`, and `/greendot/VERSION/greendot.js`, which never changes."""
    files = {name: ClientFile(name) for name in FILES}

    async def latest(request: Request) -> Response:
        return files[request.url.path.removeprefix("/")].answer(request, LATEST)

    async def pinned(request: Request) -> Response:
        version, name = request.path_params["version"], request.path_params["name"]
        if name not in files:
            raise Problem(404, f"the client has no file {name[:64]!r}; it has {', '.join(FILES)}")
        if version != __version__:
            raise Problem(
                404,
                f"this server has version {__version__} of the client, not {version[:64]}; use "
                f"/greendot/{__version__}/{name}, or /{name} for the version of the server",
            )
        return files[name].answer(request, PINNED)

    return [
        *(Route(f"/{name}", latest) for name in FILES),
        Route("/greendot/{version}/{name}", pinned),
    ]


def _accepts_gzip(header: str) -> bool:
    for part in header.lower().split(","):
        name, _, parameter = part.partition(";")
        if name.strip() == "gzip":
            return parameter.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def _names(header: str, tag: str) -> bool:
    """Return whether If-None-Match has this tag. The comparison is weak, because proxies weaken tags."""
    return any(each.strip().removeprefix("W/") in (tag, "*") for each in header.split(","))
