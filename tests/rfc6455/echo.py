"""Echo end for conformance suites: a real server with one more port, whose WebSocket sends each message back.

Listener, handshake, framing, send buffer and closing are those of the product. Only the handling of a message differs.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import uvloop

from greendot.app.server import Greendot
from greendot.config import Settings
from greendot.node.session import Connection
from greendot.protocol.codec import text_frame
from greendot.testing.server import API_KEY, SECRET
from greendot.transport import frame_model, websocket
from greendot.transport.listener import Listener
from greendot.transport.upgrade import ForeignRequest, ForeignSocket, SocketRoute

PATH = b"/echo"


class EchoConnection(Connection):
    """Connection of a client whose messages are sent back."""

    __slots__ = ()

    def on_text(self, text: str) -> None:
        self.send(text_frame(text.encode()))


class LimitlessConnection(EchoConnection):
    """Connection without the limits of the product: binary messages are sent back, and fragments are not counted."""

    __slots__ = ()

    def on_connected(self) -> None:
        super().on_connected()
        self._owner.cancel_timer(self.timer)  # the time for a hello

    def on_binary(self, payload: bytes) -> None:
        self.send(b"\x82" + text_frame(payload)[1:])

    def on_counted(self) -> bool:
        return True


def lift_limits() -> None:
    """Allow messages of 16 MiB in this process."""
    for module in (frame_model, websocket):
        setattr(module, "MAX_FRAME", 2**24)  # noqa: B010  (mypy refuses to change a constant)


def _settings() -> Settings:
    settings = Settings()
    sections = {
        "store": {"url": "sqlite:///:memory:"},
        "auth": {"secret": SECRET},
        "api": {"key": API_KEY},
        "server": {"host": "127.0.0.1", "port": 0, "drain_s": 0.1},
        "limits": {"enabled": False},  # a suite sends faster than a client may
    }
    changed = {name: msgspec.structs.replace(getattr(settings, name), **values) for name, values in sections.items()}
    return msgspec.structs.replace(settings, **changed)


@asynccontextmanager
async def echoing(kind: type[EchoConnection] = EchoConnection) -> AsyncIterator[tuple[int, int]]:
    """Run the server; yield the port of the echo, and that of the server itself."""
    greendot = Greendot(_settings())
    await greendot.start()
    connections = greendot.node.connections

    def connect(request: ForeignRequest) -> ForeignSocket:
        return ForeignSocket(kind(connections, connections.new_id()))

    echo = Listener(connections, None, routes=[SocketRoute(PATH, connect)])
    try:
        await echo.start("127.0.0.1", 0)
        yield echo.port, greendot.server.port
    finally:
        await echo.close()
        await greendot.stop()


async def main() -> None:
    """Serve until standard input ends."""
    async with echoing() as ports:
        print(*ports, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(main())
