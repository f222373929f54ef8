"""Connection pool of PostgreSQL: reconnects, limits the time of every call, and translates errors."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

import asyncpg
from msgspec import Struct

from greendot.errors import ConfigError, GreendotError, RoomBeingDeleted, StoreUnavailable, Unstorable
from greendot.telemetry import log_events
from greendot.telemetry.log_repeats import Outage

T = TypeVar("T")
Link = Any  # a connection lent by the pool: the wrapper of asyncpg (PoolConnectionProxy)
Rows = list[Any]

LONGEST_PAUSE_S = 0.25


class PoolLimits(Struct, frozen=True):
    """Time limits of a pool."""

    connect_s: float = 3.0
    acquire_s: float = 4.0  # wait for a free connection
    statement_s: float = 10.0
    lock_s: float = 2.0  # wait for another transaction
    patience_s: float = 5.0  # time in which a call is retried

    @property
    def call_s(self) -> float:
        return self.statement_s + 1  # the server's own limit comes first, if the server is alive

    @property
    def stall_s(self) -> float:
        """Return how long a node may stall inside a transaction.

        Meanwhile it has locked rows of rooms and inboxes, and other nodes that write to them wait.
        """
        return self.statement_s / 2

    def settings(self) -> dict[str, str]:
        """Return the limits as settings of PostgreSQL."""
        return {
            "statement_timeout": f"{self.statement_s * 1000:.0f}ms",
            "idle_in_transaction_session_timeout": f"{self.stall_s * 1000:.0f}ms",
            "lock_timeout": f"{self.lock_s * 1000:.0f}ms",
        }


_SETTINGS = {
    "default_transaction_isolation": "read committed",
    # Plans are cached per connection. A plan from an empty table would still be used when it has a million rows.
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",  # takes longer than any statement of Greendot
}
# A new statement is prepared in one message and executed in the next. If a node stalls in between,
# `idle_in_transaction_session_timeout` does not apply, because PostgreSQL counts the session as active (wait event
# ClientRead). So Greendot ends such sessions itself with this statement.
END_STALLED = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND usename = session_user
      AND application_name = current_setting('application_name')
      AND state = 'active' AND wait_event = 'ClientRead' AND state_change < clock_timestamp() - $1::interval
"""
_END_STALLED = f"{END_STALLED} AND query LIKE '%greendot%'"  # the app may connect with the same URL
# Errors after which the connection is still usable, unless the server has closed it: the server replied with an error,
# or the driver refused a value.
_ANSWERED = (asyncpg.PostgresError, asyncpg.DataError)
_CONTENDED = {"40001", "40P01", "55P03", "57014"}  # serialization, deadlock, lock not available, statement timeout
_DELETED = "GD001"  # raised by a trigger of Greendot
_UNSTORABLE = {"22", "23", "54"}  # classes: data, integrity, program limit


class Contended(StoreUnavailable):
    """Conflict with another transaction; nothing was written."""


class _Connection(asyncpg.Connection):  # type: ignore[misc]
    def get_reset_query(self) -> str:
        return ""  # no code changes a session, and a reset would cost every call a round trip


