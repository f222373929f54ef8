"""Command `greendot top`: load and rates of all nodes, live in the terminal."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from time import monotonic
from typing import Any

import click
import msgspec

from greendot.cli._admin_socket import AGAIN_S, Gone, Live, Where, dashboard_options, follow, open_live, piped
from greendot.cli._store import on_a_loop
from greendot.cli._tables import printable
from greendot.cli._terminal import Terminal, check_reader, is_terminal, size
from greendot.cli.top_view import SORTS, Shown, laid_out

MOST = 20  # hot topics, and as many slow clients
READY = 3  # samples after which rates and hot topics are known
KEYS = "q quit  p pause  s sort"


@click.command()
@click.option("--once", is_flag=True, help="Print one sample, of the last second, and exit.")
@click.option("--every", type=click.IntRange(1, 3600), default=1, show_default=True, help="Seconds between samples.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per sample, for programs.")
@dashboard_options
def top(once: bool, every: int, as_json: bool, find_server: Callable[[], Where]) -> None:
    """Show load, rates, lag, queues, hot topics and slow clients of all nodes, live.

    \b
    Keys: q quits, p pauses, s changes the sort order. In a pipe the output is plain text, one sample after another.

    \b
    greendot top
    greendot top --once
    greendot top --json --every 10 | jq .rates.realtime_socket_send_total
    """
    at = find_server()
    if once or as_json or not is_terminal():
        reel = Reel(every, once=once, as_json=as_json)
        piped(follow(at, reel.show, lambda: reel.printed))
        return
    screen = Screen(at, every)
    on_a_loop(screen.run())
    if screen.ended_by is not None:
        sys.exit(128 + screen.ended_by)


async def _next_sample(live: Live) -> dict[str, Any]:
    while True:
        frame = await live.next()
        if frame["type"] == "sample":
            return frame


# --- on a screen ---


class Screen:
    """Terminal that shows the newest sample until a key or a signal ends it."""

    def __init__(self, at: Where, every: int) -> None:
        self.ended_by: int | None = None  # number of a signal; None: not by a signal
        self._at = at
        self._every = every
        self._shown: Shown | None = None
        self._newest: dict[str, Any] = {}  # the newest sample, also while paused
        self._terminal: Terminal | None = None
        self._work: asyncio.Task[None] | None = None
        self._over = False
        self._since = 0.0  # when the server went away

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        self._work = loop.create_task(self._stay())
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._end, number)
        try:
            await self._work
        except asyncio.CancelledError:
            if not self._over:
                raise

    def _end(self, number: int | None = None) -> None:
        self.ended_by, self._over = number, True
        if self._work is not None:
            self._work.cancel()

    async def _stay(self) -> None:
        with ExitStack() as stack:
            while True:
                try:
                    async with open_live(self._at) as live:
                        await live.ask(type="top", most=MOST)
                        await self._follow(live, stack)
                except Gone as gone:
                    if self._shown is None:
                        raise  # the server was never reached
                    await self._wait(str(gone))

    async def _follow(self, live: Live, stack: ExitStack) -> None:
        while True:
            frame = await _next_sample(live)
            if self._shown is None:
                self._shown = Shown(live.url, live.welcome, frame["data"], frame["ts"])
                self._terminal = stack.enter_context(Terminal(self._pressed, self._draw))
            self._newest = frame
            self._shown.trouble = ""
            if not self._shown.paused:
                self._take()
            self._draw()
            for _ in range(self._every - 1):
                await _next_sample(live)

    async def _wait(self, why: str) -> None:
        """Show that the server is gone, and for how long. Return when it is time for another attempt."""
        assert self._shown is not None
        if not self._shown.trouble:
            self._since = monotonic()
        self._shown.trouble = f"{why.partition('. Start')[0].rstrip('.')}. Waiting, {monotonic() - self._since:.0f} s"
        self._draw()
        await asyncio.sleep(AGAIN_S)

    def _take(self) -> None:
        assert self._shown is not None
        self._shown.sample, self._shown.at_ms = self._newest["data"], self._newest["ts"]

    def _pressed(self, key: str) -> None:
        assert self._shown is not None
        if key in "qQ":
            self._end()
            return
        if key in "pP ":
            self._shown.paused = not self._shown.paused
            self._take()
        elif key in "sS":
            sorts = [*SORTS]
            self._shown.sort = sorts[(sorts.index(self._shown.sort) + 1) % len(sorts)]
        self._draw()

    def _draw(self) -> None:
        if self._terminal is not None and self._shown is not None:
            self._terminal.draw(laid_out(self._shown, size(), KEYS))


# --- in a pipe ---


class Reel:
    """Output of samples as text or JSON, one after another."""

    def __init__(self, every: int, *, once: bool, as_json: bool) -> None:
        self.printed = False
        self._every = every
        self._once = once
        self._as_json = as_json

    async def show(self, live: Live) -> None:
        """Print samples until the server goes away; with `once` a single one."""
        await live.ask(type="top", most=MOST)
        for _ in range(READY - 1):
            await _next_sample(live)
        while True:
            frame = await _next_sample(live)
            self._print(live, frame)
            if self._once:
                return
            for _ in range(self._every - 1):
                await _next_sample(live)
                check_reader()

    def _print(self, live: Live, frame: dict[str, Any]) -> None:
        check_reader()
        if self._as_json:
            print(msgspec.json.encode({"at": frame["ts"], **frame["data"]}).decode(), flush=True)
        else:
            shown = Shown(live.url, live.welcome, frame["data"], frame["ts"])
            text = "\n".join(printable(line.text) for line in laid_out(shown, None))
            print(f"\n{text}" if self.printed else text, flush=True)
        self.printed = True
