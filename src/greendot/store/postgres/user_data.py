"""Export and erasure of one user's data, in PostgreSQL."""

from __future__ import annotations

from typing import Any

from greendot.store.postgres.inbox import LOCK as LOCK_INBOXES
from greendot.store.postgres.messages import LOCK as LOCK_ROOMS
from greendot.store.postgres.messages import columns
from greendot.store.postgres.pool import Link, Pool
from greendot.store.postgres.tenants import PARTS, is_chosen
from greendot.store.user_data import (
    ERASED,
    NOTHING,
    Erased,
    ExportCursor,
    Table,
    UserDataStore,
    UserRows,
    at,
    export_page,
    tables_of,
)

_PREFIX = "greendot_"
_COLUMNS = """
    SELECT c.relname, array_agg(a.attname::text ORDER BY a.attnum),
           (SELECT array_agg(k.attname::text ORDER BY array_position(i.indkey::int2[], k.attnum))
            FROM pg_index i JOIN pg_attribute k ON k.attrelid = i.indrelid AND k.attnum = ANY (i.indkey::int2[])
            WHERE i.indrelid = c.oid AND i.indisprimary)
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE c.relkind IN ('r', 'p') AND c.relname LIKE 'greendot\\_%' AND pg_table_is_visible(c.oid)
    GROUP BY c.oid, c.relname ORDER BY c.relname
"""
_ANONYMOUS = f"user_id = '', name = NULL, body = '\\x{NOTHING.hex()}'::bytea, key = 'erased-' || t.seq, op = '{ERASED}'"
_LOWER = """
    UPDATE greendot_inboxes SET unread = unread - $3, unseen = unseen - $4 WHERE tenant = $1 AND user_id = $2
"""
_UNHIDE, _UNHIDE_RECEIPTS = (
    f"""
    UPDATE {table} SET {column} = btrim(replace(' ' || {column} || ' ', ' ' || $2 || ' ', ' '))
    WHERE tenant = $1 AND {column} <> '' AND position(' ' || $2 || ' ' IN ' ' || {column} || ' ') > 0
    """
    for table, column in (("greendot_privacy", "hide_from"), ("greendot_receipts", "hidden_from"))
)
_UNNAME = "UPDATE greendot_audit SET actor = '', reason = NULL WHERE tenant = $1 AND actor = $2"
_UNNAME_ACTOR = "UPDATE greendot_restrictions SET actor = '' WHERE tenant = $1 AND actor = $2"
_UNTELL = "DELETE FROM greendot_hook_events WHERE tenant = $1 AND stream = $2 AND type LIKE 'notification.%'"


class PostgresPeople:
    """PostgreSQL adapter of `UserDataStore`."""

    _links: Pool

    async def rows_of(self, tenant: str, user: str, place: ExportCursor | None, *, limit: int) -> UserRows:
        async def work(link: Link) -> UserRows:
            table, following = at(await _tables(link), place)
            after = place.after if place is not None else ()
            where, values, last = await _window(link, table, tenant, user, after, limit)
            rows: list[dict[str, Any]] = []
            for part in PARTS.get(table.name, ("",)):
                found = await link.fetch(
                    f"SELECT * FROM {table.name} WHERE {where} {part} {_order(table, limit)}", *values
                )
                rows += [dict(row) for row in found]
            rows = sorted(rows, key=lambda row: [row[column] for column in table.key])[:limit]
            return export_page(table, following, rows, last, limit)

        return await self._links.transact(work)

    async def erase_user(self, tenant: str, user: str, place: ExportCursor | None, *, limit: int) -> Erased:
        async def work(link: Link) -> Erased:
            table, following = at(await _tables(link), place)
            after = place.after if place is not None else ()
            if not after:
                await _forget(link, table, tenant, user)
            where, values, last = await _window(link, table, tenant, user, after, limit)
            count = 0
            for part in PARTS.get(table.name, ("",)):
                count += await _erase(link, table, f"{where} {part}", values, limit - count)
            if not table.walked and count == limit:
                return Erased(count, ExportCursor(table.plain))  # from the start again: the rows read are gone
            return Erased(
                count, ExportCursor(table.plain, last) if last else following and ExportCursor(following.plain)
            )

        return await self._links.transact(work)


async def _tables(link: Link) -> list[Table]:
    found = await link.fetch(_COLUMNS)
    return tables_of({row[0]: row[1] for row in found}, {row[0]: row[2] for row in found}, _PREFIX)


