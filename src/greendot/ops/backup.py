"""Backups of the embedded store: made while servers run, restored while none does."""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from shlex import quote
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

from greendot.config import Settings
from greendot.errors import ConfigError
from greendot.ops.files import NO_LINKS, give_to, make_durable, put_in_place, refuse_to_overwrite
from greendot.store.schema import steps
from greendot.store.sqlite.backup import (
    CHUNK,
    Contents,
    Progress,
    check_backup_file,
    checksum,
    contents,
    copy,
    copy_bytes,
    make_single_file,
    sole_use,
)
from greendot.store.sqlite.lock import lock_file, lock_path

__all__ = ["Contents", "Restored", "back_up", "put_back"]

BESIDE = ("-wal", "-shm", "-journal")  # files that SQLite keeps beside a database, found by their names


class Restored(NamedTuple):
    """Result of a restore."""

    contents: Contents
    checked: bool  # whether there was a checksum file to compare with
    kept: Path | None  # new name of the store that was there; None: there was none
    left: list[Path]  # new names of -wal, -shm and -journal files, also if their store was moved away earlier
    old: bool  # whether a server will migrate the tables at its start


def back_up(settings: Settings, file: Path, *, force: bool, progress: Progress) -> Contents:
    """Write a verified copy of the store to `file`, with its checksum beside it. Raise ConfigError if that fails."""
    _refuse_postgres(settings, _dump(settings, file))
    source = settings.store_path
    if not Path(source).is_file():
        raise ConfigError(
            f"store {source} not found. Run this command in the working directory of the server, or give --store URL."
        )
    refuse_to_overwrite(file, force=force)
    if file.exists() and file.samefile(source):
        raise ConfigError(f"{file} is the store itself. Choose another file.")
    with put_in_place(file, force=force) as beside:
        copy(source, beside, progress)
        found = contents(str(beside), checksum(str(beside), progress))
        _sum(file).unlink(missing_ok=True)  # the checksum of an older backup
    with put_in_place(_sum(file), force=True) as beside:
        beside.write_text(f"{found.sha256}  {file.name}\n")
    return found


def put_back(settings: Settings, file: Path, *, force: bool, progress: Progress) -> Restored:
    """Replace the store with the backup, and verify it in place.

    Raise ConfigError if the backup is not usable, or a server runs on the store.
    """
    _refuse_postgres(settings, _reload(settings, file))
    target = Path(settings.store_path)
    if str(target) == ":memory:":
        raise ConfigError("a store in memory cannot be restored. Give a file: --store sqlite:///FILE")
    check_backup_file(file)
    if target.is_symlink():
        target = target.resolve()  # the link stays, and leads to the restored store
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = lock_file(settings.store_path, alone=True)
    if lock is None:
        raise ConfigError(f"a Greendot server or worker is running on {target}. Stop all of them first.")
    try:
        model = _model(target)
        give_to(model.stat(), Path(lock_path(settings.store_path)))
        if target.exists():
            if file.samefile(target):
                raise ConfigError(f"{file} is the store itself. Choose another file.")
            if not force:
                raise ConfigError(
                    f"store {target} already exists. Replace it with --force; the old store is kept beside it."
                )
        return _restore(file, target, model, progress)
    except OSError as error:
        raise ConfigError(f"cannot restore {target}: {error.strerror or error}.") from None
    finally:
        os.close(lock)


def _restore(file: Path, target: Path, model: Path, progress: Progress) -> Restored:
    """Copy the backup beside the store, verify the copy, and move it in place. Verify it there once more."""
    with _staged(target) as staged:
        digest = _copy(file, staged, model, progress)
        make_single_file(str(staged), str(file))
        found = contents(str(staged), digest, str(file))
        checked = _compare(file, digest)
        make_durable(staged)
        with ExitStack() as held:
            if target.exists():
                held.enter_context(sole_use(target))
            kept, left = _set_aside(target, held)
            # Flush the renames first: after a power cut, the new store must not be beside the WAL of the old store.
            make_durable(target.parent)
            os.replace(staged, target)
            make_durable(target.parent)
    _verify(target, found, kept)
    return Restored(found, checked, kept, left, found.version < steps("sqlite")[-1].number)


def _sum(file: Path) -> Path:
    return file.with_name(f"{file.name}.sha256")


def _compare(file: Path, digest: str) -> bool:
    """Compare with the checksum beside the backup. Return False without a checksum; raise ConfigError if it differs."""
    try:
        wanted = _sum(file).read_text().split()[:1]
    except OSError:
        return False
    if wanted != [digest]:
        raise ConfigError(
            f"checksum mismatch: {file} does not match its checksum in {file}.sha256. Restore another backup."
        )
    return True


def _model(target: Path) -> Path:
    """Return the path whose owner and mode the store gets: the old store, else a file beside it, else the folder."""
    return next((path for path in (target, *_beside(target)) if path.exists()), target.parent)


def _beside(target: Path) -> list[Path]:
    return [Path(f"{target}{suffix}") for suffix in BESIDE]


