"""Probes of `greendot doctor`: servers, files, the machine. Every probe ends in bounded time and changes nothing."""

from __future__ import annotations

import ctypes
import os
import resource
import stat
import time
from pathlib import Path

from greendot.config import LOCAL, Settings
from greendot.engine.redis.facts import redis_facts
from greendot.ops.facts_model import FileFacts, MachineFacts, PostgresFacts, RedisFacts, SqliteFacts
from greendot.ops.local_engine import running_url
from greendot.store.postgres.facts import postgres_facts
from greendot.store.schema import steps
from greendot.store.sqlite.facts import sqlite_facts

_MEMORY = "MemAvailable:"
_TIMEX_BYTES = 256  # more than the size of `struct timex` on any platform
_UNSYNCHRONISED = 5  # TIME_ERROR


async def of_engine(settings: Settings) -> tuple[RedisFacts, ...]:
    url = settings.engine.url
    if url == LOCAL:
        url = running_url(settings.server.data_dir) or "memory"
    return () if url == "memory" else tuple(await redis_facts(url))


async def of_postgres(settings: Settings) -> PostgresFacts | None:
    return await postgres_facts(settings.store.url) if settings.on_postgres else None


def of_sqlite(settings: Settings) -> SqliteFacts | None:
    path = settings.store_path
    return None if not path else SqliteFacts(path=path) if path == ":memory:" else sqlite_facts(path)


def tables(settings: Settings) -> int:
    """Return the version of the tables that this Greendot works with."""
    return steps("postgres" if settings.on_postgres else "sqlite")[-1].number


def of_files(settings: Settings, config: Path | None) -> tuple[FileFacts, ...]:
    """Return facts about the existing files that contain secrets."""
    named = {"tls.key": settings.tls.key or settings.tls.cert} if settings.tls.cert else {}
    named |= {f"auth.keys ({key.kid})": key.file for key in settings.auth.keys if key.alg.startswith("HS")}
    if config is not None and _has_secrets(config):
        named["--config"] = str(config)
    found = []
    for setting, path in named.items():
        try:
            found.append(FileFacts(setting=setting, path=path, mode=stat.S_IMODE(os.stat(path).st_mode)))
        except OSError:
            pass  # a missing file is reported where the file is needed
    return tuple(found)


def _has_secrets(config: Path) -> bool:
    text = config.read_text(errors="replace")
    return any(word in text for word in ("secret", "[api]", "hash_key", "@"))


def of_machine() -> MachineFacts:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)  # a server raises its soft limit to the hard one
    return MachineFacts(
        cores=len(os.sched_getaffinity(0)),
        open_files=None if most == resource.RLIM_INFINITY else most,
        memory_free=_memory_free(),
        somaxconn=_number("/proc/sys/net/core/somaxconn"),
        conntrack=_number("/proc/sys/net/netfilter/nf_conntrack_max"),
        clock_synchronised=_synchronised(),
        year=time.gmtime().tm_year,
    )


def _memory_free() -> int | None:
    """Return the free bytes of the machine, or of the container if that has less; None if unknown."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    free = next((int(line.split()[1]) * 1024 for line in lines if line.startswith(_MEMORY)), None)
    most, used = _number("/sys/fs/cgroup/memory.max"), _number("/sys/fs/cgroup/memory.current")
    return free if free is None or most is None or used is None else min(free, most - used)


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return None


def _synchronised() -> bool | None:
    """Return whether the kernel reports that its clock is synchronised; None if the kernel cannot be asked."""
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else bool(state != _UNSYNCHRONISED)
