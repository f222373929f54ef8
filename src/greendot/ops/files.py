"""Files that commands write: whole or not at all, for their owner only, never over another file without `force`."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from greendot.errors import ConfigError

NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)  # errors of file systems without hard links


def refuse_to_overwrite(path: Path, *, force: bool) -> None:
    """Raise ConfigError if `path` is a folder, or exists without `force`. Commands call this before any work."""
    if path.is_dir():
        raise ConfigError(f"{path} is a folder. Give the name of a file.")
    if path.exists() and not force:
        raise ConfigError(
            f"{path} already exists and was not changed. Choose another file, or overwrite it with --force."
        )


@contextmanager
def put_in_place(path: Path, *, force: bool) -> Iterator[Path]:
    """Yield an empty file beside `path`, and rename it to `path` when the block is done.

    The file and its new name outlive a power cut. If the block fails, the file is removed. Raise ConfigError if `path`
    must not be overwritten or cannot be written.
    """
    refuse_to_overwrite(path, force=force)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        os.close(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        yield beside
        make_durable(beside)
        if force:
            os.replace(beside, path)
        else:
            _move_to_free(beside, path)
        make_durable(path.parent)
    except FileExistsError:
        raise ConfigError(
            f"{path} was created by another process at the same time and was not changed. Choose another file."
        ) from None
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        beside.unlink(missing_ok=True)


def _move_to_free(beside: Path, path: Path) -> None:
    try:
        os.link(beside, path)  # fails if another process has made `path` since the check
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        refuse_to_overwrite(path, force=False)
        os.replace(beside, path)


def give_to(owner: os.stat_result, path: Path) -> None:
    """Give a file that root made for another user to that user, who could not open it otherwise."""
    found = path.lstat()
    if os.geteuid() != 0 or (found.st_uid, found.st_gid) == (owner.st_uid, owner.st_gid):
        return
    try:
        # Never the target of a link: that user may have put a link there.
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
    except OSError as error:
        why = f"cannot give {path} to user {owner.st_uid}: {error.strerror}. Run this command as that user."
        raise ConfigError(why) from None


def make_durable(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk, so that they outlive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
