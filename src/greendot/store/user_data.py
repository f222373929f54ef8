"""Port for the export and erasure of one user's data. For operators; both are slow.

The tables are found in the database catalogue, so that none can be forgotten: every table with a user column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

ERASED = "erased"  # `op` of a message whose author was erased: the number stays, the content does not
NOTHING = b"null"  # body of an erased message
USERS = ("user", "user_id")  # columns with the owner of a row
OTHERS = "other"  # column that names the user in another user's row
_UNINDEXED = (
    "markers",
    "pushes",
    "receipts",
    "visibility_changes",
)  # tables without an index by user: read from end to end, one window at a time
_BY_USER = {"messages": ("room", "key")}  # further columns of the index by user, where that is not the primary key
_LAST = ("notifications", "inboxes")  # processed last; counters after the rows they count


class ExportCursor(NamedTuple):
    """Position of an export or an erasure."""

    table: str
    after: tuple[Any, ...] = ()  # key of the last row read; empty: start of the table


class UserRows(NamedTuple):
    """Page of a user's rows."""

    rows: list[tuple[str, dict[str, Any]]]  # each with the name of its table
    next: ExportCursor | None  # None: this was the last page


class Erased(NamedTuple):
    """Result of one step of an erasure."""

    rows: int  # removed or emptied
    next: ExportCursor | None  # None: nothing is left


class UserDataStore(Protocol):
    """Port for a user's rows in all tables."""

    async def rows_of(self, tenant: str, user: str, place: ExportCursor | None, *, limit: int) -> UserRows:
        """Return the user's rows from `place` on (None: from the beginning).

        Reads at most `limit` rows. In tables without an index by user, rows of other users count, so a page may be
        empty.
        """
        ...

    async def erase_user(self, tenant: str, user: str, place: ExportCursor | None, *, limit: int) -> Erased:
        """Erase from `place` on, at most `limit` rows in one commit. An interrupted erasure may be started again.

        Messages keep their number, id and time, and lose body, name, author and key. Entries of the audit keep their
        action, and lose the user and the reason. All other rows are removed. The user is also removed from the contacts
        and the hide lists of other users. Counters are right after every step.
        Revocations stay until they end: without them tokens of the user would be valid again.
        """
        ...


class Table(NamedTuple):
    """Table with rows of users."""

    name: str  # in the database
    plain: str  # without prefix, for operators
    owner: str  # column with the owner of a row
    key: tuple[str, ...]  # columns that identify a row of a user, in the order of an index
    walked: bool  # there is no index by user
    names_others: bool  # has the column `OTHERS`

    @property
    def keys(self) -> str:
        return ", ".join(self.key)


def tables_of(columns: Mapping[str, Sequence[str]], keys: Mapping[str, Sequence[str]], prefix: str) -> list[Table]:
    """Return the tables with rows of users, in the order of export and erasure. For adapters."""
    found = []
    for name, has in columns.items():
        owner = next((column for column in USERS if column in has), None)
        if owner is None or "tenant" not in has:
            continue
        plain = name.removeprefix(prefix)
        walked = plain in _UNINDEXED
        key = tuple(column for column in keys[name] if column != "tenant" and (walked or column != owner))
        found.append(Table(name, plain, owner, _BY_USER.get(plain, key), walked, OTHERS in has))
    return sorted(found, key=lambda table: (_LAST.index(table.plain) if table.plain in _LAST else -1, table.plain))


def at(tables: Sequence[Table], place: ExportCursor | None) -> tuple[Table, Table | None]:
    """Return the table at `place` and the table after it."""
    index = 0 if place is None else next(i for i, table in enumerate(tables) if table.plain == place.table)
    return tables[index], tables[index + 1] if index + 1 < len(tables) else None


def export_page(
    table: Table, following: Table | None, rows: list[dict[str, Any]], last: tuple[Any, ...], limit: int
) -> UserRows:
    """Return a page of a table's rows. `last`: in a table without an index by user, the key of the last row read."""
    if not table.walked and len(rows) == limit and table.key:
        last = tuple(rows[-1][column] for column in table.key)
    cursor = ExportCursor(table.plain, last) if last else following and ExportCursor(following.plain)
    return UserRows([(table.plain, row) for row in rows], cursor)
