"""Facts about the file of a store. Reading them creates no file and changes nothing."""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path
from urllib.parse import quote

from greendot.ops.facts_model import SqliteFacts

_WAIT_S = 2.0


def sqlite_facts(path: str) -> SqliteFacts:
    """Return the facts of the file, with `trouble` if a server could not use it."""
    file = Path(path)
    folder = _nearest(file.absolute().parent)
    at = file if file.exists() else folder
    try:
        found = SqliteFacts(
            path=path,
            exists=file.exists(),
            mode=stat.S_IMODE(at.stat().st_mode),
            free_bytes=os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize,
            filesystem=_filesystem(folder, Path("/proc/self/mountinfo")),
        )
    except OSError as error:
        return SqliteFacts(path=path, trouble=error.strerror or str(error))
    if not os.access(folder, os.W_OK | os.X_OK) or (file.exists() and not os.access(file, os.W_OK | os.R_OK)):
        return SqliteFacts(path=path, exists=file.exists(), trouble="this user may not write there")
    return _with_tables(found) if file.exists() and file.stat().st_size else found


def _nearest(folder: Path) -> Path:
    """Return the folder, or its nearest parent that exists."""
    return folder if folder.exists() or folder == folder.parent else _nearest(folder.parent)


def _with_tables(found: SqliteFacts) -> SqliteFacts:
    try:
        db = sqlite3.connect(f"file:{quote(found.path)}?mode=ro", uri=True, timeout=_WAIT_S)
        try:
            tables = db.execute("PRAGMA user_version").fetchone()[0]
            there = db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'api_keys'").fetchone()[0]
            keys = db.execute("SELECT count(*) FROM api_keys").fetchone()[0] if there else 0
        finally:
            db.close()
    except sqlite3.Error as error:
        return SqliteFacts(path=found.path, exists=True, trouble=str(error))
    return SqliteFacts(
        path=found.path,
        exists=True,
        mode=found.mode,
        free_bytes=found.free_bytes,
        filesystem=found.filesystem,
        tables=tables,
        api_keys=keys,
    )


def _filesystem(folder: Path, mounts: Path) -> str:
    """Return the type of the folder's file system; empty if the system does not provide it."""
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return ""
    here, best, kind = str(folder.resolve()), "", ""
    for line in lines:
        words = line.split()
        point = words[4].encode().decode("unicode_escape")
        if (here == point or here.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
            best, kind = point, words[words.index("-") + 1]
    return kind
