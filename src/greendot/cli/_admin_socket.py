"""Client of the dashboard's socket, through which commands observe a running server. The socket needs a key.

Commands show and do the same as the dashboard, under the same access rules.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial, wraps
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec
from picows import WSError, WSFrame, WSInvalidStatusError, WSListener, WSMsgType, WSTransport, ws_connect

from greendot.cli._http import check_url
from greendot.cli._settings import config_option, settings_from, with_dev_key
from greendot.cli._store import on_a_loop
from greendot.cli._terminal import check_reader
from greendot.errors import ConfigError
from greendot.protocol.codes import Close, invites_return
from greendot.protocol.decoding import decode

CONNECT_S = 5.0
ANSWER_S = 10.0
AGAIN_S = 1.0  # between two attempts to reach a server that went away
SILENT_S = 5.0  # without a frame: the server is gone, because it sends a sample every second

some_tenant_option = click.option("--tenant", metavar="T", help="Tenant. [default: the tenant of the key]")


class Gone(ConfigError):
    """Error of a server that does not answer, or no longer does. The server may come back."""


class Where(NamedTuple):
    """Server, and the key for its dashboard."""

    url: str  # http(s)://HOST:PORT
    key: str


def where(url: str | None, config: Path | None) -> Where:
    """Return the server at `url`, else the one of the settings on this machine. Raise ConfigError without a key."""
    settings = with_dev_key(settings_from(config, {}))
    key = settings.admin.key or settings.api.key
    if not key:
        raise ConfigError(
            "no key for the server's dashboard found. Set GREENDOT_ADMIN_KEY to the server's admin key, or "
            "GREENDOT_API_KEY to a key with scope admin. For a dev server, run this command in its working directory: "
            f"there is no key in {settings.server.data_dir}."
        )
    if url is None:
        port = settings.admin.port or settings.server.port
        url = f"http{'s' if settings.tls.cert else ''}://127.0.0.1:{port}"
    return Where(check_url(url), key)


def dashboard_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add --url and --config. The command gets `find_server`, to call after it has checked its other arguments."""

    @click.option(
        "--url",
        metavar="URL",
        help="Address of the server, with admin.port if that is set. [default: the server on this machine]",
    )
    @config_option
    @wraps(command)
    def called(url: str | None, config: Path | None, **rest: Any) -> None:
        command(find_server=partial(where, url, config), **rest)

    return called


class Live(WSListener):
    """Connection to a server's dashboard socket. Frames that answer no request are queued for `next`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.welcome: dict[str, Any] = {}
        self.ahead_ms = 0  # lead of the server's clock over ours
        self._transport: WSTransport | None = None
        self._frames: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()  # None: the socket has ended
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._numbers = 0
        self._close: tuple[int, str] | None = None  # code and reason of the server's close frame

    def now_ms(self) -> int:
        """Return the time by the server's clock."""
        return round(time.time() * 1000) + self.ahead_ms

    async def hello(self, key: str) -> None:
        self._send({"type": "hello", "key": key})
        welcome = await self.next(ANSWER_S)
        self.welcome, self.ahead_ms = welcome["data"], welcome["ts"] - round(time.time() * 1000)

    async def ask(self, **command: Any) -> dict[str, Any]:
        """Send a request and return the answer. Parameters that are None are left out.

        Raise ConfigError with the reason if the server refuses, Gone if it does not answer in time.
        """
        if self._transport is None:
            raise self._why()
        self._numbers += 1
        number = self._numbers
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self._send({name: it for name, it in command.items() if it is not None} | {"id": number})
        try:
            async with asyncio.timeout(ANSWER_S):
                frame = await answer
        except TimeoutError:
            raise Gone(f"the server at {self.url} did not answer in time.") from None
        finally:
            del self._answers[number]
        if frame["type"] == "error":
            raise ConfigError(f"the server at {self.url} refused the request: {frame['message']}.")
        data: dict[str, Any] = frame["data"]
        return data

    async def next(self, within_s: float = SILENT_S) -> dict[str, Any]:
        """Return the next frame that answers no request.

        Raise Gone if none comes in time or the socket has ended, ConfigError if the server closed the socket for good.
        """
        try:
            async with asyncio.timeout(within_s):
                frame = await self._frames.get()
        except TimeoutError:
            raise Gone(f"the server at {self.url} stopped sending.") from None
        if frame is None:
            raise self._why()
        return frame

    def end(self) -> None:
        if self._transport is not None:
            self._transport.disconnect(graceful=False)

    def _send(self, command: dict[str, Any]) -> None:
        if self._transport is not None:
            self._transport.send(WSMsgType.TEXT, msgspec.json.encode(command))

    def _why(self) -> ConfigError:
        if self._close is None:
            return Gone(f"connection to {self.url} lost.")
        code, reason = self._close
        if code == Close.BAD_TOKEN:
            return ConfigError(f"the server at {self.url} refused the key: {reason}.")
        if invites_return(code) or code < 4000:
            return Gone(f"the server at {self.url} closed the connection: {reason or code}.")
        return ConfigError(f"the server at {self.url} closed the connection: {reason or code}.")

    # --- callbacks of picows ---

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        payload = frame.get_payload_as_bytes()
        if frame.msg_type == WSMsgType.CLOSE:
            code = int.from_bytes(payload[:2], "big") if len(payload) >= 2 else 1005
            self._close = code, payload[2:].decode(errors="replace")
            transport.disconnect()
        elif frame.msg_type == WSMsgType.TEXT:
            try:
                said: dict[str, Any] = decode(payload, dict)
            except msgspec.DecodeError as error:
                self._close = int(Close.PROTOCOL_VIOLATION), f"a frame cannot be decoded ({error})"
                transport.disconnect(False)
                return
            if (answer := self._answers.get(said.get("id", 0))) is not None and not answer.done():
                answer.set_result(said)
            elif "id" not in said:
                self._frames.put_nowait(said)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self._transport = None
        self._frames.put_nowait(None)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(self._why())


