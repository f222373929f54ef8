"""Engine, store and outbox of a server, made from its settings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from greendot.clock import Clock
from greendot.config import Settings
from greendot.engine.memory import MemoryEngine
from greendot.engine.port import Engine
from greendot.errors import ConfigError, StoreUnavailable
from greendot.store.port import Store
from greendot.store.sqlite import SqliteStore
from greendot.store.sqlite.lock import lock_file
from greendot.telemetry import log_events
from greendot.telemetry.log import log

if TYPE_CHECKING:
    from greendot.engine.redis.engine import Options
    from greendot.store.postgres import PostgresOutbox


UPGRADE_S = 2.0  # longest wait for transactions of the app before the outbox table can be changed


def make_engine(settings: Settings, clock: Clock) -> Engine:
    presence, typing = settings.presence, settings.typing
    if settings.engine.url != "memory":
        from greendot.engine.redis.engine import RedisEngine

        return RedisEngine(settings.engine.url, redis_options(settings), clock)
    return MemoryEngine(
        clock,
        grace_ms=round(presence.grace_s * 1000),
        typing_ttl_ms=round(typing.ttl_s * 1000),
        typing_throttle_ms=round(typing.throttle_s * 1000),
        seen_retention_ms=round(presence.last_seen_days * 86_400_000),
    )


def redis_options(settings: Settings) -> Options:
    from greendot.engine.redis.engine import Options
    from greendot.engine.redis.nodes import LeasePeriods

    presence, typing, node = settings.presence, settings.typing, settings.node
    return Options(
        # Nodes that verify the same tokens trust each other, so one secret signs both.
        key=blake2b(settings.auth.secret.encode(), person=b"greendot-bus").digest(),
        prefix=settings.engine.prefix,
        periods=LeasePeriods(node.lease_s, node.renew_s, presence.grace_s),
        typing_ttl_ms=round(typing.ttl_s * 1000),
        typing_throttle_ms=round(typing.throttle_s * 1000),
        seen_retention_ms=round(presence.last_seen_days * 86_400_000),
    )


def lock_store(settings: Settings) -> int | None:
    """Lock the store's file; return the descriptor of the lock, None for a store without a file of its own.

    While the lock is held, no backup replaces the file. With the memory engine no second server may use the file:
    clients of either would miss half of the events. Raise ConfigError if another server holds the lock.
    """
    if settings.store_path in (":memory:", ""):
        return None
    # Nodes that share an engine receive each other's messages.
    lock = lock_file(settings.store_path, alone=settings.engine.url == "memory")
    if lock is None:
        raise ConfigError(
            f"another Greendot is running on {settings.store_path}; servers with the memory engine do not receive each "
            "other's events. Stop the other server, or use another store: --store sqlite:///FILE"
        )
    return lock


def make_store(settings: Settings) -> Store:
    hooked = {tenant: hook.events for tenant, hook in settings.hooks.items()}
    pushed = Pushed(settings)
    if settings.on_postgres:
        from greendot.store.postgres import PostgresStore

        migrate = settings.store.migrate or settings.server.dev
        return PostgresStore(
            settings.store.url, pool=settings.store.pool, migrate=migrate, hooked=hooked, pushed=pushed
        )
    path = settings.store_path
    if path != ":memory:":
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot make the folder of the store {path}: {error.strerror}") from None
    return SqliteStore(path, hooked=hooked, pushed=pushed)


class Pushed(Collection[str]):
    """Tenants that push.

    They cannot all be listed: tenants without settings of their own follow the section [push].
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def __contains__(self, tenant: object) -> bool:
        return isinstance(tenant, str) and self._settings.push_of(tenant).pushes

    def __iter__(self) -> Iterator[str]:
        return iter([tenant for tenant in ("default", *self._settings.tenants) if tenant in self])

    def __len__(self) -> int:
        return len([*self])


def pushes(settings: Settings) -> Callable[[str], bool]:
    """Return a predicate: whether a tenant pushes."""
    return lambda tenant: settings.push_of(tenant).pushes


def make_outbox(settings: Settings) -> PostgresOutbox:
    from greendot.store.postgres import PostgresOutbox

    return PostgresOutbox(settings.outbox_url, settings.outbox.poll_s)


async def check_outbox(settings: Settings) -> None:
    """Create the outbox table if it is missing; raise ConfigError if the settings do not allow that.

    Add the newest columns if the settings and the rights of the server allow that: the relay works without them. A
    database that cannot be reached now is no error: the relay waits for it.
    """
    if not settings.outbox.url:
        return
    outbox, may_install = make_outbox(settings), settings.store.migrate or settings.server.dev
    try:
        is_current = await outbox.check()
    except StoreUnavailable:
        return
    except ConfigError:
        if not may_install:
            raise
        await outbox.install()
        return
    if not is_current:
        await _upgrade(outbox, may_install)


async def _upgrade(outbox: PostgresOutbox, may_install: bool) -> None:
    """Add the newest columns to the outbox table, or log that they are missing."""
    reason = "the server does not change tables (store.migrate)"
    if may_install:
        try:
            await outbox.install(UPGRADE_S)
            return
        except ConfigError as error:
            if await outbox.check():
                return  # another server was faster
            reason = str(error)
    log(log_events.OUTBOX_OLD, reason=reason)
