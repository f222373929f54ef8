"""The terminal, for a program that fills it: taken over, drawn on, and given back as it was."""

from __future__ import annotations

import asyncio
import os
import select
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

ENTER = "\x1b[?1049h\x1b[?25l"  # another screen, without a cursor
LEAVE = "\x1b[?25h\x1b[?1049l"
STYLES = {"head": "\x1b[1m", "dim": "\x1b[2m", "warn": "\x1b[33m", "alarm": "\x1b[1;31m"}
SMALLEST, LARGEST = 10, 1_000  # columns and lines that are believed


class ScreenLine(NamedTuple):
    """A line on the screen."""

    text: str
    style: str = ""


class Size(NamedTuple):
    """Of a terminal."""

    columns: int
    lines: int


def is_terminal() -> bool:
    """Whether there is a screen to be drawn on."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def size() -> Size:
    """What the terminal says; one that says nothing of use is taken for an ordinary one."""
    columns, lines = shutil.get_terminal_size((80, 24))
    return Size(min(columns, LARGEST) if columns > 0 else 80, min(lines, LARGEST) if lines > 0 else 24)


def check_reader() -> None:
    """BrokenPipeError if nobody reads our output any more: without anything to write it would not be noticed."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    if any(found & (select.POLLERR | select.POLLHUP) for _, found in poll.poll(0)):
        raise BrokenPipeError


class Terminal:
    """While it is ours. `pressed` is called with each key, `redraw` when the screen has to be drawn anew."""

    def __init__(self, pressed: Callable[[str], None], redraw: Callable[[], None]) -> None:
        self._pressed = pressed
        self._redraw = redraw
        self._keys: int | None = None  # where they come from
        self._before: list[Any] = []  # how that was set
        self._colours = "NO_COLOR" not in os.environ

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        if sys.stdin.isatty():
            self._keys = sys.stdin.fileno()
            self._before = termios.tcgetattr(self._keys)
            loop.add_reader(self._keys, self._read)
        loop.add_signal_handler(signal.SIGWINCH, self._redraw)
        loop.add_signal_handler(signal.SIGTSTP, self._stop)
        self._take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_signal_handler(signal.SIGWINCH)
        loop.remove_signal_handler(signal.SIGTSTP)
        if self._keys is not None:
            loop.remove_reader(self._keys)
        self._give_back()

    def draw(self, lines: Sequence[ScreenLine]) -> None:
        """All of the screen, from the top; what was there is written over, so that nothing flickers."""
        drawn = [f"{self._styled(line)}\x1b[K" for line in lines]
        self._write("\x1b[H" + "\r\n".join(drawn) + "\x1b[J")

    def _styled(self, line: ScreenLine) -> str:
        code = STYLES.get(line.style, "")
        if not code or (not self._colours and line.style != "head"):
            return line.text
        return f"{code}{line.text}\x1b[0m"

    def _take(self) -> None:
        if self._keys is not None:
            tty.setcbreak(self._keys, termios.TCSADRAIN)
        self._write(ENTER)

    def _give_back(self) -> None:
        try:
            self._write(LEAVE)
        except OSError:
            pass  # the terminal itself is gone
        if self._keys is not None:
            try:
                termios.tcsetattr(self._keys, termios.TCSADRAIN, self._before)
            except termios.error:
                pass  # the same

    def _stop(self) -> None:
        """Ctrl-Z: give it back, and take it again when we go on."""
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take()
        self._redraw()

    def _read(self) -> None:
        assert self._keys is not None
        try:
            said = os.read(self._keys, 64)
        except OSError:
            said = b""
        if not said:
            asyncio.get_running_loop().remove_reader(self._keys)
        if said[:1] != b"\x1b":  # the keys with arrows say more than one letter, and mean nothing here
            for key in said.decode(errors="replace"):
                self._pressed(key)

    @staticmethod
    def _write(text: str) -> None:
        sys.stdout.buffer.write(text.encode(sys.stdout.encoding or "utf-8", "replace"))
        sys.stdout.buffer.flush()