@asynccontextmanager
async def open_live(at: Where) -> AsyncIterator[Live]:
    """Open a dashboard socket and log in. Raise Gone if no server answers, ConfigError with what to do on refusal."""
    live = await _opened(at.url)
    try:
        await live.hello(at.key)
        yield live
    finally:
        live.end()


async def follow(
    at: Where, show: Callable[[Live], Awaitable[None]], has_begun: Callable[[], bool], returned: str = ""
) -> None:
    """Call `show` with a connection until it returns.

    If the server goes away after `has_begun`, wait for it, print `returned` and call `show` again. If the server goes
    away earlier, raise Gone.
    """
    while True:
        try:
            async with open_live(at) as live:
                return await show(live)
        except Gone as gone:
            if not has_begun():
                raise
            click.echo(f"{gone} Waiting for the server …", err=True)
            await _back(at)
            if returned:
                click.echo(returned, err=True)


async def _back(at: Where) -> None:
    """Wait until a server that went away is back. Raise BrokenPipeError when our output has no reader any more."""
    while True:
        await asyncio.sleep(AGAIN_S)
        check_reader()
        try:
            async with open_live(at):
                return
        except Gone:
            pass


def piped(work: Awaitable[None]) -> None:
    """Run `work` until it ends, or until the reader of our output closes the pipe."""
    try:
        on_a_loop(work)
    except BrokenPipeError:
        # Discard the rest of the buffer: Python would report the broken pipe at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def _opened(url: str) -> Live:
    target = f"ws{url.removeprefix('http')}/admin/live"
    try:
        async with asyncio.timeout(CONNECT_S):
            # No redirect: the key is for this server only.
            _, live = await ws_connect(lambda: Live(url), target, max_redirects=0)
    except WSInvalidStatusError as error:
        status = error.response.status if error.response is not None else None
        if status == 404:
            raise ConfigError(
                f"the server at {url} has no dashboard at this address, and this command needs it. Set admin.enabled "
                "(GREENDOT_ADMIN_ENABLED=true), or give the dashboard's own port with --url."
            ) from None
        raise ConfigError(f"the server at {url} refused the connection: {status}.") from None
    except (OSError, WSError, TimeoutError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error) or "it timed out"
        raise Gone(
            f"no server answers at {url}: {reason}. Start one (greendot serve --dev), or choose another with --url."
        ) from None
    if not isinstance(live, Live):  # the result of picows for a socket lost during the handshake
        raise Gone(f"connection to {url} lost.")
    return live
