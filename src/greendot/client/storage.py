"""Storage of cursors between two runs of a program, and when they are saved."""

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

SAVE_S = 0.2  # seconds before a save: records handled meanwhile are saved together

log = logging.getLogger("greendot.client")


class CursorStorage(Protocol):
    """Storage of cursors. It is called in the event loop and should be quick.

    `save` replaces the saved cursors as a whole or not at all.
    """

    def load(self) -> Cursors | None:
        """Return the saved cursors; None if there are none."""
        ...

    def save(self, cursors: Cursors) -> None: ...


class MemoryCursors:
    """Cursors in memory, for a client that is made again in the same process."""

    def __init__(self, cursors: Cursors | None = None) -> None:
        self.cursors = cursors

    def load(self) -> Cursors | None:
        return self.cursors

    def save(self, cursors: Cursors) -> None:
        self.cursors = cursors


class FileCursors:
    """Cursors in a JSON file. `first` is the position of a program that has no file yet."""

    def __init__(self, path: str | os.PathLike[str], first: Cursors | None = None) -> None:
        self._path = Path(path)
        self._first = first

    def load(self) -> Cursors | None:
        try:
            return decode(self._path.read_bytes(), Cursors)
        except FileNotFoundError:
            return self._first
        except msgspec.DecodeError as error:
            # A new start without an error would silently skip everything missed.
            raise ValueError(f"{self._path} does not hold cursors ({error}): remove it to begin anew") from None

    def save(self, cursors: Cursors) -> None:
        new = self._path.with_name(f"{self._path.name}.new")
        new.write_bytes(msgspec.json.encode(cursors))
        new.replace(self._path)


class Keeping:
    """Saver of cursors. It saves soon after a change, and only what the program has handled."""

    def __init__(self, storage: CursorStorage, handled: Callable[[], Cursors]) -> None:
        self._storage = storage
        self._handled = handled
        self._saved: Cursors | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def moved(self) -> None:
        """Schedule a save after a record was handled."""
        if self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(SAVE_S, self._save)

    def close(self, cursors: Cursors) -> None:
        """Save `cursors` now, and nothing later."""
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
            # The program continues: unsaved records are delivered again after a restart, or covered by the next save.
            log.exception("the cursors could not be saved")
        else:
            self._saved = cursors
