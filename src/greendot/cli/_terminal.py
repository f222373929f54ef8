"""Terminal of a full-screen program: entered, drawn on, and restored."""

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

ENTER = "\x1b[?1049h\x1b[?25l"  # the alternate screen, without a cursor
LEAVE = "\x1b[?25h\x1b[?1049l"
STYLES = {"head": "\x1b[1m", "dim": "\x1b[2m", "warn": "\x1b[33m", "alarm": "\x1b[1;31m"}
LARGEST = 1_000  # columns or lines; a larger size is not plausible


class ScreenLine(NamedTuple):
    """Line on the screen."""

    text: str
    style: str = ""


class Size(NamedTuple):
    """Size of a terminal."""

    columns: int
    lines: int


def is_terminal() -> bool:
    """Return whether the output is a terminal that can be drawn on."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def size() -> Size:
    """Return the size of the terminal; 80 × 24 where it reports none."""
    columns, lines = shutil.get_terminal_size((80, 24))
    return Size(min(columns, LARGEST) if columns > 0 else 80, min(lines, LARGEST) if lines > 0 else 24)


def check_reader() -> None:
    """Raise BrokenPipeError if our output has no reader any more. A command that writes nothing would not notice."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    if any(found & (select.POLLERR | select.POLLHUP) for _, found in poll.poll(0)):
        raise BrokenPipeError


class Terminal:
    """Terminal in full-screen mode, as a context.

    `pressed` is called with each key, `redraw` when the screen has to be drawn again.
    """

    def __init__(self, pressed: Callable[[str], None], redraw: Callable[[], None]) -> None:
        self._pressed = pressed
        self._redraw = redraw
        self._keys: int | None = None  # descriptor that keys are read from; None: stdin is no terminal
        self._before: list[Any] = []  # its attributes, to be restored
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
        """Draw the whole screen from the top. Old lines are overwritten, not cleared, so that nothing flickers."""
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
            pass  # the terminal is gone
        if self._keys is not None:
            try:
                termios.tcsetattr(self._keys, termios.TCSADRAIN, self._before)
            except termios.error:
                pass  # the terminal is gone

    def _stop(self) -> None:
        """Restore the terminal and stop the process on Ctrl-Z. Take the terminal again on SIGCONT."""
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
        if said[:1] != b"\x1b":  # an escape sequence, as of arrow keys, has no meaning here
            for key in said.decode(errors="replace"):
                self._pressed(key)

    @staticmethod
    def _write(text: str) -> None:
        sys.stdout.buffer.write(text.encode(sys.stdout.encoding or "utf-8", "replace"))
        sys.stdout.buffer.flush()
