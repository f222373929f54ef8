"""JSON Schemas as the documents have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]


def ecma(schema: Any) -> Any:
    """Return `schema` with its patterns as JSON Schema has them: Python's `\\Z` is its `$`.

    Halves of surrogate pairs are left out. JSON in UTF-8 cannot hold them, and validators refuse a pattern with them.
    """
    if isinstance(schema, Mapping):
        return {
            key: _pattern(value) if key == "pattern" and isinstance(value, str) else ecma(value)
            for key, value in schema.items()
        }
    return [ecma(value) for value in schema] if isinstance(schema, list | tuple) else schema


def _pattern(python: str) -> str:
    return python.replace(r"\Z", "$").replace(r"\ud800-\udfff", "")


def having(*names: str) -> Json:
    """All of these are given; null is as good as left out."""
    return {"required": [*names], "properties": {name: {"not": {"type": "null"}} for name in names}}


def one_of(*names: str) -> Json:
    """Exactly one of these."""
    return {"oneOf": [having(name) for name in names]}


def never(*together: Json) -> Json:
    """None of these."""
    return {"not": {"anyOf": [*together]}}
