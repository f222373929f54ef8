"""Common parts of the fake providers: requests, answers, and faulty behaviour."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, ClassVar, TypeVar

from fake_providers.http1 import Http1
from fake_providers.http2 import Http2
from fake_providers.requests import Answer, Asked, Does
from greendot.clock import Clock, SystemClock
from redis_servers.tls import Certificates


class Played:
    """A fake provider."""

    alpn: ClassVar[list[str]] = ["http/1.1"]  # offered protocols

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or SystemClock()
        self.asked: list[Asked] = []
        self.taken: list[Any] = []  # requests that were accepted, including those whose answer was lost
        self.keys: Counter[str] = Counter()  # of the accepted requests
        self.script: deque[Does] = deque()
        self.behave: Callable[[Asked], Does] = lambda asked: None
        self.connections: set[Any] = set()
        self.connected = 0  # since the start
        self.port = 0

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def now_s(self) -> float:
        return self.clock.now_ms() / 1000

    def does(self, asked: Asked) -> Answer | str:
        self.asked.append(asked)
        found = self.script.popleft() if self.script and self.is_scripted(asked) else self.behave(asked)
        if found == "lost":
            self.real(asked)
        return self.real(asked) if found is None else found

    def is_scripted(self, asked: Asked) -> bool:
        return True

    def real(self, asked: Asked) -> Answer:
        raise NotImplementedError

    def take(self, key: str, what: Any) -> None:
        self.keys[key] += 1
        self.taken.append(what)


class _Either(asyncio.Protocol):
    """Protocol that selects HTTP/2 or HTTP/1.1 by the result of ALPN."""

    def __init__(self, played: Played) -> None:
        self._played = played
        self._chosen: Http1 | Http2 | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        agreed = transport.get_extra_info("ssl_object").selected_alpn_protocol()
        self._chosen = Http2(self._played) if agreed == "h2" else Http1(self._played)
        self._chosen.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        assert self._chosen is not None
        self._chosen.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._chosen is not None:
            self._chosen.connection_lost(exc)


async def until(condition: Callable[[], bool]) -> None:
    """Poll until the condition is true. Raise TimeoutError after 10 s."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


P = TypeVar("P", bound=Played)


@asynccontextmanager
async def playing(played: P, made: Certificates) -> AsyncIterator[P]:
    """Run the provider on loopback with TLS. All connections end with it."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(made.certificate, made.key)
    tls.set_alpn_protocols(played.alpn)
    server = await asyncio.get_running_loop().create_server(lambda: _Either(played), "127.0.0.1", played.port, ssl=tls)
    played.port = server.sockets[0].getsockname()[1]
    try:
        yield played
    finally:
        server.close()
        for connection in [*played.connections]:
            connection.cut()
        await until(lambda: not played.connections)
