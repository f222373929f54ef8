"""How commands look at a running server: by the dashboard's socket, with a key that opens it.

What they show and do is what the dashboard shows and does: one source, one set of rules about who sees what.
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

from greendot.cli._settings import config_option, settings_from, with_dev_key
from greendot.cli._store import on_a_loop
from greendot.cli._terminal import check_reader
from greendot.errors import ConfigError
from greendot.protocol.codes import Close, invites_return
from greendot.protocol.decoding import decode

CONNECT_S = 5.0
ANSWER_S = 10.0
AGAIN_S = 1.0  # between two attempts to find a server that went away
SILENT_S = 5.0  # a server that looks every second and says nothing for so long is not there any more

some_tenant_option = click.option("--tenant", metavar="T", help="Whose. [default: that of the key]")


class Gone(ConfigError):
    """The server does not answer, or does not answer any more: it may come back."""


class Where(NamedTuple):
    """A server, and the key that opens its dashboard."""

    url: str  # http(s)://HOST:PORT
    key: str


def where(url: str | None, config: Path | None) -> Where:
    """The server at `url`, or else the one of the settings on this machine. ConfigError if there is no key for it."""
    settings = with_dev_key(settings_from(config, {}))
    key = settings.admin.key or settings.api.key
    if not key:
        raise ConfigError(
            "there is no key to show to the server: set GREENDOT_ADMIN_KEY to its own, or GREENDOT_API_KEY to one with "
            "the scope admin (a dev server's is found when this is called in its folder: "
            f"{settings.server.data_dir}/ here has none)."
        )
    if url is None:
        port = settings.admin.port or settings.server.port
        url = f"http{'s' if settings.tls.cert else ''}://127.0.0.1:{port}"
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"--url {url!r} must begin with http:// or https://.")
    return Where(url.rstrip("/"), key)


def dashboard_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add --url and --config. The command gets a function that finds the server, to be called when the other arguments
    are checked."""

    @click.option("--url", metavar="URL", help="A server, or its dashboard's port. [default: the one here]")
    @config_option
    @wraps(command)
    def called(url: str | None, config: Path | None, **rest: Any) -> None:
        command(find_server=partial(where, url, config), **rest)

    return called


class Live(WSListener):
    """One look at a server, until its socket ends. Frames that nobody asked for wait to be taken by `next`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.welcome: dict[str, Any] = {}
        self.ahead_ms = 0  # the server's clock, of ours
        self._transport: WSTransport | None = None
        self._frames: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()  # None: it has ended
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._numbers = 0
        self._close: tuple[int, str] | None = None  # what the server said when it closed

    def now_ms(self) -> int:
        """By the server's clock."""
        return round(time.time() * 1000) + self.ahead_ms

    async def hello(self, key: str) -> None:
        self._send({"type": "hello", "key": key})
        welcome = await self.next(ANSWER_S)
        self.welcome, self.ahead_ms = welcome["data"], welcome["ts"] - round(time.time() * 1000)

    async def ask(self, **command: Any) -> dict[str, Any]:
        """The answer; ConfigError with the reason if it was refused. Nothing is said of what is None."""
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
            raise Gone(f"the server at {self.url} does not answer in time.") from None
        finally:
            del self._answers[number]
        if frame["type"] == "error":
            raise ConfigError(f"the server at {self.url} refused it: {frame['message']}.")
        data: dict[str, Any] = frame["data"]
        return data

    async def next(self, within_s: float = SILENT_S) -> dict[str, Any]:
        """The next frame the server sends by itself. Gone if there is none in time, or the socket ended."""
        try:
            async with asyncio.timeout(within_s):
                frame = await self._frames.get()
        except TimeoutError:
            raise Gone(f"the server at {self.url} says nothing any more.") from None
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
            return Gone(f"the server at {self.url} went away.")
        code, reason = self._close
        if code == Close.BAD_TOKEN:
            return ConfigError(f"the server at {self.url} refused the key: {reason}.")
        if invites_return(code) or code < 4000:
            return Gone(f"the server at {self.url} closed the connection: {reason or code}.")
        return ConfigError(f"the server at {self.url} closed the connection: {reason or code}.")

    # --- what picows calls ---

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
                self._close = int(Close.PROTOCOL_VIOLATION), f"a frame cannot be read ({error})"
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
    """A look that was let in. Gone if nobody answers, ConfigError with what to do if it is not for us."""
    live = await _opened(at.url)
    try:
        await live.hello(at.key)
        yield live
    finally:
        live.end()


async def follow(
    at: Where, show: Callable[[Live], Awaitable[None]], has_begun: Callable[[], bool], returned: str = ""
) -> None:
    """Show a server until `show` returns. If the server goes away after something was shown, wait for it."""
    while True:
        try:
            async with open_live(at) as live:
                return await show(live)
        except Gone as gone:
            if not has_begun():
                raise
            click.echo(f"{gone} Waiting for it …", err=True)
            await _back(at)
            if returned:
                click.echo(returned, err=True)


async def _back(at: Where) -> None:
    """Wait for a server that went away, as long as somebody reads what comes of it."""
    while True:
        await asyncio.sleep(AGAIN_S)
        check_reader()
        try:
            async with open_live(at):
                return
        except Gone:
            pass


def piped(work: Awaitable[None]) -> None:
    """Do it until it ends, or whoever reads our output has enough."""
    try:
        on_a_loop(work)
    except BrokenPipeError:
        # What is left in the buffer has nowhere to go, and must not be complained about.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def _opened(url: str) -> Live:
    target = f"ws{url.removeprefix('http')}/admin/live"
    try:
        async with asyncio.timeout(CONNECT_S):
            # No redirect: the key is for this server, not for one it names.
            _, live = await ws_connect(lambda: Live(url), target, max_redirects=0)
    except WSInvalidStatusError as error:
        status = error.response.status if error.response is not None else None
        if status == 404:
            raise ConfigError(
                f"the server at {url} has no dashboard there, which this goes by: set admin.enabled (GREENDOT_ADMIN_"
                "ENABLED=true), or name the port it has for itself with --url."
            ) from None
        raise ConfigError(f"the server at {url} refused the connection: {status}.") from None
    except (OSError, WSError, TimeoutError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error) or "it took too long"
        raise Gone(
            f"no server answers at {url}: {reason}. Start one (greendot serve --dev), or name another with --url."
        ) from None
    if not isinstance(live, Live):  # picows' answer to a socket lost during the handshake
        raise Gone(f"the server at {url} went away.")
    return live
