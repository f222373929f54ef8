"""`greendot` with a store that counts its calls. SIGUSR1 writes the counts to the file named by STORE_COUNTS."""

from __future__ import annotations

import functools
import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

from greendot.cli import main
from greendot.store.port import Store
from greendot.store.postgres import PostgresStore
from greendot.store.sqlite import SqliteStore

calls: Counter[str] = Counter()
LIFE = {"start", "close", "migrate"}


def count(kind: type, name: str) -> None:
    method = getattr(kind, name)

    @functools.wraps(method)
    def counted(self: Any, *given: Any, **named: Any) -> Any:
        calls[name] += 1
        return method(self, *given, **named)

    setattr(kind, name, counted)


def write(*_: object) -> None:
    place = Path(os.environ["STORE_COUNTS"])
    place.with_suffix(".new").write_text(json.dumps(calls))
    place.with_suffix(".new").rename(place)


for verb in [name for port in Store.__mro__ for name in vars(port) if not name.startswith("_")]:
    if verb not in LIFE and callable(getattr(Store, verb)):
        for store in (SqliteStore, PostgresStore):
            count(store, verb)
signal.signal(signal.SIGUSR1, write)
main()
