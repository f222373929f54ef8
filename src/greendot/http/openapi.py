"""OpenAPI 3.1 document of the HTTP API, generated from operations and their types."""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import Struct

from greendot import __version__
from greendot.auth.model import SCOPES
from greendot.http import problem
from greendot.http.operation import Content, Operation
from greendot.http.schema import Json, ecma
from greendot.http.scopes import NEEDED, UNCOUNTED
from greendot.protocol.commands import Id

ABOUT = """\
For app backends. A key belongs to a tenant and has scopes; each operation names the one it needs (`admin` has all but
`operator`). Times are milliseconds UTC. Fields that are not known are ignored. What went wrong is said in a problem
document (RFC 9457) whose `detail` says what to do; 500 is a fault of the server's own. What is refused before an
operation is reached is answered in plain text.
"""
AT_THE_DOOR = {400, 403, 408, 429, 431}  # statuses that any request may get, in plain text
OF_KEYS = {401, 403, 503}  # statuses of key checks, which read the store
MEANING = {
    400: "The request is not understood, or something in it is wrong: do not send it again as it is.",
    401: "No API key, or none that is known here.",
    403: "The key lacks the scope; or the request came under a name that is not served here.",
    404: "There is no such room or session.",
    408: "The request did not arrive in time.",
    413: "The body is larger than it may be.",
    426: "This address speaks WebSocket.",
    429: "Too much: nothing was done. Come back after the time that is given.",
    431: "The headers are larger than they may be.",
    503: "Not now, or not known to be done everywhere: send it again.",
}
_TEXT: Json = {"text/plain": {"schema": {"type": "string"}}}
_RETRY: Json = {"description": "In so many seconds.", "schema": {"type": "integer", "minimum": 0}}
_HEADERS: dict[int, Json] = {
    401: {"headers": {"WWW-Authenticate": {"schema": {"const": "Bearer"}}}},
    429: {"headers": {"Retry-After": _RETRY}},
    503: {"headers": {"Retry-After": _RETRY}},
}


def document(operations: Iterable[Operation]) -> Json:
    """Return the OpenAPI document: all operations and their types."""
    operations = [*operations]
    schemas = _Schemas(operations)
    paths: dict[str, Json] = {}
    for it in operations:
        paths.setdefault(it.path, {})[it.method.lower()] = _operation(it, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Greendot",
            "version": __version__,
            "description": ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "responses": dict(sorted(schemas.failures.items())),
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": f"An API key. Scopes: {', '.join(SCOPES)}; operator, for keys of no tenant.",
                }
            },
        },
    }


class _Schemas:
    """JSON Schemas of all types in the document."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        types = {kind: None for it in operations for kind in _types(it)}
        refs, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
        self._refs = dict(zip(types, map(ecma, refs), strict=True))
        self.components = ecma(components)
        for kind in types:
            if (rule := getattr(kind, "RULE", None)) is not None:
                self.components[kind.__name__] |= rule
        self.failures: dict[str, Json] = {}  # shared failure responses by name

    def one_of(self, kinds: Iterable[Any]) -> Json:
        found = [self._refs[kind] for kind in kinds]
        return found[0] if len(found) == 1 else {"anyOf": found}

    def failure(self, status: int, *, found: bool) -> Json:
        """Return a reference to the response for a failure.

        `found` selects a problem document of an operation. Otherwise the request fails before an operation is found.
        """
        name = f"{'Problem' if found else 'Text'}{status}"
        document = {problem.MEDIA_TYPE: {"schema": self.one_of([problem.ProblemDocument])}}
        content = (document if found else {}) | (_TEXT if status in AT_THE_DOOR else {})
        self.failures[name] = {"description": MEANING[status], "content": content} | _HEADERS.get(status, {})
        return {"$ref": f"#/components/responses/{name}"}

    def fields(self, kind: type[Struct]) -> Iterable[tuple[str, Json]]:
        """Return the schemas of a query's fields, which the document writes inline."""
        (ref,), components = msgspec.json.schema_components([kind])
        fields: dict[str, Json] = ecma(components[ref["$ref"].rpartition("/")[2]]["properties"])
        return fields.items()


def _types(it: Operation) -> Iterable[Any]:
    yield problem.ProblemDocument
    yield from it.body
    for content in it.answers.values():
        if not isinstance(content, str):
            yield from content


def _operation(it: Operation, schemas: _Schemas) -> Json:
    scope = NEEDED.get(it.name)
    summary, _, more = it.about.partition("\n\n")
    found: Json = {
        "operationId": _named(it),
        "summary": " ".join(summary.split()),
        "parameters": _parameters(it, schemas),
        "responses": _answers(it, schemas),
        "security": [] if scope is None else [{"key": [scope]}],
    }
    if more:
        found["description"] = " ".join(more.split())
    if it.body:
        found["requestBody"] = {
            "required": any(map(_asks_for_something, it.body)),  # otherwise an empty body means the defaults
            "content": {"application/json": {"schema": schemas.one_of(it.body)}},
        }
    return found


def _asks_for_something(kind: type[Struct]) -> bool:
    return hasattr(kind, "RULE") or any(field.required for field in msgspec.structs.fields(kind))


def _parameters(it: Operation, schemas: _Schemas) -> list[Json]:
    ids = [{"name": name, "in": "path", "required": True, "schema": _ID} for name in it.ids]
    asked = [] if it.query is None else schemas.fields(it.query)
    queries = [{"name": name, "in": "query", "schema": _given(schema)} for name, schema in asked]
    key = {
        "name": "Idempotency-Key",
        "in": "header",
        "description": "Sent again with the same key, it is the one that was written first.",
        "schema": _ID,
    }
    return [*ids, *queries, *([key] if it.keyed else [])]


def _given(schema: Json) -> Json:
    """Return the schema without null: a query string has no null, so None means an absent parameter."""
    some = [part for part in schema.get("anyOf", ()) if part != {"type": "null"}]
    return some[0] if len(some) == 1 else schema


def _answers(it: Operation, schemas: _Schemas) -> dict[str, Json]:
    problems = it.fails | ({400} if it.ids or it.query or it.body or it.keyed else set())
    problems |= {413} if it.body else set()
    if it.name in NEEDED:
        problems |= OF_KEYS if it.name in UNCOUNTED else OF_KEYS | {429}
    answers = {status: _answer(status, content, schemas) for status, content in it.answers.items()}
    for status in sorted((problems | AT_THE_DOOR) - answers.keys()):
        answers[status] = schemas.failure(status, found=status in problems)
    return {str(status): answer for status, answer in answers.items()}


def _answer(status: int, content: Content, schemas: _Schemas) -> Json:
    answer: Json = {"description": HTTPStatus(status).phrase}
    if isinstance(content, str):
        answer["content"] = {content: {"schema": {"type": "string"}}}
    elif content:
        answer["content"] = {"application/json": {"schema": schemas.one_of(content)}}
    return answer


def _named(it: Operation) -> str:
    """Return an operation id for client generators, such as put_rooms_room_members_user."""
    words = re.findall(r"\w+", it.path.removeprefix("/v1"))
    return "_".join([it.method.lower(), *words])


_ID: Json = ecma(msgspec.json.schema(Id))
