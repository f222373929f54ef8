"""Names that people give: of tenants, users, kinds."""

from __future__ import annotations

from greendot.errors import ConfigError
from greendot.ids import ID_RULE, valid_id


def check_id(what: str, text: str) -> str:
    """`text` if it may be an id, else ConfigError."""
    if not valid_id(text):
        raise ConfigError(f"{what} {text!r} is not a valid id: {ID_RULE}.")
    return text
