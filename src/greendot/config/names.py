"""Names that people give (of tenants, users, kinds), and what nobody may read."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from greendot.config.mistakes import Mistake, Mistakes
from greendot.errors import ConfigError
from greendot.ids import ID_RULE, valid_id

Secret = Annotated[str, Meta(extra={"secret": True})]  # a setting that is shown nowhere


def check_id(what: str, text: str) -> str:
    """`text` if it may be an id, else ConfigError."""
    if not valid_id(text):
        raise ConfigError(_sentence(what, text))
    return text


def check_name(key: str, what: str, text: str) -> Mistakes:
    """The same for a name in the settings."""
    if not valid_id(text):
        yield Mistake((key,), _sentence(what, text))


def _sentence(what: str, text: str) -> str:
    return f"{what} {text!r} is not a valid id: {ID_RULE}."