@contextmanager
def _staged(target: Path) -> Iterator[Path]:
    """Yield the name of a file beside the store for the copy. Before and after, remove files of this name."""
    staged = target.with_name(f".{target.name}.restoring")
    names = [staged, *_beside(staged)]  # an old log would be replayed into the copy

    def clear() -> None:
        for name in names:
            if os.path.lexists(name):
                os.unlink(name)

    clear()
    try:
        yield staged
    finally:
        clear()


def _copy(file: Path, staged: Path, model: Path, progress: Progress) -> str:
    """Copy the backup with the owner and mode of the model; return the checksum.

    If the model is a folder, the copy does not get its mode, and gets its owner only if root runs the restore.
    """
    handle = os.open(staged, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "r+b") as copied:
        owner = model.stat()
        if not model.is_dir() or os.geteuid() == 0:
            _give_handle(handle, staged, owner)
        if not model.is_dir():
            os.fchmod(handle, stat.S_IMODE(owner.st_mode))
        return copy_bytes(file, copied, progress)


def _give_handle(handle: int, path: Path, owner: os.stat_result) -> None:
    found = os.fstat(handle)
    if (found.st_uid, found.st_gid) == (owner.st_uid, owner.st_gid):
        return
    try:
        os.fchown(handle, owner.st_uid, owner.st_gid)
    except OSError as error:
        whose = f"user {owner.st_uid}, group {owner.st_gid}"
        raise ConfigError(f"cannot give {path} to {whose}: {error.strerror}. Run this command as that user.") from None


def _set_aside(target: Path, held: ExitStack) -> tuple[Path | None, list[Path]]:
    """Give the old store a second name, and rename the files that SQLite left beside it.

    SQLite would otherwise use these files for the new store. The first name stays until the new store takes it, so that
    there is a store at any moment. Return the second name (None if there was no old store), and the new names of
    the files. If there was no old store, the files belong to a store that was moved away.
    """
    aside = _free_name(target)
    kept = None
    if target.exists():
        _keep(target, aside, held)
        kept = aside
    left = []
    for path in _beside(target):
        if os.path.lexists(path):
            left.append(path.with_name(aside.name + path.name.removeprefix(target.name)))
            os.rename(path, left[-1])
    return kept, left


def _free_name(target: Path) -> Path:
    """Return an unused name for the old store: with the time, and with a number if that name is taken."""
    base = f"{target.name}.before-{time.strftime('%Y%m%d-%H%M%S')}"
    names = (target.with_name(base if not number else f"{base}-{number}") for number in count())
    return next(name for name in names if not any(os.path.lexists(path) for path in (name, *_beside(name))))


def _keep(target: Path, kept: Path, held: ExitStack) -> None:
    try:
        os.link(target, kept)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        # Closed only after the replacement: closing any handle of a file releases SQLite's locks on it.
        old = held.enter_context(target.open("rb"))
        with put_in_place(kept, force=False) as beside:
            with beside.open("wb") as copied:
                shutil.copyfileobj(old, copied, CHUNK)
            shutil.copystat(target, beside)
            give_to(target.stat(), beside)


def _verify(target: Path, wanted: Contents, kept: Path | None) -> None:
    """Raise ConfigError unless the store opens, is whole and has the contents of the backup."""
    try:
        found = contents(str(target), wanted.sha256)
        reason = None if found == wanted else f"it has {found.records}, but the backup has {wanted.records}."
    except ConfigError as error:
        reason = str(error)
    if reason is not None:
        old = f" The previous store is {kept}." if kept is not None else ""
        raise ConfigError(
            f"{target} was replaced but is not usable: {reason} Do not start a server on it. Check the disk, and "
            f"restore again.{old}"
        )


def _refuse_postgres(settings: Settings, command: str) -> None:
    if settings.on_postgres:
        raise ConfigError(f"the store is in PostgreSQL. Use the tools of PostgreSQL; {command}")


def _dump(settings: Settings, file: Path) -> str:
    place, schema = _place(settings)
    return f"servers can keep running. Run: pg_dump --format=custom{schema} --file={quote(str(file))} {quote(place)}"


def _reload(settings: Settings, file: Path) -> str:
    place, schema = _place(settings)
    how = f"--clean --if-exists --no-owner --single-transaction{schema}"
    return (
        f"stop the servers. Run: pg_restore {how} --dbname={quote(place)} {quote(str(file))}\n"
        "Tokens and API keys that were revoked after the backup are then valid again. Users who were erased after the "
        "backup are back. Before you start the servers, revoke these API keys again, erase these users again, and run: "
        "greendot revoke --all-tenants --store URL"
    )


def _place(settings: Settings) -> tuple[str, str]:
    """Return the database URL for PostgreSQL's tools, and `--schema` for the first schema of its `search_path`.

    The URL is shown, so it has no password. The tools refuse `search_path`, so it is left out. Other parameters, such
    as `sslmode`, stay.
    """
    if not settings.on_postgres:
        return "", ""
    split = urlsplit(settings.store.url)
    login, at, host = split.netloc.rpartition("@")
    query = dict(parse_qsl(split.query))
    schema = query.pop("search_path", "").split(",")[0]
    place = f"postgresql://{login.partition(':')[0]}{at}{host}{split.path}"
    if query:
        place += "?" + urlencode(query, safe="/")
    return place, f" --schema={schema}" if schema else ""
