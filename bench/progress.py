"""Progress of a run: one updated line on a terminal, else plain lines. Details also go to a log file."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path

CLEAR = "\r\x1b[K"


class Progress:
    """Progress of parts, given by name and expected seconds, in order."""

    def __init__(self, expected_s: Mapping[str, float], *, terminal: bool, log: Path | None = None) -> None:
        self._expected_s = dict(expected_s)
        self._terminal = terminal
        self._log = log.open("w") if log else None
        self._started = self._part_started = time.monotonic()
        self._part = ""
        self._detail = ""

    def begin(self, part: str) -> None:
        self._part, self._detail = part, ""
        self._part_started = time.monotonic()
        if self._terminal:
            self.draw()
        else:
            print(self.line(time.monotonic()), flush=True)

    def say(self, detail: str) -> None:
        self._detail = detail
        if self._log:
            print(f"{time.monotonic() - self._started:7.1f} {self._part}: {detail}", file=self._log, flush=True)
        if self._terminal:
            self.draw()
        else:
            print(f"  {detail}", flush=True)

    def warn(self, text: str) -> None:
        """Print a line that stays visible."""
        if self._terminal:
            _put(CLEAR)
        print(f"  ! {text}", flush=True)
        if self._log:
            print(f"! {text}", file=self._log, flush=True)

    def end(self) -> None:
        if self._terminal:
            _put(CLEAR)
        if self._log:
            self._log.close()

    def elapsed_s(self) -> float:
        return time.monotonic() - self._started

    def draw(self) -> None:
        """Draw the current line. Safe in a signal handler, because it bypasses Python's buffers."""
        if self._terminal and self._part:
            width = shutil.get_terminal_size().columns
            _put(CLEAR + self.line(time.monotonic(), width - 1))

    def line(self, now: float, width: int | None = None) -> str:
        names = list(self._expected_s)
        at = names.index(self._part)
        later = sum(self._expected_s[name] for name in names[at + 1 :])
        left = max(0.0, self._expected_s[self._part] - (now - self._part_started)) + later
        times = f"{_clock(now - self._started)} gone, about {_clock(left)} left"
        text = f"[{at + 1}/{len(names)}] {self._part}, {times}" + (f": {self._detail}" if self._detail else "")
        return text if width is None or len(text) <= width else f"{text[: width - 1]}…"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def _put(text: str) -> None:
    os.write(sys.stdout.fileno(), text.encode())


shown: Progress | None = None  # progress of this run


def say(detail: str) -> None:
    """Print a detail of the current part."""
    if shown is None:
        print(f"  {detail}", flush=True)
    else:
        shown.say(detail)
