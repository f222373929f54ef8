"""What the OpenAPI document says of an answer, held against the answer."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any
from urllib.parse import unquote

import jsonschema_rs

from greendot.app.http import document

DOCUMENT = document()
MOST_BYTES = 100_000  # of a body that is looked into: many servers under test share our loop, and some are measured
PATHS = {path: re.compile(re.sub(r"{\w+}", "[^/]+", path)) for path in DOCUMENT["paths"]}


def conforms(method: str, target: str, status: int, kind: str | None, body: bytes) -> None:
    """AssertionError if the document does not speak of such an answer. What it does not speak of may be anything."""
    found = _operation(method, target.partition("?")[0])
    if found is None:
        return
    said = f"{method} {target[:200]} → {status} {kind}"
    assert str(status) in found["responses"], f"{said}: a status the document does not know"
    known = _content(found["responses"][str(status)])
    if not known:
        assert body == b"", f"{said}: the document knows of no body"
        return
    media_type = (kind or "").partition(";")[0]
    assert media_type in known, f"{said}: the document knows {[*known]}"
    if media_type.endswith("json") and len(body) <= MOST_BYTES:
        errors = _validator(json.dumps(known[media_type])).iter_errors(json.loads(body))
        assert [(error.message, error.instance_path) for error in errors] == [], said


def _operation(method: str, path: str) -> dict[str, Any] | None:
    # A path that is written out comes before one with an id in its place; a slash is one however it is written.
    path = unquote(path)
    for known in sorted(PATHS, key=lambda path: path.count("{")):
        if PATHS[known].fullmatch(path):
            found: dict[str, Any] | None = DOCUMENT["paths"][known].get(method.lower())
            return found
    return None


def _content(answer: dict[str, Any]) -> dict[str, Any]:
    """Media types, without their parameters, and the schema of each."""
    if "$ref" in answer:
        answer = DOCUMENT["components"]["responses"][answer["$ref"].rpartition("/")[2]]
    return {name.partition(";")[0]: each["schema"] for name, each in answer.get("content", {}).items()}


@cache
def _validator(schema: str) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(json.loads(schema) | {"components": DOCUMENT["components"]})
