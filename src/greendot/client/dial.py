"""Opening of a socket; a cancelled attempt leaves nothing open."""

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
    """Open a link to `url`. Raise OSError or picows' WSError. A cancelled call closes what it opened."""
    opened: list[socket.socket] = []

    async def connect(target: WSParsedURL) -> socket.socket:
        opened.append(await _tcp(target.host, target.port))
        return opened[0]

    task = asyncio.ensure_future(
        ws_connect(
            lambda *_: Link(receive),
            url,
            ssl_context=ssl,
            enable_auto_pong=False,  # picows would hide pings, and a ping is a sign of life
            websocket_handshake_timeout=None,  # the session bounds the whole attempt
            max_redirects=0,  # the token is only for this server
            socket_factory=connect,
        )
    )
    try:
        _, link = await asyncio.shield(task)
    except asyncio.CancelledError:
        await _give_up(task, opened)
        raise
    if not isinstance(link, Link):  # result of picows if the socket is lost during the handshake
        raise ConnectionError("the connection was lost during the WebSocket handshake")
    return link


def retry_after_ms(error: Exception) -> int | None:
    """Return the Retry-After of a refused upgrade in ms; None if it is not given in whole seconds."""
    if not isinstance(error, WSInvalidStatusError) or error.response is None:
        return None
    text = error.response.headers.get("Retry-After", "")
    return int(text) * 1000 if text.isascii() and text.isdecimal() and len(text) < 7 else None


async def _give_up(task: asyncio.Future[tuple[WSTransport, WSListener]], opened: list[socket.socket]) -> None:
    # A ws_connect that is cancelled during its handshake leaves the transport open and without an owner. After a
    # shutdown of the socket, ws_connect ends by itself and closes the transport.
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
    """Socket that removes its reader from the event loop when it is closed.

    An aiofastnet transport that fails before it reads still adds its reader, and closes the socket. On uvloop the
    reader would take the events of the next socket in this process with the same file descriptor.
    """

    loop: asyncio.AbstractEventLoop

    def close(self) -> None:
        if self.fileno() >= 0 and not self.loop.is_closed():
            with contextlib.suppress(
                NotImplementedError, RuntimeError
            ):  # a loop without readers, or with its own for the socket
                self.loop.remove_reader(self.fileno())
        super().close()


async def _tcp(host: str, port: int) -> socket.socket:
    """Connect to the first address of `host` that accepts; raise the last error if none does."""
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
