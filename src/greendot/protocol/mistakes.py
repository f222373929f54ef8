"""Sentences about invalid values, made from the errors of msgspec."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import msgspec.inspect

from greendot.ids import ID_PATTERN, ID_RULE, TEXT_PATTERN
from greendot.protocol.commands import REACTION_PATTERN
from greendot.protocol.spelling import unknown

_PATTERNS = {
    f"Expected `str` matching regex {pattern!r}": rule
    for pattern, rule in (
        (ID_PATTERN, f"not a valid id: {ID_RULE}"),
        (TEXT_PATTERN, "text must have no NUL and no half of a surrogate pair"),
        (REACTION_PATTERN, "a reaction begins with a visible character, and has no `/` and no control characters"),
    )
}
_WRONG_CHOICE = re.compile(r"Invalid enum value '(.*)' - at `\$(.*)\.(\w+)`", re.DOTALL)


def explained(error: msgspec.ValidationError, kind: Any) -> str:
    """Return the text of an error of msgspec, with the rule of the value in place of a pattern.

    `kind` is the type of the object that was decoded. A wrong word is answered with the nearest allowed one, or all.
    """
    text = str(error)
    for pattern, rule in _PATTERNS.items():
        if pattern in text:
            return text.replace(pattern, rule)
    return _wrong_choice(text, kind) or text


def _wrong_choice(text: str, kind: Any) -> str | None:
    wrong = _WRONG_CHOICE.fullmatch(text)
    found = struct_at(kind, wrong[2]) if wrong else None
    if wrong is None or found is None:
        return None
    types = [_choices(field.type) for field in found.fields if field.encode_name == wrong[3]]
    return f"{unknown('value', wrong[1], types[0])} - at `${wrong[2]}.{wrong[3]}`" if types and types[0] else None


def struct_at(kind: Any, path: str) -> msgspec.inspect.StructType | None:
    """Return the type of the object at `path` in an object of type `kind`; None if there is no such object."""
    return _struct_at(kind, tuple(re.findall(r"\.(\w+)", path)))


@lru_cache(maxsize=256)
def _struct_at(kind: Any, names: tuple[str, ...]) -> msgspec.inspect.StructType | None:
    found = _struct(msgspec.inspect.type_info(kind))
    for name in names:
        found = (
            next((_struct(field.type) for field in found.fields if field.encode_name == name), None) if found else None
        )
    return found


def _struct(kind: msgspec.inspect.Type) -> msgspec.inspect.StructType | None:
    """Return the struct in a type: the type itself, the only struct of a union, or that of a list's items."""
    if isinstance(kind, msgspec.inspect.Metadata):
        return _struct(kind.type)
    if isinstance(kind, msgspec.inspect.ListType):
        return _struct(kind.item_type)
    if isinstance(kind, msgspec.inspect.UnionType):
        return next((found for one in kind.types if (found := _struct(one)) is not None), None)
    return kind if isinstance(kind, msgspec.inspect.StructType) else None


def _choices(kind: msgspec.inspect.Type) -> list[str]:
    """Return the words that a type allows."""
    if isinstance(kind, msgspec.inspect.Metadata):
        return _choices(kind.type)
    if isinstance(kind, msgspec.inspect.UnionType):
        return [word for one in kind.types for word in _choices(one)]
    return [str(word) for word in kind.values] if isinstance(kind, msgspec.inspect.LiteralType) else []
