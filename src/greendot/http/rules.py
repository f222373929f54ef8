"""What a type cannot say of a body: which fields go together. The code checks it; this is how the document says so."""

from __future__ import annotations

from greendot.http.schema import Json


def having(*names: str) -> Json:
    """All of these are given; null is as good as left out."""
    return {"required": [*names], "properties": {name: {"not": {"type": "null"}} for name in names}}


def one_of(*names: str) -> Json:
    """Exactly one of these."""
    return {"oneOf": [having(name) for name in names]}


def never(*together: Json) -> Json:
    """None of these."""
    return {"not": {"anyOf": [*together]}}