async def _window(
    link: Link, table: Table, tenant: str, user: str, after: tuple[Any, ...], limit: int
) -> tuple[str, tuple[Any, ...], tuple[Any, ...]]:
    """Return a condition for the next rows, its values, and the key of the last row if more rows may follow."""
    beyond = f" AND ({table.keys}) > ({_marks(after, 3)})" if after else ""
    where, values = f"tenant = $1 AND {table.owner} = $2{beyond}", (tenant, user, *after)
    if not table.walked:
        return where, values, ()
    beyond = f" AND ({table.keys}) > ({_marks(after, 2)})" if after else ""
    sql = f"SELECT {table.keys} FROM {table.name} WHERE tenant = $1{beyond} ORDER BY {table.keys} LIMIT 1"
    last = await link.fetchrow(f"{sql} OFFSET {limit - 1:d}", tenant, *after)
    if last is None:
        return where, values, ()
    upto = f" AND ({table.keys}) <= ({_marks(tuple(last), 3 + len(after))})"
    return where + upto, (*values, *last), tuple(last)


def _marks(values: tuple[Any, ...], first: int) -> str:
    return ", ".join(f"${number}" for number in range(first, first + len(values)))


def _order(table: Table, limit: int) -> str:
    return (f"ORDER BY {table.keys} " if table.key else "") + f"LIMIT {limit:d}"


async def _erase(link: Link, table: Table, where: str, values: tuple[Any, ...], limit: int) -> int:
    """Erase rows; return how many.

    The head of the inbox or room is locked first, as in every transaction that changes its rows or reactions.
    """
    tenant, user = values[:2]
    if table.plain == "notifications":
        await link.fetch(LOCK_INBOXES, [tenant], [user])
    if table.plain in ("members", "messages", "reactions"):
        found = await link.fetch(f"SELECT room FROM {table.name} WHERE {where} {_order(table, limit)}", *values)
        await link.fetch(LOCK_ROOMS, *columns(sorted({(tenant, row[0]) for row in found}), 2))
    key = [*dict.fromkeys(("tenant", table.owner, *table.key))]
    some = f"SELECT {', '.join(key)} FROM {table.name} WHERE {where} {_order(table, limit)} FOR UPDATE"
    chosen = f"WITH chosen AS MATERIALIZED ({some})"
    if table.plain == "messages":
        sql = f"{chosen} UPDATE {table.name} t SET {_ANONYMOUS} FROM chosen WHERE {is_chosen(key)}"
        return _count(await link.execute(sql, *values))
    if table.plain == "audit":
        sql = f"{chosen} UPDATE {table.name} t SET user_id = NULL, reason = NULL FROM chosen WHERE {is_chosen(key)}"
        return _count(await link.execute(sql, *values))
    delete = f"{chosen} DELETE FROM {table.name} t USING chosen WHERE {is_chosen(key)}"
    if table.plain == "notifications":
        gone = await link.fetch(f"{delete} RETURNING t.read_at, t.seen_at", *values)
        await link.execute(_LOWER, tenant, user, *(sum(row[i] is None for row in gone) for i in range(2)))
        return len(gone)
    if table.plain == "members":
        gone = await link.fetch(f"{delete} RETURNING t.room", *values)
        sql = "UPDATE greendot_rooms SET members_rev = members_rev + 1 WHERE tenant = $1 AND room = ANY ($2)"
        await link.execute(sql, tenant, [row[0] for row in gone])
        return len(gone)
    return _count(await link.execute(delete, *values))


def _count(status: str) -> int:
    return int(status.rpartition(" ")[2])


async def _forget(link: Link, table: Table, tenant: str, user: str) -> None:
    """Remove the user from rows of other users, and the queued webhook events of the user's notifications."""
    if table.names_others:
        await link.execute(f"DELETE FROM {table.name} WHERE tenant = $1 AND other = $2", tenant, user)
    if table.plain == "privacy":
        await link.execute(_UNHIDE, tenant, user)
    if table.plain == "receipts":
        await link.execute(_UNHIDE_RECEIPTS, tenant, user)
    if table.plain == "audit":
        await link.execute(_UNNAME, tenant, user)
    if table.plain == "restrictions":
        await link.execute(_UNNAME_ACTOR, tenant, user)
    if table.plain == "notifications":
        await link.execute(_UNTELL, tenant, user)


_: type[UserDataStore] = PostgresPeople
