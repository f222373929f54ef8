"""Facts about a PostgreSQL server, read in bounded time."""

from __future__ import annotations

import asyncio
import time
from ipaddress import ip_address
from typing import Any

import asyncpg

from greendot.ops.facts_model import PostgresFacts
from greendot.store.postgres.pool import place, words

CONNECT_S = 3.0
LIMIT_S = 8.0

_SETTINGS = """
    SELECT current_setting('server_version_num')::int AS version,
           pg_is_in_recovery() OR current_setting('default_transaction_read_only')::bool AS read_only,
           current_setting('server_encoding') AS encoding,
           current_setting('fsync')::bool AS fsync,
           current_setting('synchronous_commit') AS synchronous_commit,
           current_setting('full_page_writes')::bool AS full_page_writes,
           current_setting('autovacuum')::bool AS autovacuum,
           (SELECT reset_val::int FROM pg_settings WHERE name = 'statement_timeout') AS statement_timeout_ms,
           current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
               AS most_connections,
           (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) AS superuser,
           coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false) AS tls
"""


async def postgres_facts(url: str) -> PostgresFacts:
    """Return the facts of the server, with `trouble` if it cannot be reached in time."""
    try:
        async with asyncio.timeout(LIMIT_S):
            link = await asyncpg.connect(url, timeout=CONNECT_S, command_timeout=CONNECT_S)
            try:
                return await _ask(link, place(url))
            finally:
                link.terminate()
    except TimeoutError:
        return PostgresFacts(place=place(url), trouble="it did not answer in time")
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, ValueError) as error:
        return PostgresFacts(place=place(url), trouble=words(error))


async def _ask(link: Any, shown: str) -> PostgresFacts:
    # A short limit of the login is a finding, and must end no query here.
    await link.execute("SET statement_timeout = 0")
    found = dict(await link.fetchrow(_SETTINGS))
    server = await link.fetchval("SELECT host(inet_server_addr())")
    asked = time.time()
    theirs = await link.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8")
    now = (asked + time.time()) / 2  # the server is assumed to read its clock halfway between request and reply
    return PostgresFacts(
        place=shown,
        local=server is None or ip_address(server).is_loopback,
        tables=await _most(link, "greendot_schema", "coalesce(max(version), 0)"),
        api_keys=await _most(link, "greendot_api_keys", "count(*)"),
        skew_ms=(theirs - now) * 1000,
        **found,
    )


async def _most(link: Any, table: str, what: str) -> int:
    """Return the value of the aggregate `what` over the table; 0 if there is no such table."""
    if await link.fetchval("SELECT to_regclass($1) IS NULL", table):
        return 0
    return int(await link.fetchval(f"SELECT {what} FROM {table}"))
