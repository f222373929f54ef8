"""What is wrong with settings: all of it is found before any of it is said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, NamedTuple

from msgspec import Meta

from greendot.errors import ConfigError
from greendot.ids import ID_RULE, valid_id


class Mistake(NamedTuple):
    """One thing, in a sentence a person can act on. A key may be a whole section: `auth`."""

    keys: tuple[str, ...]  # the settings it is about, such as `presence.grace_s`
    sentence: str

    def touches(self, keys: Iterable[str]) -> bool:
        """Whether it is about one of these settings or sections, or about a part of one."""
        return any(within(mine, other) or within(other, mine) for mine in self.keys for other in keys)


Mistakes = Iterator[Mistake]


def within(key: str, place: str) -> bool:
    """Whether a setting is `place` or in it."""
    return key == place or key.startswith((f"{place}.", f"{place}["))


def refuse(mistakes: Iterable[Mistake]) -> None:
    """ConfigError with all of them, if there are any."""
    if sentences := [mistake.sentence for mistake in mistakes]:
        raise ConfigError(*sentences)


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
