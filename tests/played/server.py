"""What all played providers have in common: requests, answers, and ways to behave badly."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, ClassVar, TypeVar

from greendot.clock import Clock, SystemClock
from played.http1 import Http1
from played.http2 import Http2
from played.requests import Answer, Asked, Does
from redis_servers.tls import Certificates


class Played:
    """A provider."""

    protocol: ClassVar[type[Http1] | type[Http2]] = Http1

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or SystemClock()
        self.asked: list[Asked] = []
        self.taken: list[Any] = []  # what it answered well, or would have
        self.keys: Counter[str] = Counter()  # of what it took
        self.script: deque[Does] = deque()
        self.behave: Callable[[Asked], Does] = lambda asked: None
        self.connections: set[Any] = set()
        self.connected = 0  # ever
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


async def until(condition: Callable[[], bool]) -> None:
    """Something comes soon, if at all."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


P = TypeVar("P", bound=Played)


@asynccontextmanager
async def playing(played: P, made: Certificates) -> AsyncIterator[P]:
    """On loopback, in TLS. It ends with all its connections."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(made.certificate, made.key)
    tls.set_alpn_protocols([played.protocol.alpn])
    server = await asyncio.get_running_loop().create_server(
        lambda: played.protocol(played), "127.0.0.1", played.port, ssl=tls
    )
    played.port = server.sockets[0].getsockname()[1]
    try:
        yield played
    finally:
        server.close()
        for connection in [*played.connections]:
            connection.cut()
        await asyncio.sleep(0)
