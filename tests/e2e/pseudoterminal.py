"""Program in a pseudoterminal: its screen, keys, sizes, and the terminal's state after the program."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import signal
import struct
import sys
import termios
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from e2e.processes import API_KEY, PATIENCE_S, SECRET, until

_TOKEN = re.compile(r"\x1b\[(\?\d+)?([\d;]*)([a-zA-Z])|\r|\n|[^\x1b\r\n]+")


class Screen:
    """Terminal screen with the sequences that the program uses: home, erase, styles, alternate screen, cursor."""

    def __init__(self) -> None:
        self.lines: list[str] = [""]
        self.modes: dict[str, bool] = {}
        self._row = 0
        self._column = 0
        self._rest = ""

    def feed(self, text: str) -> None:
        text = self._rest + text
        self._rest = ""
        if (cut := text.rfind("\x1b")) >= 0 and not _TOKEN.match(text, cut):
            text, self._rest = text[:cut], text[cut:]
        for found in _TOKEN.finditer(text):
            self._take(found)

    def _take(self, found: re.Match[str]) -> None:
        token, mode, kind = found[0], found[1], found[3]
        if token == "\r":
            self._column = 0
        elif token == "\n":
            self._row += 1
        elif mode is not None:
            self.modes[mode] = kind == "h"
        elif kind == "H":
            self._row = self._column = 0
        elif kind == "K":
            self._line(lambda line: line[: self._column])
        elif kind == "J":
            self._line(lambda line: line[: self._column])
            del self.lines[self._row + 1 :]
        elif kind is None:
            self._line(
                lambda line: line[: self._column].ljust(self._column) + token + line[self._column + len(token) :]
            )
            self._column += len(token)

    def _line(self, change: Callable[[str], str]) -> None:
        self.lines += [""] * (self._row + 1 - len(self.lines))
        self.lines[self._row] = change(self.lines[self._row])


class Pseudoterminal:
    """Process in a pseudoterminal, with its screen."""

    def __init__(self, process: asyncio.subprocess.Process, master: int, slave: int) -> None:
        self.process = process
        self.screen = Screen()
        self._master = master
        self._slave = slave
        self.before = termios.tcgetattr(slave)
        os.set_blocking(master, False)
        asyncio.get_running_loop().add_reader(master, self._read)

    def _read(self) -> None:
        try:
            self.screen.feed(os.read(self._master, 65_536).decode())
        except OSError:
            asyncio.get_running_loop().remove_reader(self._master)

    @property
    def text(self) -> str:
        return "\n".join(self.screen.lines)

    async def shows(self, condition: Callable[[str], Any], within_s: float = 2 * PATIENCE_S) -> str:
        """Wait until the screen meets the condition and return its text."""
        try:
            await until(lambda: bool(condition(self.text)), within_s)
        except TimeoutError:
            raise AssertionError(f"the screen does not meet the condition:\n{self.text}") from None
        return self.text

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        set_size(self._master, columns, lines)
        self.process.send_signal(signal.SIGWINCH)

    async def ended(self) -> int:
        code = await asyncio.wait_for(self.process.wait(), PATIENCE_S)
        await asyncio.sleep(0.05)  # time to read the last output
        return code

    @property
    def is_as_it_was(self) -> bool:
        """Return whether the program restored the terminal's settings, main screen and cursor."""
        left = self.screen.modes.get("?1049") is False and self.screen.modes.get("?25") is True
        return left and termios.tcgetattr(self._slave) == self.before

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._master)
        os.close(self._master)
        os.close(self._slave)


def set_size(terminal: int, columns: int, lines: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


@asynccontextmanager
async def in_a_terminal(
    folder: Path, *arguments: str, columns: int = 80, lines: int = 24, **environment: str
) -> AsyncIterator[Pseudoterminal]:
    """Run `greendot` with these arguments in a pseudoterminal."""
    master, slave = pty.openpty()
    set_size(master, columns, lines)
    names = ("GREENDOT_", "COLUMNS", "LINES", "NO_COLOR")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(names)}
    given = {"TERM": "xterm", "GREENDOT_AUTH_SECRET": SECRET, "GREENDOT_API_KEY": API_KEY} | environment
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "greendot", *arguments),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=folder,
        env=inherited | given,
        preexec_fn=lambda: _own_terminal(slave),
    )
    terminal = Pseudoterminal(process, master, slave)
    try:
        yield terminal
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        terminal.close()


def _own_terminal(terminal: int) -> None:
    """Make the pseudoterminal the controlling terminal, so that Ctrl-C reaches only the program."""
    os.setsid()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
