"""Helpers for JSON Schemas in the API documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import cleandoc
from typing import Any

Json = dict[str, Any]


def ecma(schema: Any) -> Any:
    """Return `schema` with ECMA regular expressions, `$` in place of Python's `\\Z`, and descriptions without indents.

    Surrogate ranges are removed: JSON in UTF-8 cannot contain surrogates, and validators refuse patterns with them.
    """
    if isinstance(schema, Mapping):
        return {
            key: _TEXTS[key](value) if key in _TEXTS and isinstance(value, str) else ecma(value)
            for key, value in schema.items()
        }
    return [ecma(value) for value in schema] if isinstance(schema, list | tuple) else schema


def _pattern(python: str) -> str:
    return python.replace(r"\Z", "$").replace(r"\ud800-\udfff", "")


# Docstrings of structs are indented like the code around them.
_TEXTS: dict[str, Callable[[str], str]] = {"pattern": _pattern, "description": cleandoc}


def having(*names: str) -> Json:
    """Return a schema that requires all of these names. A null counts as absent."""
    return {"required": [*names], "properties": {name: {"not": {"type": "null"}} for name in names}}


def one_of(*names: str) -> Json:
    """Return a schema that requires exactly one of these names."""
    return {"oneOf": [having(name) for name in names]}


def never(*together: Json) -> Json:
    """Return a schema that excludes all of these schemas."""
    return {"not": {"anyOf": [*together]}}
