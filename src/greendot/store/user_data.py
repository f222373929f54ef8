"""All that the store has of one user: to be handed out, and to be erased. For operators; both take their time.

Which tables these are is asked of the database, so that none can be forgotten: every one with a user in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

ERASED = "erased"  # the `op` of a message whose author was erased: the number stays, what it said does not
NOTHING = b"null"  # its body
USERS = ("user", "user_id")  # columns that say whose a row is
OTHERS = "other"  # one that names the user in somebody else's row
_UNINDEXED = ("markers", "pushes")  # by user: they are looked through from end to end, a window at a time
_BY_USER = {"messages": ("room", "key")}  # how an index by user goes on where that is not the primary key
_LAST = ("notifications", "inboxes")  # the counters after what they count


class ExportCursor(NamedTuple):
    """How far somebody has come."""

    table: str
    after: tuple[Any, ...] = ()  # the last row's key; empty: none was looked at


class UserRows(NamedTuple):
    """A page of what there is of a user."""

    rows: list[tuple[str, dict[str, Any]]]  # each with the table it is in
    next: ExportCursor | None  # None: this was the last


class Erased(NamedTuple):
    """What one step erased."""

    rows: int  # removed, or emptied
    next: ExportCursor | None  # None: nothing is left


class UserDataStore(Protocol):
    """The user's rows, in every table there is."""

    async def rows_of(self, tenant: str, user: str, place: ExportCursor | None, *, limit: int) -> UserRows:
        """The rows from `place` on (None: from the beginning), of at most `limit` that are looked at. Pages may be
        empty."""
        ...

    async def erase_user(self, tenant: str, user: str, place: ExportCursor | None, *, limit: int) -> Erased:
        """Erase from `place` on, at most `limit` rows in one commit. Begun again after it was cut short, it goes on.

        Messages keep their number, id and time, and lose body, name, author and key; all else is removed. Who had the
        user as a contact, or hidden from, has not any more. Counters are right after every step. Revocations stay until
        they end: without them tokens of the user would be good again.
        """
        ...


class Table(NamedTuple):
    """One with users in it."""

    name: str  # as in the database
    plain: str  # as operators know it
    owner: str  # the column that says whose a row is
    key: tuple[str, ...]  # what tells the rows of a user apart, in the order of an index
    walked: bool  # there is no index by user
    names_others: bool

    @property
    def keys(self) -> str:
        return ", ".join(self.key)


def tables_of(columns: Mapping[str, Sequence[str]], keys: Mapping[str, Sequence[str]], prefix: str) -> list[Table]:
    """The tables with users, in the order they are looked through in."""
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
    """The table to look at, and the one after it."""
    index = 0 if place is None else next(i for i, table in enumerate(tables) if table.plain == place.table)
    return tables[index], tables[index + 1] if index + 1 < len(tables) else None


def export_page(
    table: Table, following: Table | None, rows: list[dict[str, Any]], last: tuple[Any, ...], limit: int
) -> UserRows:
    """Make a page of a table's rows. `last`: in a table without an index by user, the key of the last row read."""
    if not table.walked and len(rows) == limit and table.key:
        last = tuple(rows[-1][column] for column in table.key)
    cursor = ExportCursor(table.plain, last) if last else following and ExportCursor(following.plain)
    return UserRows([(table.plain, row) for row in rows], cursor)
