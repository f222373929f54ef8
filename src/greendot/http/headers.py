"""Headers that every answer has: what browsers must not do with it."""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Nothing an API answers is a page. One that a browser shows all the same can do nothing.
COMMON = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)
# All a page has is its own files: no inline scripts or styles, no other server, no frame around it.
PAGE = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-cache",
}


class Headers:
    """An application whose answers have them, those about its own failures too.

    While `is_ending` says so, each is the last on its connection: whoever keeps one open asks another server next time.
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
