"""Story of a run: time, actor and event of everything that happened, and progress lines."""

from __future__ import annotations

import time
from pathlib import Path


class Story:
    """Lines of a run, written to a file at once, so that they outlive a crash of the run."""

    def __init__(self, file: Path | None = None, *, quiet: bool = False) -> None:
        self.began = time.time()
        self._lines: list[tuple[float, str, str]] = []
        self._file = None if file is None else file.open("a", buffering=1)
        self._quiet = quiet

    @property
    def at(self) -> float:
        return time.time() - self.began

    def add(self, actor: str, event: str) -> None:
        self._lines.append((self.at, actor, event))
        if self._file is not None:
            self._file.write(_line(*self._lines[-1]) + "\n")

    def show(self, actor: str, event: str) -> None:
        """Add a line and print it."""
        self.add(actor, event)
        if not self._quiet:
            print(_line(*self._lines[-1]), flush=True)

    def before(self, at: float, seconds: float) -> str:
        """Return the lines of the last seconds until `at`."""
        return "\n".join(_line(*line) for line in self._lines if at - seconds <= line[0] <= at + 1)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _line(at: float, actor: str, event: str) -> str:
    return f"{at:8.2f}  {actor:<12}  {event}"
