"""Search for parts of an API document without a description."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]


def undescribed(document: Json) -> list[str]:
    """Return the schemas, fields, messages, operations, parameters and responses that no text describes."""
    return sorted({*_schemas(document), *_messages(document), *_operations(document), *_responses(document)})


def _schemas(document: Json) -> Iterator[str]:
    for name, schema in document["components"]["schemas"].items():
        if not schema.get("description"):
            yield name
        yield from _fields(name, schema, document)


def _messages(document: Json) -> Iterator[str]:
    for name, message in document["components"].get("messages", {}).items():
        if not message.get("summary"):
            yield f"message {name}"
        yield from _fields(f"message {name}", message["payload"], document)


def _operations(document: Json) -> Iterator[str]:
    if "operations" in document:
        yield from (name for name, operation in document["operations"].items() if not operation.get("summary"))
        return
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            name = f"{method.upper()} {path}"
            if not operation.get("summary"):
                yield name
            yield from (f"{name} {one['name']}" for one in operation["parameters"] if not one.get("description"))


def _responses(document: Json) -> Iterator[str]:
    operations = [it for methods in document.get("paths", {}).values() for it in methods.values()]
    responses = [response for it in operations for response in it["responses"].values()]
    for response in (*responses, *document["components"].get("responses", {}).values()):
        if "$ref" not in response and not response.get("description"):
            yield f"response {response}"
        headers = response.get("headers", {})
        yield from (f"header {name}" for name, header in headers.items() if not header.get("description"))


def _fields(name: str, schema: Json, document: Json) -> Iterator[str]:
    """Yield fields without a description. A field that is another schema has the description of that schema."""
    for field, given in schema.get("properties", {}).items():
        target = document["components"]["schemas"].get(given.get("$ref", "").rpartition("/")[2], {})
        if not (given.get("description") or target.get("description")):
            yield f"{name}.{field}"
