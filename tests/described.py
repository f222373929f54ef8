"""Check of HTTP responses against the OpenAPI document."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any
from urllib.parse import unquote

import jsonschema_rs

from greendot.app.http import document

DOCUMENT = document()
MOST_BYTES = 100_000  # limit for validated bodies: servers under test share this event loop, and some are measured
PATHS = {path: re.compile(re.sub(r"{\w+}", "[^/]+", path)) for path in DOCUMENT["paths"]}


def conforms(method: str, target: str, status: int, kind: str | None, body: bytes) -> None:
    """Raise AssertionError if the OpenAPI document does not describe this response.

    Requests to operations that the document does not contain are not checked.
    """
    found = _operation(method, target.partition("?")[0])
    if found is None:
        return
    said = f"{method} {target[:200]} → {status} {kind}"
    assert str(status) in found["responses"], f"{said}: status is not in the document"
    known = _content(found["responses"][str(status)])
    if not known:
        assert body == b"", f"{said}: the document describes no body"
        return
    media_type = (kind or "").partition(";")[0]
    assert media_type in known, f"{said}: media types in the document: {[*known]}"
    if media_type.endswith("json") and len(body) <= MOST_BYTES:
        errors = _validator(json.dumps(known[media_type])).iter_errors(json.loads(body))
        assert [(error.message, error.instance_path) for error in errors] == [], said


def _operation(method: str, path: str) -> dict[str, Any] | None:
    # Literal paths have precedence over paths with an id. Percent-encoded slashes count as slashes.
    path = unquote(path)
    for known in sorted(PATHS, key=lambda path: path.count("{")):
        if PATHS[known].fullmatch(path):
            found: dict[str, Any] | None = DOCUMENT["paths"][known].get(method.lower())
            return found
    return None


def _content(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of each media type, without the parameters of the type."""
    if "$ref" in answer:
        answer = DOCUMENT["components"]["responses"][answer["$ref"].rpartition("/")[2]]
    return {name.partition(";")[0]: each["schema"] for name, each in answer.get("content", {}).items()}


@cache
def _validator(schema: str) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(json.loads(schema) | {"components": DOCUMENT["components"]})
