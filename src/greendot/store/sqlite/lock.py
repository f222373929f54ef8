"""Who has the file of a store: servers while they run, or a restore, which must be alone."""

from __future__ import annotations

import fcntl
import os

from greendot.errors import ConfigError


def lock_path(path: str) -> str:
    """Where its lock is."""
    return f"{path}.lock"


def lock_file(path: str, *, alone: bool) -> int | None:
    """A lock beside the store, to be closed when it is not needed any more; None if others have it.

    It is the kernel's and ends with the process, however that ends. Without `alone` several may have it.
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
    """Whether somebody has the lock. None is made: it would belong to whoever asks."""
    if not os.path.exists(lock_path(path)):
        return False
    lock = lock_file(path, alone=True)
    if lock is not None:
        os.close(lock)
    return lock is None
