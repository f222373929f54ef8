"""Record a version's protocol with clients and nodes, its data in Redis and the store, and its interfaces.

`make record AS=0.2.0` records the current sources in tests/fixtures/protocol before a release. The recording of a
version is never changed: later versions rely on it.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

import greendot
from compat import bus, surface, talk
from compat.steps import AFTER, STEPS
from greendot.protocol.commands import COMMANDS
from greendot.protocol.events import EVENTS
from greendot.testing import serving

QUICK: dict[str, Any] = {"limits": {"enabled": False}}


async def _record(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as made:
        place = f"sqlite:///{made}/store.db"
        async with serving(store={"url": place}, **QUICK) as served:
            had = await talk.have(served, STEPS)
        _write(folder / "talk.json", {"commands": sorted(COMMANDS), "events": sorted(EVENTS), "steps": had})
        with closing(sqlite3.connect(f"{made}/store.db")) as db, db:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            (folder / "store.sql").write_text(f"PRAGMA user_version = {version};\n" + "\n".join(db.iterdump()) + "\n")
        db.close()
        async with serving(store={"url": place}, **QUICK) as served:
            _write(folder / "after.json", {"steps": await talk.have(served, AFTER)})
        told, kept = await bus.recorded(Path(made) / "redis")
        _write(folder / "bus.json", {"sent": bus.sent(), "told": told})
        _write(folder / "redis.json", kept)
    _write(folder / "surface.json", surface.all_of_it())
    source = Path(greendot.__file__).parent
    shutil.copy(source / "web" / "greendot.js", folder / "greendot.js")


def _write(path: Path, value: Any) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.mkdir(parents=True)
    asyncio.run(_record(place))