class Pool:
    """Pool of at most `size` connections."""

    def __init__(self, url: str, size: int, limits: PoolLimits) -> None:
        self._url = url
        self._size = size
        self.limits = limits
        self._pool: Any = None
        self._absence = Outage(log_events.STORE_LOST, log_events.STORE_BACK)

    async def open(self) -> None:
        """Open the pool. ConfigError if no connection can be made."""
        try:
            self._pool = await asyncpg.create_pool(
                self._url,
                min_size=1,
                max_size=self._size,
                timeout=self.limits.connect_s,
                connection_class=_Connection,
                server_settings=self._settings(),
            )
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, ValueError) as error:
            raise self.unusable(error) from None

    def _settings(self) -> dict[str, str]:
        name = {} if "application_name=" in self._url else {"application_name": "greendot"}
        return _SETTINGS | self.limits.settings() | name

    def unusable(self, error: Exception) -> ConfigError:
        return ConfigError(f"cannot use the store {place(self._url)}: {words(error)}")

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            async with asyncio.timeout(2.0):
                await pool.close()
        except (TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            pool.terminate()

    async def fetch(self, sql: str, *values: object) -> Rows:
        """Return the rows of one statement; retries for `patience_s` while PostgreSQL is unavailable or contended."""
        return await self.patiently(lambda: self._once(lambda link: link.fetch(sql, *values)))

    async def transact(self, work: Callable[[Link], Awaitable[T]]) -> T:
        """Run `work` in one transaction; retries for `patience_s`, so `work` must be idempotent."""
        return await self.patiently(lambda: self.transact_once(work))

    async def ping(self) -> None:
        await self._once(lambda link: link.fetch("SELECT 1"), self.limits.connect_s)

    async def transact_once(self, work: Callable[[Link], Awaitable[T]], limit_s: float | None = None) -> T:
        """Run `work` in one transaction, without retry.

        After Contended and Unstorable nothing was written. After any other StoreUnavailable it is unknown whether
        `work` was committed.
        """

        async def transaction(link: Link) -> T:
            await link.execute("BEGIN")
            try:
                result = await work(link)
                await link.execute("COMMIT")
            except _ANSWERED:
                if _is_open(link):
                    await link.execute("ROLLBACK")
                raise
            return result

        return await self._once(transaction, limit_s)

    async def patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        loop = asyncio.get_running_loop()
        end, pause = loop.time() + self.limits.patience_s, 0.01
        while True:
            try:
                return await attempt()
            except StoreUnavailable:
                if self._pool is None or loop.time() + pause > end:
                    raise
            await asyncio.sleep(pause)
            pause = longer(pause)

    async def _once(self, work: Callable[[Link], Awaitable[T]], limit_s: float | None = None) -> T:
        if self._pool is None:
            raise StoreUnavailable("the store is closed")
        try:
            async with self._pool.acquire(timeout=self.limits.acquire_s) as link:
                async with asyncio.timeout(limit_s or self.limits.call_s):
                    try:
                        done = await self._worked(link, work)
                    except _ANSWERED:
                        raise
                    except BaseException:
                        # The call was cut off: the next reply on this connection may belong to the old statement.
                        with suppress(asyncpg.InterfaceError):  # the connection may be lost already
                            link.terminate()
                        raise
        except Exception as error:
            told = translated(error)
            if type(told) is StoreUnavailable and self._pool is not None:
                self._absence.began(told)
            raise told from error
        if self._absence.is_away:
            self._absence.ended()
        return done

    async def _worked(self, link: Link, work: Callable[[Link], Awaitable[T]]) -> T:
        """Run `work`. After a lock timeout, end the sessions of stalled nodes: one may hold the lock."""
        try:
            return await work(link)
        except asyncpg.LockNotAvailableError:
            with suppress(*_ANSWERED, asyncpg.InterfaceError):
                await link.fetch(_END_STALLED, timedelta(seconds=self.limits.stall_s))
            raise


def _is_open(link: Link) -> bool:
    try:
        return not link.is_closed()
    except asyncpg.InterfaceError:  # the pool has taken the connection back, because it was lost
        return False


def longer(pause: float) -> float:
    """Return the next pause: longer, with jitter so that nodes do not retry together."""
    return min(pause * 2, LONGEST_PAUSE_S) * random.uniform(0.7, 1.0)


def translated(error: Exception) -> Exception:
    """Return Greendot's error for an error of the driver; other errors are returned unchanged."""
    if isinstance(error, GreendotError):
        return error
    if isinstance(error, asyncpg.DataError):
        return Unstorable(words(error))
    if isinstance(error, asyncpg.PostgresError):
        code = error.sqlstate or ""
        if code in _CONTENDED:
            return Contended(words(error))
        if code == _DELETED:
            return RoomBeingDeleted(words(error))
        return Unstorable(words(error)) if code[:2] in _UNSTORABLE else StoreUnavailable(words(error))
    if isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError | OSError | TimeoutError):
        return StoreUnavailable(words(error))
    return error


def words(error: Exception) -> str:
    """Describe the error in one line, with advice where there is any."""
    if isinstance(error, ssl.SSLCertVerificationError):
        said = f"the server's certificate is not trusted: {error.verify_message.rstrip('.')}."
        if "mismatch" in error.verify_message:
            return f"{said} Connect by a host name in the certificate."
        return f"{said} Name its authority with sslrootcert=FILE in the URL."
    if isinstance(error, FileNotFoundError):
        return "a file in the URL does not exist (sslrootcert, sslcert, sslkey, or the socket)"
    return str(error).partition("\n")[0] or type(error).__name__


def place(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"
