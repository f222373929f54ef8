"""Mistakes in settings: each is a sentence that names the setting and says what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated

from msgspec import Meta

from greendot.errors import ConfigError
from greendot.ids import ID_RULE, valid_id

LEAST_SECRET = 32  # characters
Mistakes = Iterator[str]
Secret = Annotated[str, Meta(extra={"secret": True})]  # a setting that is never printed


def refuse(mistakes: Iterable[str]) -> None:
    """Raise ConfigError with all mistakes, if there are any."""
    if found := [*mistakes]:
        raise ConfigError(*found)


def check_length(setting: str, secret: str) -> Mistakes:
    """Mistake if a secret is set and could be guessed."""
    if 0 < len(secret) < LEAST_SECRET:
        yield (
            f"{setting} is shorter than {LEAST_SECRET} characters and could be guessed. "
            "Make one with: openssl rand -hex 32"
        )


def check_name(what: str, text: str) -> Mistakes:
    """Mistake if a name in the settings is not a valid id."""
    if not valid_id(text):
        yield f"{what} {text!r} is not a valid id: {ID_RULE}."


def check_id(what: str, text: str) -> str:
    """Return `text` if it is a valid id, else raise ConfigError."""
    refuse(check_name(what, text))
    return text
