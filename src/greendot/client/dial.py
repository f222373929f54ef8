"""Opening a socket so that giving up half-way leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from ssl import SSLContext

from picows import WSInvalidStatusError, WSListener, WSParsedURL, WSTransport, ws_connect

from greendot.client.link import Link
from greendot.protocol.events import Event


async def dial(url: str, ssl: SSLContext | None, receive: Callable[[Event], None]) -> Link:
    """A link to `url`. Raises OSError or picows' WSError; cancelled, it has closed what it opened."""
    opened: list[socket.socket] = []

    async def connect(target: WSParsedURL) -> socket.socket:
        opened.append(await _tcp(target.host, target.port))
        return opened[0]

    task = asyncio.ensure_future(
        ws_connect(
            lambda *_: Link(receive),
            url,
            ssl_context=ssl,
            enable_auto_pong=False,  # picows would keep pings to itself, and they too are signs of life
            websocket_handshake_timeout=None,  # the session bounds the whole attempt
            max_redirects=0,  # the token is for this server, not for one it names
            socket_factory=connect,
        )
    )
    try:
        _, link = await asyncio.shield(task)
    except asyncio.CancelledError:
        await _give_up(task, opened)
        raise
    if not isinstance(link, Link):  # picows' answer to a socket lost during the handshake
        raise ConnectionError("the connection was lost during the WebSocket handshake")
    return link


def retry_after_ms(error: Exception) -> int | None:
    """How long a server that refused the upgrade wishes to be left alone, if it says so in whole seconds."""
    if not isinstance(error, WSInvalidStatusError) or error.response is None:
        return None
    text = error.response.headers.get("Retry-After", "")
    return int(text) * 1000 if text.isascii() and text.isdecimal() and len(text) < 7 else None


async def _give_up(task: asyncio.Future[tuple[WSTransport, WSListener]], opened: list[socket.socket]) -> None:
    # ws_connect, when cancelled during its handshake, leaves the transport open and without an owner.
    # With its socket shut down it ends by itself, and closes the transport on the way.
    if opened:
        with contextlib.suppress(OSError):
            opened[0].shutdown(socket.SHUT_RDWR)
    else:
        task.cancel()
    await asyncio.wait([task])
    if not task.cancelled() and task.exception() is None:
        transport, _ = task.result()
        transport.disconnect(graceful=False)
        await transport.wait_disconnected()


class _Socket(socket.socket):
    """A socket that nobody waits for any more when it is closed.

    A transport of aiofastnet that fails before it reads adds its reader nevertheless, and closes the socket. On uvloop
    that reader would take the events of the next socket with the same number: of any in this process.
    """

    loop: asyncio.AbstractEventLoop

    def close(self) -> None:
        if self.fileno() >= 0 and not self.loop.is_closed():
            with contextlib.suppress(
                NotImplementedError, RuntimeError
            ):  # a loop without readers, or with its own there
                self.loop.remove_reader(self.fileno())
        super().close()


async def _tcp(host: str, port: int) -> socket.socket:
    """A connected socket to the first address of `host` that answers."""
    loop = asyncio.get_running_loop()
    error: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        sock = _Socket(family, kind, protocol)
        sock.loop = loop
        try:
            sock.setblocking(False)
            await loop.sock_connect(sock, address)
        except OSError as refused:
            sock.close()
            error = refused
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise error
