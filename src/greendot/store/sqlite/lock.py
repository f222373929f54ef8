"""Lock of a store's file: shared by running servers, exclusive for a restore."""

from __future__ import annotations

import fcntl
import os

from greendot.errors import ConfigError


def lock_path(path: str) -> str:
    return f"{path}.lock"


def lock_file(path: str, *, alone: bool) -> int | None:
    """Take the lock file beside the store; return its descriptor, to be closed by the caller. None: it is held.

    The kernel holds the lock and releases it when the process ends, for whatever reason. Without `alone` several
    processes may hold it. ConfigError if the file cannot be opened.
    """
    try:
        lock = os.open(lock_path(path), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise ConfigError(f"cannot use the store {path}: {error.strerror}") from None
    try:
        fcntl.flock(lock, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def is_locked(path: str) -> bool:
    """Return whether a process holds the lock. A missing file is not created: it would belong to the caller's user."""
    if not os.path.exists(lock_path(path)):
        return False
    lock = lock_file(path, alone=True)
    if lock is not None:
        os.close(lock)
    return lock is None
