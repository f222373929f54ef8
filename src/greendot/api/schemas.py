"""JSON Schemas as the documents have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]


def ecma(schema: Any) -> Any:
    """Patterns as JSON Schema has them: Python's `\\Z` is its `$`."""
    if isinstance(schema, Mapping):
        return {
            key: value.replace(r"\Z", "$") if key == "pattern" and isinstance(value, str) else ecma(value)
            for key, value in schema.items()
        }
    return [ecma(value) for value in schema] if isinstance(schema, list | tuple) else schema
