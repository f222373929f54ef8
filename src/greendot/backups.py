"""Backups of the embedded store: made while servers run, put back when none does."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from shlex import quote
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from greendot.errors import ConfigError
from greendot.files import NO_LINKS, give_to, put_in_place, refuse_to_overwrite
from greendot.settings import Settings
from greendot.store.schema import steps
from greendot.store.sqlite.copying import CHUNK, Contents, Progress, checksum, contents, copy, let_go
from greendot.store.sqlite.lock import lock_file, lock_path

__all__ = ["Contents", "Restored", "back_up", "put_back"]

BESIDE = ("-wal", "-shm")  # what SQLite keeps beside a file that is in use


class Restored(NamedTuple):
    """What was put back."""

    contents: Contents
    checked: bool  # whether there was a checksum to compare it with
    kept: Path | None  # what was there before
    old: bool  # its tables are brought up to date when a server starts


def back_up(settings: Settings, file: Path, *, force: bool, progress: Progress) -> Contents:
    """A copy of the store, looked at and whole, with its checksum beside it. ConfigError if it cannot be made."""
    _refuse_postgres(settings, _dump(settings, file))
    source = settings.store_path
    if not Path(source).is_file():
        raise ConfigError(f"there is no store {source} here. Call this in the server's folder, or give --store URL")
    refuse_to_overwrite(file, force=force)
    if file.exists() and file.samefile(source):
        raise ConfigError(f"{file} is the store itself.")
    with put_in_place(file, force=force) as beside:
        copy(source, beside, progress)
        found = contents(str(beside), progress)
        _sum(file).unlink(missing_ok=True)  # that of another backup
    with put_in_place(_sum(file), force=True) as beside:
        beside.write_text(f"{found.sha256}  {file.name}\n")
    return found


def put_back(settings: Settings, file: Path, *, force: bool, progress: Progress) -> Restored:
    """The backup takes the store's place. ConfigError, with nothing changed, if it is no good or a server runs."""
    _refuse_postgres(settings, _reload(settings, file))
    target = Path(settings.store_path)
    if str(target) == ":memory:":
        raise ConfigError("a store in memory cannot be restored: give a file, --store sqlite:///FILE")
    found = contents(str(file), progress)
    checked = _compare(file, found)
    if target.is_symlink():
        target = target.resolve()  # the link stays, and leads to what is put back
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = lock_file(settings.store_path, alone=True)
    if lock is None:
        raise ConfigError(f"a Greendot is running on {target}: stop its servers and workers first.")
    try:
        owner = (target if target.exists() else target.parent).stat()
        give_to(owner, Path(lock_path(settings.store_path)))
        if target.exists():
            if file.samefile(target):
                raise ConfigError(f"{file} is the store itself.")
            if not force:
                raise ConfigError(f"there is a store {target} already. With --force it is put aside, not removed.")
            _close(target)
        kept = _replace(file, target, found.sha256, owner)
    finally:
        os.close(lock)
    return Restored(found, checked, kept, found.version < steps("sqlite")[-1].number)


def _sum(file: Path) -> Path:
    return file.with_name(f"{file.name}.sha256")


def _compare(file: Path, found: Contents) -> bool:
    """False if there is nothing to compare it with."""
    try:
        wanted = _sum(file).read_text().split()[:1]
    except OSError:
        return False
    if wanted != [found.sha256]:
        raise ConfigError(f"{file} is not what was backed up: its checksum is another than in {_sum(file)}.")
    return True


def _close(target: Path) -> None:
    """What SQLite has beside the file is put into it, unless somebody uses it. A damaged one is taken as it is."""
    try:
        closed = let_go(str(target))
    except ConfigError:
        return
    if not closed:
        raise ConfigError(f"another program has {target} open: end it first.")


def _replace(file: Path, target: Path, wanted: str, owner: os.stat_result) -> Path | None:
    """What was there stays beside it, under another name. There is a store at any moment: the old one or the new."""
    kept = None
    with put_in_place(target, force=True) as beside:
        with file.open("rb") as source, beside.open("wb") as copied:
            shutil.copyfileobj(source, copied, CHUNK)
        if checksum(str(beside), lambda done, of: None) != wanted:
            raise ConfigError(f"{file} changed while it was read.")
        give_to(owner, beside)
        if target.exists():
            kept = target.with_name(f"{target.name}.before-{time.strftime('%Y%m%d-%H%M%S')}")
            _keep(target, kept)
            for name in BESIDE:  # of a damaged file: it must not be taken for the new one's
                if Path(f"{target}{name}").exists():
                    os.rename(f"{target}{name}", f"{kept}{name}")
    return kept


def _keep(target: Path, kept: Path) -> None:
    try:
        os.link(target, kept)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        with put_in_place(kept, force=False) as beside:
            shutil.copy2(target, beside)
            give_to(target.stat(), beside)


def _refuse_postgres(settings: Settings, command: str) -> None:
    if settings.on_postgres:
        raise ConfigError(f"the store is in PostgreSQL, whose own tools do this: {command}")


def _dump(settings: Settings, file: Path) -> str:
    place, schema = _place(settings)
    return f"pg_dump --format=custom{schema} --file={quote(str(file))} {quote(place)} (servers may run)"


def _reload(settings: Settings, file: Path) -> str:
    place, schema = _place(settings)
    how = f"--clean --if-exists --no-owner --single-transaction{schema}"
    return f"pg_restore {how} --dbname={quote(place)} {quote(str(file))} (stop the servers first)"


def _place(settings: Settings) -> tuple[str, str]:
    """The database as these tools take it, without the password, and the schema if it is another than usual."""
    if not settings.on_postgres:
        return "", ""
    split = urlsplit(settings.store.url)
    login, at, host = split.netloc.rpartition("@")
    schema = parse_qs(split.query).get("search_path", [""])[0].split(",")[0]
    place = f"postgresql://{login.partition(':')[0]}{at}{host}{split.path}"
    return place, f" --schema={schema}" if schema else ""
