"""What is given to a call, checked and put as the API takes it."""

from __future__ import annotations

import secrets
from datetime import timedelta

from greendot.ids import ID_RULE, valid_id


def checked(what: str, text: str) -> str:
    """An id, as it goes into a path: what is none could lead elsewhere."""
    if not isinstance(text, str) or not valid_id(text):
        raise ValueError(f"{what} is not a valid id: {ID_RULE}")
    return text


def given(**fields: object) -> dict[str, object]:
    """Those that are there."""
    return {name: value for name, value in fields.items() if value is not None}


def query(**fields: str | int | None) -> dict[str, str | int]:
    return {name: value for name, value in fields.items() if value is not None}


def seconds(duration: float | timedelta | None) -> float | None:
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


def new_key() -> str:
    """A name for one message or notification, so that asked for again it is the same one."""
    return secrets.token_hex(12)
