"""Outbox for Django: notifications and messages that are written in the transactions of the app.

`greendot outbox` describes the table. Greendot's servers read it, and send a row after its transaction is committed.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, TypedDict, Unpack, get_args
from uuid import UUID

from django.core.serializers.json import DjangoJSONEncoder
from django.db import NotSupportedError, ProgrammingError, connections, router
from django.utils.timezone import is_naive

from greendot.ids import TEXT_RULE, valid_text
from greendot.protocol.codec import MAX_FRAME
from greendot.protocol.decoding import MAX_DEPTH, VAST_NUMBER, has_vast_number, is_too_deep
from greendot.sdk.http import checked
from greendot.sdk.inbox import Importance

MOST_NAME = 200  # characters
NEEDS_POSTGRES = (
    "The outbox needs PostgreSQL. With another database call server().notify() in transaction.on_commit(): then a "
    "notification is lost if the process ends between commit and call."
)
_NO_TABLE = "42P01"  # PostgreSQL's codes
_NO_RIGHT = "42501"
_IMPORTANCES = get_args(Importance)


UserId = str | int | UUID


class NotificationRow(TypedDict, total=False):
    """Options of `notify_on_commit`.

    `room` is the room that the notification is about. On a device, the push replaces an earlier one with the same
    `collapse`. `push=False`: inbox only.
    """

    tenant: str
    expires_at: datetime
    importance: Importance
    room: str
    collapse: str
    push: bool


class MessageRow(TypedDict, total=False):
    """Options of `send_on_commit`. `name` is the name of the sender that other users see."""

    tenant: str
    name: str


def notify_on_commit(
    user: UserId,
    kind: str,
    body: Any = None,
    *,
    key: str | None = None,
    using: str | None = None,
    **options: Unpack[NotificationRow],
) -> None:
    """Write a notification to the outbox, in the current transaction. It is sent if the transaction is committed.

    Without a transaction it is sent at once. With the same `key` two calls are one notification. `using` is the alias
    of a database. Raise ValueError for values that Greendot could not send.
    """
    row: dict[str, Any] = {"target": "notification", "user_id": _user(user), "kind": checked("kind", kind)}
    given: dict[str, Any] = dict(options)
    for name, column in (("room", "room"), ("collapse", "collapse_key")):
        if given.get(name) is not None:
            row[column] = checked(name, given[name])
    if (importance := given.get("importance")) is not None and importance not in _IMPORTANCES:
        raise ValueError(f"importance {importance!r} must be one of {', '.join(_IMPORTANCES)}")
    if (expires_at := given.get("expires_at")) is not None and is_naive(expires_at):
        raise ValueError("expires_at has no time zone; use django.utils.timezone.now() + timedelta(…)")
    row |= {"importance": importance, "expires_at": expires_at, "push": given.get("push")}
    _insert(row, body, key, given.get("tenant"), using)


def send_on_commit(
    room: str,
    body: Any,
    *,
    user: UserId,
    key: str | None = None,
    using: str | None = None,
    **options: Unpack[MessageRow],
) -> None:
    """Write a message of `user` for a room to the outbox, in the current transaction, as `notify_on_commit` does."""
    name = options.get("name")
    if name is not None and (len(name) > MOST_NAME or not valid_text(name)):
        raise ValueError(f"name may have at most {MOST_NAME} characters, and {TEXT_RULE}")
    row = {"target": "message", "room": checked("room", room), "user_id": _user(user), "name": name}
    _insert(row, body, key, options.get("tenant"), using)


def _user(user: UserId) -> str:
    # Not str(user) of any object: of a model instance it is a name, perhaps the id of another user.
    if isinstance(user, bool) or not isinstance(user, str | int | UUID):
        raise ValueError(f"user must be an id, such as request.user.pk, and is of type {type(user).__name__}")
    return checked("user", str(user))


def outbox_database() -> str:
    """Return the alias of the database to write to."""
    from greendot.integrations.django.models import Outbox  # models are loaded after this module

    return str(router.db_for_write(Outbox))


def database_kind(alias: str) -> str:
    """Return `postgresql`, `sqlite` and so on; `unknown` for a project without a database."""
    return str(connections[alias].vendor)


def _insert(row: dict[str, Any], body: Any, key: str | None, tenant: str | None, using: str | None) -> None:
    # Plain SQL: a model would read back the id, for which the app's role needs more than the right to insert.
    alias = using or outbox_database()
    if (kind := database_kind(alias)) != "postgresql":
        raise NotSupportedError(f"there is no outbox in the database {alias!r}, which is {kind}. {NEEDS_POSTGRES}")
    for name, value in (("key", key), ("tenant", tenant)):
        if value is not None:
            row[name] = checked(name, value)
    row["body"] = _json(body)
    columns = [name for name, value in row.items() if value is not None]
    places = ["%s::jsonb" if name == "body" else "%s" for name in columns]
    # Columns are names of this module.
    sql = f"INSERT INTO greendot_outbox ({', '.join(columns)}) VALUES ({', '.join(places)})"  # noqa: S608
    try:
        with connections[alias].cursor() as cursor:
            cursor.execute(sql, [row[name] for name in columns])
    except ProgrammingError as error:
        raise ProgrammingError(f"{error} {_remedy(error, alias)}".rstrip()) from error


def _remedy(error: Exception, alias: str) -> str:
    state = getattr(error.__cause__, "sqlstate", None) or getattr(error.__cause__, "pgcode", None)
    if state == _NO_TABLE:
        return f"Create the table: manage.py migrate greendot --database {alias}, or greendot outbox install --url URL."
    if state == _NO_RIGHT:
        return "The role of the app needs this right: GRANT INSERT ON greendot_outbox TO role."
    return ""


def _json(body: Any) -> str:
    """Return the body as JSON. Dates, UUIDs and decimals are converted as by Django's serializers."""
    try:
        text = json.dumps(body, cls=DjangoJSONEncoder, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        data = text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"body cannot be sent as JSON: {error}") from None
    if fault := _fault(data):
        raise ValueError(f"body {fault}")
    return text


def _fault(data: bytes) -> str:
    """Return the reason why the servers would refuse a body, if there is one."""
    if b"\\u0000" in data.replace(b"\\\\", b""):
        return "has a NUL character, which PostgreSQL does not store"
    if (size := len(data)) > MAX_FRAME:
        return f"may have at most {MAX_FRAME} bytes, and has {size}"
    if is_too_deep(data):
        return f"may be nested at most {MAX_DEPTH} levels deep"
    return VAST_NUMBER if has_vast_number(data) else ""
