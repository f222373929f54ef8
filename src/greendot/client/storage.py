"""Where a program keeps its cursors from one life to the next, and when they are saved."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from greendot.client.records import Cursors
from greendot.protocol.decoding import decode

SAVE_S = 0.2  # after something was handled: what is handled meanwhile is saved together

log = logging.getLogger("greendot.client")


class CursorStorage(Protocol):
    """Anything that keeps cursors. Called in the event loop: it should be quick.

    `save` replaces what was saved before, as a whole or not at all.
    """

    def load(self) -> Cursors | None:
        """What was saved last; None if nothing was."""
        ...

    def save(self, cursors: Cursors) -> None: ...


class MemoryCursors:
    """Kept as long as this object: for a client that is made anew in the same process."""

    def __init__(self, cursors: Cursors | None = None) -> None:
        self.cursors = cursors

    def load(self) -> Cursors | None:
        return self.cursors

    def save(self, cursors: Cursors) -> None:
        self.cursors = cursors


class FileCursors:
    """Kept as JSON in a file. `first` is where a program begins that has no file yet."""

    def __init__(self, path: str | os.PathLike[str], first: Cursors | None = None) -> None:
        self._path = Path(path)
        self._first = first

    def load(self) -> Cursors | None:
        try:
            return decode(self._path.read_bytes(), Cursors)
        except FileNotFoundError:
            return self._first
        except msgspec.DecodeError as error:
            # To begin anew by itself would be to pass over everything missed, without a word.
            raise ValueError(f"{self._path} does not hold cursors ({error}): remove it to begin anew") from None

    def save(self, cursors: Cursors) -> None:
        new = self._path.with_name(f"{self._path.name}.new")
        new.write_bytes(msgspec.json.encode(cursors))
        new.replace(self._path)


class Keeping:
    """Saves cursors soon after they have moved: as far as the program has handled what it was told, and no further."""

    def __init__(self, storage: CursorStorage, handled: Callable[[], Cursors]) -> None:
        self._storage = storage
        self._handled = handled
        self._saved: Cursors | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def moved(self) -> None:
        """Something was handled."""
        if self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(SAVE_S, self._save)

    def close(self, cursors: Cursors) -> None:
        """Save these, and nothing later."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._write(cursors)

    def _save(self) -> None:
        self._timer = None
        self._write(self._handled())

    def _write(self, cursors: Cursors) -> None:
        if cursors == self._saved:
            return
        try:
            self._storage.save(cursors)
        except Exception:
            # The program goes on: what cannot be saved now is told again after a restart, or saved with what follows.
            log.exception("the cursors could not be saved")
        else:
            self._saved = cursors
