"""Parser of outbox rows: a notification, a message, or the reason why a row cannot be sent. Pure and deterministic."""

from __future__ import annotations

from typing import NamedTuple, get_args

import msgspec

from greendot.ids import ID_RULE, valid_id
from greendot.protocol.codec import MAX_FRAME
from greendot.protocol.decoding import MAX_DEPTH, VAST_NUMBER, has_vast_number, is_too_deep
from greendot.push.policy_model import Importance
from greendot.store.app_outbox import MOST_BODY, OutboxRow, SetAside
from greendot.store.inbox import Notice
from greendot.store.rooms import Draft

MOST_NAME = 200  # characters, as on the wire
_BEYOND_S = 253_402_300_800.0  # the year 10,000
_IMPORTANCES: dict[str, Importance] = {name: name for name in get_args(Importance)}
_TOO_DEEP = f"body may be nested at most {MAX_DEPTH} levels deep"


class NoticeRow(NamedTuple):
    """Row with a notification for an inbox."""

    id: int
    notice: Notice


class MessageRow(NamedTuple):
    """Row with a message for a room."""

    id: int
    tenant: str
    room: str
    draft: Draft


class _Unfit(Exception):
    """Error with the reason why a row cannot be sent."""


def parse_row(row: OutboxRow) -> NoticeRow | MessageRow | SetAside:
    try:
        tenant, user = _id("tenant", row.tenant), _id("user_id", row.user)
        at, body, key = _ms("created_at", row.created_s), _body(row.body), _key(row)
        if row.target == "message":
            if len(row.name or "") > MOST_NAME:
                raise _Unfit(f"name may have at most {MOST_NAME} characters")
            if (row.importance, row.collapse_key, row.push) != (None, None, None):
                raise _Unfit("importance, collapse_key and push are for notifications, and must be NULL in a message")
            return MessageRow(row.id, tenant, _id("room", row.room), Draft(user, row.name, body, key, at))
        notice = Notice(
            tenant,
            user,
            _id("kind", row.kind),
            body,
            key,
            at,
            expires_at=None if row.expires_s is None else _ms("expires_at", row.expires_s),
            push=row.push is not False,
            importance=_importance(row.importance),
            room=_id("room", row.room) if row.room else None,  # earlier versions ignored the room, even an empty one
            collapse=None if row.collapse_key is None else _id("collapse_key", row.collapse_key),
        )
        return NoticeRow(row.id, notice)
    except _Unfit as error:
        return SetAside(row.id, str(error))


def _key(row: OutboxRow) -> str:
    """Return the row's own key, or one made of its id and creation time.

    Ids start again when a database is created anew. The time keeps such a row from being taken for an old row with the
    same id.
    """
    return _id("key", row.key) if row.key is not None else f"outbox-{row.id}-{round(row.created_s * 1_000_000)}"


def _importance(text: str | None) -> Importance:
    if text is None:
        return "normal"
    if text not in _IMPORTANCES:
        raise _Unfit(f"importance {text[:64]!r} must be one of {', '.join(_IMPORTANCES)}")
    return _IMPORTANCES[text]


def _id(what: str, text: str | None) -> str:
    if text is None or not valid_id(text):
        raise _Unfit(f"{what} {(text or '')[:64]!r} is not a valid id: {ID_RULE}")
    return text


def _ms(what: str, seconds: float) -> int:
    if not 0 <= seconds < _BEYOND_S:
        raise _Unfit(f"{what} is not a time between 1970 and 9999")
    return round(seconds * 1000)


def _body(text: str) -> bytes:
    """Return the body as JSON without the whitespace that PostgreSQL adds."""
    if len(text) >= MOST_BODY:
        raise _Unfit(f"body may have at most {MAX_FRAME} bytes")
    try:
        body = msgspec.json.format(text.encode(), indent=-1)
    except (msgspec.DecodeError, RecursionError):
        raise _Unfit(_TOO_DEEP) from None
    if is_too_deep(body):
        raise _Unfit(_TOO_DEEP)
    if has_vast_number(body):
        raise _Unfit(f"body {VAST_NUMBER}")
    if len(body) > MAX_FRAME:
        raise _Unfit(f"body may have at most {MAX_FRAME} bytes, and has {len(body)}")
    return body
