"""Types and checks that sections share. A mistake is a sentence with the setting and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, get_origin

from msgspec import Meta, Struct

from greendot.errors import ConfigError
from greendot.ids import ID_RULE, valid_id

LEAST_SECRET = 32  # characters
Mistakes = Iterator[str]
Secret = Annotated[str, Meta(extra={"secret": True})]  # a setting that is never printed
Seconds = Annotated[float, Meta(ge=0, le=30 * 86_400)]
Positive = Annotated[float, Meta(gt=0, le=30 * 86_400)]
Count = Annotated[int, Meta(ge=1, le=10_000_000)]
Rate = Annotated[int, Meta(ge=0, le=10_000_000)]
Port = Annotated[int, Meta(ge=0, le=65535)]


def about(text: str) -> Meta:
    """Return the annotation that describes a setting in the generated reference."""
    return Meta(description=text)


def split(kind: Any) -> tuple[Any, tuple[Meta, ...]]:
    """Return the type of a setting without its annotations, and the annotations."""
    return (kind.__origin__, kind.__metadata__) if get_origin(kind) is Annotated else (kind, ())


def is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def description(kind: Any) -> str:
    """Return the text that `about` gave a type; empty if there is none."""
    return next((meta.description for meta in split(kind)[1] if meta.description), "")


def is_secret(kind: Any) -> bool:
    """Return whether a type is `Secret`."""
    return any((meta.extra or {}).get("secret") for meta in split(kind)[1])


def refuse(mistakes: Iterable[str]) -> None:
    """Raise ConfigError with all mistakes, if there are any."""
    if found := [*mistakes]:
        raise ConfigError(*found)


def check_length(setting: str, secret: str) -> Mistakes:
    """Yield a mistake if a secret is set and short enough to be guessed."""
    if 0 < len(secret) < LEAST_SECRET:
        yield (
            f"{setting} is shorter than {LEAST_SECRET} characters, so it could be guessed. "
            "Generate a longer one with: openssl rand -hex 32"
        )


def check_name(what: str, text: str) -> Mistakes:
    """Yield a mistake if a name in the settings is not a valid id."""
    if not valid_id(text):
        yield f"{what} {text!r} is not a valid id: {ID_RULE}."


def check_id(what: str, text: str) -> str:
    """Return `text` if it is a valid id, else raise ConfigError."""
    refuse(check_name(what, text))
    return text
